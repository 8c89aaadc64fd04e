#!/usr/bin/env bash
# SPDX-FileCopyrightText: The hetGPU authors
# SPDX-License-Identifier: Apache-2.0
#
# Compiles the kernels, or those named, to PTX with clang; no CUDA toolkit is
# needed. The PTX is committed, so that tests need no clang and compare the same
# text everywhere. A kernel that needs a newer device than sm_70 says so in a line
# "// needs sm_XX".
#
# No contraction: where a kernel multiplies and adds in one step it says fmaf.
set -euo pipefail
cd "$(dirname "$0")"
clang=${CLANG:-clang-15}

[ $# -gt 0 ] || set -- *.cu
for source; do
	arch=$(sed -n 's#^// needs \(sm_[0-9a]*\)$#\1#p' "$source")
	"$clang" -x cuda --cuda-device-only --cuda-gpu-arch="${arch:-sm_70}" -Xclang -target-feature -Xclang +ptx75 \
		-nocudainc -nocudalib -O2 -ffp-contract=off -Wall -Wextra -Werror -S "$source" -o "${source%.cu}.ptx"
done
