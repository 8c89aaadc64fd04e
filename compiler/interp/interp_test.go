// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package interp

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// A bench is a module with memory: one buffer, whose address is the kernel's
// first parameter.
type bench struct {
	module *ir.Module
	memory *Memory
	buffer []byte
	vars   map[*ir.Var]uint64
	out    bytes.Buffer
}

const bufferAddress = 0x10000

func newBench(tb testing.TB, size int, text string) *bench {
	tb.Helper()
	m, err := ir.Parse(text)
	if err != nil {
		tb.Fatal(err)
	}
	if err := ir.Verify(m); err != nil {
		tb.Fatal(err)
	}
	b := &bench{module: m, memory: &Memory{}, buffer: make([]byte, size)}
	if err := b.memory.Map(bufferAddress, b.buffer); err != nil {
		tb.Fatal(err)
	}
	if b.vars, err = b.memory.Load(m, 0x1000000); err != nil {
		tb.Fatal(err)
	}
	return b
}

// launch makes a launch of the first kernel.
func (b *bench) launch(grid, block uint32) *Launch {
	l := &Launch{
		Module: b.module, Grid: [3]uint32{grid}, Block: [3]uint32{block},
		Memory: b.memory, Vars: b.vars, Out: &b.out, MaxSteps: 5_000_000,
	}
	for _, f := range b.module.Funcs {
		if f.Kernel && l.Kernel == nil {
			l.Kernel = f
		}
	}
	l.Params = le.AppendUint64(l.Params, bufferAddress)
	return l
}

// run runs the first kernel and fails the test if that fails.
func (b *bench) run(t *testing.T, grid, block uint32) {
	t.Helper()
	if err := Run(t.Context(), b.launch(grid, block)); err != nil {
		t.Fatal(err)
	}
}

// fault runs the first kernel, which must fail.
func (b *bench) fault(t *testing.T, grid, block uint32) *Fault {
	t.Helper()
	err := Run(t.Context(), b.launch(grid, block))
	var f *Fault
	if !errors.As(err, &f) {
		t.Fatalf("got error %v, want a fault", err)
	}
	return f
}

func (b *bench) words() []uint32 {
	v := make([]uint32, len(b.buffer)/4)
	for i := range v {
		v[i] = le.Uint32(b.buffer[4*i:])
	}
	return v
}

// kernel wraps instructions: %p is the buffer, %t the thread's index in its
// block, %g in the grid, %at the address of the thread's own word.
func kernel(declarations, body string) string {
	return `target "sm_90"
kernel @k {
  param $out 8 align 8 at 0
  reg pred %q %q1 %q2
  reg b32 %t %g %n %b %x %y %z %v %i
  reg b64 %p %at %o %d %e
  reg b16 %h
` + declarations + `
entry:
  %p = ld.param.u64 [$out]
  %t = mov.u32 tid.x
  %n = mov.u32 ntid.x
  %b = mov.u32 ctaid.x
  %g = mad.lo.u32 %b, %n, %t
  %o = mul.wide.u32 %g, 4
  %at = add.u64 %p, %o
` + strings.TrimPrefix(body, "\n") + `}
`
}

func TestEveryThreadRuns(t *testing.T) {
	b := newBench(t, 4*300, kernel("", `
  %x = mul.lo.u32 %g, %g
  st.global.u32 [%at], %x
  exit
`))
	b.run(t, 3, 100)
	for i, got := range b.words() {
		if want := uint32(i * i); got != want {
			t.Errorf("thread %d: got %d, want %d", i, got, want)
		}
	}
}
