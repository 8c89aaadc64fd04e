#!/usr/bin/env bash
# SPDX-FileCopyrightText: The hetGPU authors
# SPDX-License-Identifier: Apache-2.0
#
# Two H200s. Under 60 s. Facts go to standard output; run as root.
set -eu
cd "$(dirname "$0")"
lib=/usr/local/nvidia/lib64; [ -e $lib/libcuda.so.1 ] || lib=$(dirname "$(ldconfig -p | awk '/libcuda.so.1/ && /x86-64/ { print $NF; exit }')")
inc=${CUDA_HOME:-/usr/local/cuda}/include; [ -e "$inc/cuda.h" ] || inc=../../../../libhetcuda/include
cc -std=gnu11 -O1 -Wall -I "$inc" -o /tmp/another another.c "$lib/libcuda.so.1" -Wl,--allow-shlib-undefined -lpthread
export LD_LIBRARY_PATH=$lib:${LD_LIBRARY_PATH:-}
for v in "- -" "0 -" "0 1,0" "- 1"; do
	echo "=== subject and helper see: $v"; status=0; timeout -k 2 25 /tmp/another $v || status=$?; echo "=== status $status"
done
