# SPDX-FileCopyrightText: The hetGPU authors
# SPDX-License-Identifier: Apache-2.0
#
# Sourced by the other scripts: where things are, and how they report.
# shellcheck shell=bash

# Where third-party programs are kept, outside the tree so that every clone
# uses the same ones.
HETGPU_CACHE=${HETGPU_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/hetgpu}
# CRIU runs with libraries of its own below this prefix; the runtime looks
# here too.
HETGPU_CRIU_PREFIX=${HETGPU_CRIU_PREFIX:-/opt/hetgpu/criu}

HACK=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(dirname "$HACK")
# shellcheck source=hack/versions.env
. "$HACK/versions.env"

say() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }
die() {
	say "error: $*"
	exit 1
}

# program_dir NAME VERSION prints the directory that has the built programs.
program_dir() { printf '%s/%s-%s/bin\n' "$HETGPU_CACHE" "$1" "$2"; }

# tools_path prints the PATH entries that the integration tests and the demo
# put first, for the containerd of the given version.
tools_path() {
	local dirs
	dirs=$(program_dir containerd "${1:-$CONTAINERD_VERSION}")
	dirs+=:$(program_dir runc "$RUNC_VERSION")
	dirs+=:$(program_dir nerdctl "$NERDCTL_VERSION")
	[ ! -x "$HETGPU_CRIU_PREFIX/bin/criu" ] || dirs+=:$HETGPU_CRIU_PREFIX/bin
	printf '%s\n' "$dirs"
}
