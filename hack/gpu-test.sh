#!/usr/bin/env bash
# SPDX-FileCopyrightText: The hetGPU authors
# SPDX-License-Identifier: Apache-2.0
#
# Runs the suite for a host with an NVIDIA GPU, from the unpacked bundle. It
# needs root, a driver of 570 or newer, and cgroups; a C compiler and the CUDA
# toolkit are used if they are there. Everything runs on a private containerd.
#
#   gpu-test.sh [REPORT-DIRECTORY [OPTION]...]
#
# "bin/gpu-suite -help" lists the options. The exit status is 0 if no row
# failed.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
prefix=/opt/hetgpu

[ -x "$here/bin/gpu-suite" ] || {
	echo "gpu-test.sh: this is not an unpacked bundle; in a checkout, run 'make gpu-test'" >&2
	exit 1
}
[ "$(id -u)" -eq 0 ] || {
	echo "gpu-test.sh: run it as root" >&2
	exit 1
}

# These two work at fixed places only; what is there already is left alone.
mkdir -p "$prefix"
[ -x "$prefix/criu/bin/criu" ] || cp -a "$here/criu" "$prefix/"
[ -e "$prefix/lib" ] || cp -a "$here/lib" "$prefix/"

out=${1:-$PWD/gpu-test}
[ $# -eq 0 ] || shift
exec "$here/bin/gpu-suite" -path "$here/bin:$prefix/criu/bin" -include "$here/src" -prebuilt "$here/prebuilt" -out "$out" "$@"
