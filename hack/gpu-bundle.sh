#!/usr/bin/env bash
# SPDX-FileCopyrightText: The hetGPU authors
# SPDX-License-Identifier: Apache-2.0
#
# Lays out dist/gpu-bundle: everything that gpu-test.sh, which is in it, needs on a
# host that has a driver and no network. "gpu-bundle.sh pack" packs that as
# dist/gpu-bundle.tar.xz. Where there is no xz, Python unpacks it (python3 -m
# tarfile -e).
set -euo pipefail
. "$(dirname "$0")/lib.sh"

MAX_MIB=56

cd "$ROOT"
dir=dist/gpu-bundle

# One stream with a window larger than all of it, since Go's programs have much in
# common.
pack() {
	local size
	tar -C dist --owner=0 --group=0 -c gpu-bundle | nice xz --x86 --lzma2=preset=1,dict=256MiB >"$dir.tar.xz"
	size=$(stat -c %s "$dir.tar.xz")
	[ "$size" -lt $((MAX_MIB << 20)) ] || die "$dir.tar.xz has $((size >> 20)) MiB, and $MAX_MIB MiB is the limit"
	say "$dir.tar.xz: $((size >> 20)) MiB, $(du -sm "$dir" | cut -f1) MiB unpacked"
}
if [ "${1:-}" = pack ]; then
	pack
	exit
fi

rm -rf "$dir" "$dir".tar.*
mkdir -p "$dir/bin" "$dir/lib/hetgpu" "$dir/src" "$dir/prebuilt"

version=$(git describe --tags --always --dirty 2>/dev/null || echo unknown)
package=github.com/hetgpu/containerd-shim-hetgpu/internal/version
CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X $package.Version=$version" -o "$dir/bin/gpu-suite" ./integration/gpu
CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X $package.Version=$version" -o "$dir/bin/gpu-corpus" ./integration/gpucorpus
CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X $package.Version=$version" -o "$dir/bin/gpu-demo" ./integration/demo

containerd=$(program_dir containerd "$CONTAINERD_VERSION")
cp bin/containerd-shim-hetgpu-v2 bin/hetgpu bin/hetgpu-gpu bin/hetgpu-hook "$containerd/containerd" "$containerd/ctr" \
	"$(program_dir runc "$RUNC_VERSION")/runc" "$(command -v busybox)" "$dir/bin/"

# For pods: who makes them, their network, and what NVIDIA's toolkit gives them of
# a GPU.
cni=$(program_dir cni "$CNI_VERSION") toolkit=$(program_dir toolkit "$NVIDIA_TOOLKIT_VERSION")
cp "$(program_dir kubelet "$KUBELET_VERSION")/kubelet" "$cni/ptp" "$cni/host-local" "$toolkit/nvidia-ctk" "$toolkit/nvidia-cdi-hook" "$dir/bin/"

# Where the shim looks for it, beside its own directory.
cp bin/libhetcuda/libcuda.so.1 "$dir/lib/hetgpu/"

# runc starts itself from a copy in memory, so its library needs a fixed place.
cp -L "$(ldd "$dir/bin/runc" | awk '$1 ~ /^libseccomp/ { print $3 }')" "$dir/lib/"
patchelf --set-rpath /opt/hetgpu/lib "$dir/bin/runc"

# CRIU brings its own libraries and works at this one place.
[ "$HETGPU_CRIU_PREFIX" = /opt/hetgpu/criu ] && [ -x /opt/hetgpu/criu/bin/criu ] ||
	die "the bundle takes CRIU from /opt/hetgpu/criu, which is not there: this distribution's own is in use"
cp -a /opt/hetgpu/criu "$dir/criu"

cp integration/gpu/testdata/* libhetcuda/include/cuda.h "$dir/src/"
for program in gpuload ck conform; do
	cc -std=gnu11 -O2 -I "$dir/src" -o "$dir/prebuilt/$program" "$dir/src/$program.c" -L bin/standin -l:libcuda.so.1
done
cc -std=c11 -O2 -I compiler/corpus/child -o "$dir/prebuilt/curun" compiler/corpus/curun/child/curun.c -ldl
cc -std=c11 -O2 -I compiler/corpus/child -o "$dir/prebuilt/clrun" compiler/corpus/clrun/child/clrun.c -lOpenCL -lpthread
cp -L "$(ldd "$dir/prebuilt/clrun" | awk '$1 ~ /^libOpenCL/ { print $3 }')" "$dir/prebuilt/"
patchelf --set-rpath '$ORIGIN' "$dir/prebuilt/clrun"
cp hack/gpu-test.sh "$dir/"
echo "$version" >"$dir/VERSION"
