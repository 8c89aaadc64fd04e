#!/usr/bin/env bash
# SPDX-FileCopyrightText: The hetGPU authors
# SPDX-License-Identifier: Apache-2.0
#
# One H200. Under 60 s. Facts go to standard output.
set -eu
cd "$(dirname "$0")"
lib=/usr/local/nvidia/lib64; [ -e $lib/libcuda.so.1 ] || lib=$(dirname "$(ldconfig -p | awk '/libcuda.so.1/ && /x86-64/ { print $NF; exit }')")
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc); root=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
inc=$root/include; [ -e "$inc/cuda.h" ] || inc=$(dirname "$(find "$root" /usr/local/cuda/ -name cuda.h 2>/dev/null | head -1)")
out=/tmp/managed; mkdir -p $out
export LD_LIBRARY_PATH=$lib:$root/lib64:${LD_LIBRARY_PATH:-}
cc -std=gnu11 -O1 -Wall -I "$inc" -o $out/load load.c "$lib/libcuda.so.1" -Wl,--allow-shlib-undefined
cc -std=gnu11 -O1 -Wall -shared -fPIC -o $out/spy.so spy.c -ldl
"$nvcc" -arch=sm_90 -cubin -o $out/m.cubin managed.cu &
"$nvcc" -arch=sm_90 -cubin -DVARIABLE=__device__ -o $out/d.cubin managed.cu &
"$nvcc" -arch=sm_90 -fatbin -o $out/m.fatbin managed.cu &
"$nvcc" -arch=sm_90 -fatbin --no-compress -o $out/raw.fatbin managed.cu &
"$nvcc" -arch=sm_90 -cudart static -o $out/static program.cu &
"$nvcc" -arch=sm_90 -cudart shared -o $out/shared program.cu &
wait; ls -l $out
echo "=== the ELF with __managed__"; python3 elf.py $out/m.cubin $out/cleared.cubin
echo "=== the same source with __device__"; python3 elf.py $out/d.cubin
python3 - <<PY
a, b, d = (open("$out/" + n, "rb").read() for n in ("m.cubin", "cleared.cubin", "d.cubin"))
print("FACT cleared differs from __managed__ in", sum(x != y for x, y in zip(a, b)), "bytes, from __device__ in", sum(x != y for x, y in zip(b, d)), "of", len(d), "(sizes", len(b), len(d), ")")
for n in ("m.fatbin", "raw.fatbin"):
    f = open("$out/" + n, "rb").read(); print("FACT", n, len(f), "bytes, begins", f[:80].hex(" ", 4), "has ELF in plain:", b"\x7fELF" in f)
PY
for what in "m.cubin" "m.fatbin" "cleared.cubin" "cleared.cubin pages" "d.cubin pages"; do
	set -- $what; echo "=== load $what"; status=0; timeout -k 2 20 $out/load "$out/$1" ${2:-} || status=$?; echo "=== status $status"
done
for kind in static shared; do echo "=== calls of the $kind runtime"; status=0; LD_PRELOAD=$out/spy.so timeout -k 2 15 $out/$kind 2>&1 || status=$?; echo "=== status $status"; done
