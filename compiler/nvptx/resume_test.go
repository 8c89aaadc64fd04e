// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package nvptx_test

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/interp"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/nvptx"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/pause"
)

// counting has a loop around a barrier in a loop, and one loop without. Each
// thread counts in its element of p.
const (
	counting = ".version 8.0\n.target sm_80\n.address_size 64\n" + `
.visible .entry together(.param .u64 p)
{
	.reg .pred %p; .reg .b32 %r<5>; .reg .b64 %d<4>;
	ld.param.u64 %d0, [p];
	mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x;
	mad.lo.u32 %r0, %r0, %r1, %r2;
	mul.wide.u32 %d1, %r0, 4;
	add.u64 %d0, %d0, %d1;
	mov.u32 %r3, 0;
outer:
	mov.u32 %r4, 0;
inner:
	bar.sync 0;
	ld.global.u32 %r0, [%d0]; add.u32 %r0, %r0, 1; st.global.u32 [%d0], %r0;
	add.u32 %r4, %r4, 1;
	setp.lt.u32 %p, %r4, 4;
	@%p bra inner;
	add.u32 %r3, %r3, 1;
	setp.lt.u32 %p, %r3, 4;
	@%p bra outer;
	ret;
}
.visible .entry alone(.param .u64 p)
{
	.reg .pred %p; .reg .b32 %r<4>; .reg .b64 %d<4>;
	ld.param.u64 %d0, [p];
	mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x;
	mad.lo.u32 %r0, %r0, %r1, %r2;
	mul.wide.u32 %d1, %r0, 4;
	add.u64 %d0, %d0, %d1;
	mov.u32 %r3, 0;
again:
	ld.global.u32 %r0, [%d0]; add.u32 %r0, %r0, 1; st.global.u32 [%d0], %r0;
	add.u32 %r3, %r3, 1;
	setp.lt.u32 %p, %r3, 16;
	@%p bra again;
	ret;
}
`
	// switching goes back by a jump table.
	switching = ".version 8.0\n.target sm_80\n.address_size 64\n" + `
.visible .entry switching(.param .u64 p)
{
	.reg .pred %p; .reg .b32 %r<4>; .reg .b64 %d<2>;
	ld.param.u64 %d0, [p];
	mov.u32 %r0, 0;
again:
	add.u32 %r0, %r0, 1;
	setp.lt.u32 %p, %r0, 16;
	selp.u32 %r1, 1, 0, %p;
	ts: .branchtargets done, again;
	brx.idx %r1, ts;
done:
	st.global.u32 [%d0], %r0;
	ret;
}
`
	// ending ends at once in block 0, and in all threads but the first.
	ending = ".version 8.0\n.target sm_80\n.address_size 64\n" + `
.visible .entry ending(.param .u64 p)
{
	.reg .pred %p, %q; .reg .b32 %r<4>; .reg .b64 %d<2>;
	ld.param.u64 %d0, [p];
	mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x;
	setp.eq.u32 %p, %r0, 0;
	setp.ne.or.u32 %p, %r2, 0, %p;
	mad.lo.u32 %r0, %r0, %r1, %r2;
	mul.wide.u32 %d1, %r0, 4;
	add.u64 %d0, %d0, %d1;
	mov.u32 %r3, 0;
again:
	ld.global.u32 %r0, [%d0]; add.u32 %r0, %r0, 1; st.global.u32 [%d0], %r0;
	add.u32 %r3, %r3, 1;
	@%p bra done;
	setp.lt.u32 %q, %r3, 16;
	@%q bra again;
done:
	ret;
}
`
	blocks, threads = 4, 2
	dataAt, stateAt = 0x10000, 0x20000
	flagAt          = 0x30000
)

// launch runs a kernel of a module of ours, with a state. The flag goes up at the
// look of that number, from 0; -1: never.
func launch(t *testing.T, m *ir.Module, kernel string, plan *pause.Plan, state, data []byte, look int) error {
	t.Helper()
	params := binary.LittleEndian.AppendUint64(nil, dataAt)
	params, err := binary.Append(params, binary.LittleEndian, nvptx.Launch{
		State: stateAt, Areas: stateAt + uint64(plan.StatusBytes(blocks)), AreaBytes: uint64(plan.AreaBytes(threads, 0)), Flag: flagAt,
	})
	if err != nil {
		t.Fatal(err)
	}
	if kernel == plan.Func.Name { // as before a launch begins
		for b := range blocks {
			binary.LittleEndian.PutUint32(state[4*b:], pause.Done)
		}
	}
	var memory interp.Memory
	flag := make([]byte, 4)
	if err := errors.Join(memory.Map(dataAt, data), memory.Map(stateAt, state), memory.Watch(flagAt, flag, func() {
		if look == 0 {
			flag[0] = 1
		}
		look--
	})); err != nil {
		t.Fatal(err)
	}
	return interp.Run(t.Context(), &interp.Launch{
		Module: m, Kernel: m.Func(kernel), Grid: [3]uint32{blocks, 1, 1}, Block: [3]uint32{threads, 1, 1},
		Params: params, Memory: &memory, MaxSteps: 1 << 20,
	})
}

// TestStatus: each block does what its status says, all in one launch.
func TestStatus(t *testing.T) {
	p := load(t, counting)
	out, err := nvptx.Module(p.Source, p.Module, p.Plans, nvptx.Checks{Barriers: 4, Rounds: 4, Clocks: 1})
	if err != nil {
		t.Fatal(err)
	}
	m := read(t, out)
	for _, plan := range p.Plans {
		name := plan.Func.Name
		resume := nvptx.ResumeName(name)
		state := func(statuses ...uint32) []byte {
			s := make([]byte, plan.StateBytes(blocks, threads, 0))
			for i, status := range statuses {
				binary.LittleEndian.PutUint32(s[4*i:], status)
			}
			return s
		}
		t.Run(name, func(t *testing.T) {
			s, data := state(0, pause.Done, pause.Done, 0), make([]byte, 4*blocks*threads)
			if err := launch(t, m, resume, plan, s, data, -1); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(data, []byte{16, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 16, 0, 0, 0}) {
				t.Errorf("blocks 0 and 3 had not started: %v", data)
			}
			if done := state(pause.Done, pause.Done, pause.Done, pause.Done); !slices.Equal(s, done) {
				t.Errorf("not all are done: %v", s)
			}

			for _, kernel := range []string{name, resume} {
				s, data := state(), make([]byte, 4*blocks*threads)
				if err := launch(t, m, kernel, plan, s, data, 0); err != nil {
					t.Fatal(err)
				}
				if slices.Max(s) != 0 || slices.Max(data) != 0 {
					t.Errorf("%s began although the flag was up", kernel)
				}
			}

			paused, first := state(), make([]byte, 4*blocks*threads)
			if err := launch(t, m, name, plan, paused, first, 2*blocks+1); err != nil {
				t.Fatal(err)
			}
			again := slices.Clone(paused)
			if err := launch(t, m, resume, plan, again, slices.Clone(first), 0); err != nil || !slices.Equal(again, paused) {
				t.Errorf("a state was changed although the flag was up: %v", err)
			}

			fault := (*interp.Fault)(nil)
			if err := launch(t, m, resume, plan, state(7), data, -1); !errors.As(err, &fault) || fault.Kind != interp.Trapped {
				t.Errorf("a status that none has: %v", err)
			}
		})
	}
}

// TestBackEdges: every round of a loop counts that is a point, whatever it ends
// with, and if several are printed one after the other then the last of them.
func TestBackEdges(t *testing.T) {
	for name, text := range map[string]string{"switching": switching, "alone": counting} {
		p := load(t, text)
		i := slices.IndexFunc(p.Plans, func(p *pause.Plan) bool { return p.Func.Name == name })
		plan := p.Plans[i]
		out, err := nvptx.Module(p.Source, p.Module, p.Plans, nvptx.Checks{Late: true, Rounds: 1, Clocks: 1})
		if err != nil {
			t.Fatal(err)
		}
		m := read(t, out)
		state, data := make([]byte, plan.StateBytes(blocks, threads, 0)), make([]byte, 4*blocks*threads)
		if err := launch(t, m, name, plan, state, data, 0); err != nil {
			t.Fatal(err)
		}
		for b := range blocks {
			if status := binary.LittleEndian.Uint32(state[4*b:]); status != pause.ThreadPoints {
				t.Errorf("%s: block %d did not stop: %x", name, b, status)
			}
		}
		if err := launch(t, m, nvptx.ResumeName(name), plan, state, data, -1); err != nil || data[0] != 16 {
			t.Errorf("%s: %v, %d", name, err, data[0])
		}
	}
}

// TestEnded: threads that have ended by themselves are said to have, when others of
// their block stop; a block in which all have leaves its status alone.
func TestEnded(t *testing.T) {
	p := load(t, ending)
	plan := p.Plans[0]
	out, err := nvptx.Module(p.Source, p.Module, p.Plans, nvptx.Checks{Late: true, Rounds: 1, Clocks: 1})
	if err != nil {
		t.Fatal(err)
	}
	m := read(t, out)
	state, data := make([]byte, plan.StateBytes(blocks, threads, 0)), make([]byte, 4*blocks*threads)
	if err := launch(t, m, "ending", plan, state, data, 0); err != nil {
		t.Fatal(err)
	}
	word := func(at int64) uint32 { return binary.LittleEndian.Uint32(state[at:]) }
	for b := range int64(blocks) {
		area := plan.StatusBytes(blocks) + b*plan.AreaBytes(threads, 0)
		switch status := word(4 * b); {
		case b == 0:
			if status != pause.Done {
				t.Errorf("nobody stopped in block 0: %x", status)
			}
		case status != pause.ThreadPoints || word(area) != 1 || word(area+4) != pause.ThreadEnded:
			t.Errorf("block %d: %x; threads %x %x", b, status, word(area), word(area+4))
		}
	}
	if err := launch(t, m, nvptx.ResumeName("ending"), plan, state, data, -1); err != nil || data[0] != 1 || data[8] != 16 || data[12] != 1 {
		t.Errorf("%v, %d", err, data)
	}
}
