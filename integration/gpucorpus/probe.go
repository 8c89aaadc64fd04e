// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/corpus"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/corpus/clrun"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/corpus/harness"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/opencl"
)

// choose finds out in which way a platform runs a program of the corpus: with its
// memory as shared virtual memory, or as a buffer. If neither works, small kernels
// tell what does.
func (s *suite) choose(ctx context.Context, p *platform) {
	var why []string
	for _, p.options.Buffer = range []bool{false, true} {
		if p.options.Buffer && s.rehearse {
			break // PoCL's memory can be where it is asked for otherwise
		}
		err := s.tryProgram(ctx, p)
		if err == nil {
			p.Notes = why
			if p.options.Buffer {
				p.Name += "; memory is a buffer"
			}
			return
		}
		why = append(why, fmt.Sprintf("buffer %v: %v", p.options.Buffer, err))
	}
	for _, p.options.Buffer = range []bool{false, true} {
		for _, k := range probes {
			why = append(why, fmt.Sprintf("buffer %v, %s: %v", p.options.Buffer, k.name, probe(ctx, p.options, k.text)))
		}
	}
	p.Notes = why
	p.Missing = "it runs no program of the corpus: " + why[0]
	for _, line := range why {
		s.say("OpenCL: %s", line)
	}
}

// tryProgram runs one that has barriers and shared memory.
func (s *suite) tryProgram(ctx context.Context, p *platform) error {
	o := &opened{platform: p}
	defer o.drop()
	if err := o.take(ctx); err != nil {
		return err
	}
	program, err := harness.Prepared(corpus.Get("reduce_shared"), "", o.device.Device.Base)
	if err != nil {
		return err
	}
	return check(ctx, program, &o.device)
}

// probes write something for each block; each does one thing more than those before.
var probes = []struct{ name, text string }{
	{"nothing", `__kernel void k(ARGS) { }`},
	{"writes", `__kernel void k(ARGS) { if (get_local_id(0) == 0) ((__global uint *)hg->state)[get_group_id(0)] = 1; }`},
	{"reads the flag", `__kernel void k(ARGS) { uint f = *(volatile __global uint *)hg->flag; if (get_local_id(0) == 0) ((__global uint *)hg->state)[get_group_id(0)] = f + 1; }`},
	{"barrier", `__kernel void k(ARGS) { barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE); if (get_local_id(0) == 0) ((__global uint *)hg->state)[get_group_id(0)] = 1; }`},
	{"local memory of its own", `__kernel void k(ARGS) { __local uint f[2]; if (get_local_id(0) == 0) f[0] = 1; barrier(CLK_LOCAL_MEM_FENCE); if (get_local_id(0) == 0) ((__global uint *)hg->state)[get_group_id(0)] = f[0]; }`},
	{"local memory", `__kernel void k(ARGS) { if (get_local_id(0) == 0) s[0].x = 1; barrier(CLK_LOCAL_MEM_FENCE); if (get_local_id(0) == 0) ((__global uint *)hg->state)[get_group_id(0)] = s[0].x; }`},
	{"local memory by bytes", `__kernel void k(__global const struct hg *hg, __local uchar *s) { if (get_local_id(0) == 0) s[1] = 1; barrier(CLK_LOCAL_MEM_FENCE); if (get_local_id(0) == 0) ((__global uint *)hg->state)[get_group_id(0)] = s[1]; }`},
	{"local memory by bytes as words", `__kernel void k(__global const struct hg *hg, __local uchar *s) { __local uint *f = (__local uint *)s; if (get_local_id(0) == 0) f[0] = 1; barrier(CLK_LOCAL_MEM_FENCE); if (get_local_id(0) == 0) ((__global uint *)hg->state)[get_group_id(0)] = f[0]; }`},
	{"local memory, with an offset", `__kernel void k(ARGS) { __local uint *f = (__local uint *)((__local uchar *)s + (0u + ((hg->shared + 15) & ~15u))); if (get_local_id(0) == 0) f[0] = 1; barrier(CLK_LOCAL_MEM_FENCE); if (get_local_id(0) == 0) ((__global uint *)hg->state)[get_group_id(0)] = f[0]; }`},
	{"returns early", `__kernel void k(ARGS) { __local uint *f = (__local uint *)s; if (get_local_id(0) == 0) f[0] = *(volatile __global uint *)hg->flag != 0; barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE); if (f[0]) return; if (get_local_id(0) == 0) ((__global uint *)hg->state)[get_group_id(0)] = 1; }`},
}

const probeHead = `struct hg { ulong params, state, list, flag, vars, trap; uint grid[3], block[3]; uint shared, groups; };
#define ARGS __global const struct hg *hg, __local ulong2 *s
`

// probe runs a small kernel in a process of its own, and tells what it wrote.
func probe(ctx context.Context, o clrun.Options, text string) string {
	d, err := clrun.Start(context.WithoutCancel(ctx), o)
	if err != nil {
		return err.Error()
	}
	defer d.Close() //nolint:errcheck // what it said is told already
	if log, err := d.Build(opencl.Options, probeHead+text); err != nil {
		return log + err.Error()
	}
	const blocks, threads, result = 4, 64, 0x100000
	var h []byte
	for _, v := range []uint64{0x4000, result, 0, 0x200, 0x8000, 0x100} {
		if v != 0 {
			v += d.Base
		}
		h = binary.LittleEndian.AppendUint64(h, v)
	}
	for _, v := range []uint32{blocks, 1, 1, threads, 1, 1, 0, blocks} {
		h = binary.LittleEndian.AppendUint32(h, v)
	}
	for at, data := range map[uint64][]byte{0: h, 0x200: make([]byte, 4), result: make([]byte, 4*blocks)} {
		if err := d.Write(d.Base+at, data); err != nil {
			return err.Error()
		}
	}
	run := clrun.Run{Entry: "k", Launch: d.Base, LocalBytes: 64, Global: [3]uint64{blocks * threads, 1, 1}, Local: [3]uint64{threads, 1, 1}}
	if _, err := d.Run(run); err != nil {
		return err.Error()
	}
	got, err := d.Read(d.Base+result, 4*blocks)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%v", got)
}
