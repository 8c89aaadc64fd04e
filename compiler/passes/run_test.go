// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package passes_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/corpus"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/interp"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/lower"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/passes"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/pause"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ptx"
)

// Where a case's memory is.
const (
	varsAt = 0x2000_0000_0000
	dataAt = 0x2100_0000_0000
)

// TestSameResults: what the interpreter gets from a program as it came it gets
// from what Prepare made of it as well, without a pause and with many.
func TestSameResults(t *testing.T) {
	for _, c := range corpus.All() {
		t.Run(c.Name, func(t *testing.T) {
			first := run(t, c, false, false)
			for _, paused := range []bool{false, true} {
				again := run(t, corpus.Get(c.Name), true, paused)
				for i, b := range c.Buffers {
					if err := b.Compare(again.memory[i], first.memory[i]); err != nil {
						t.Errorf("paused %v: %s: %v", paused, b.Name, err)
					}
				}
				if !slices.Equal(again.lines, first.lines) {
					t.Errorf("paused %v: printed %q, before %q", paused, again.lines, first.lines)
				}
			}
		})
	}
}

// result is what a case leaves in its buffers, and the lines that it prints,
// sorted.
type result struct {
	memory [][]byte
	lines  []string
}

func run(t *testing.T, c *corpus.Case, prepared, paused bool) result {
	t.Helper()
	m := lowered(t, c.File)
	if prepared {
		if err := passes.Prepare(m); err != nil {
			t.Fatal(err)
		}
	}
	memory := &interp.Memory{}
	vars, err := memory.Load(m, varsAt)
	if err != nil {
		t.Fatal(err)
	}
	place(t, c, memory, vars)
	var out bytes.Buffer
	r := rand.New(rand.NewPCG(7, 8))
	for i := range c.Launches {
		l := &c.Launches[i]
		launch := &interp.Launch{
			Module: m, Kernel: m.Func(l.Kernel), Grid: l.Grid, Block: l.Block, DynamicShared: l.Shared,
			Params: l.Params(), Vars: vars, Memory: memory, Out: &out, MaxSteps: 1 << 30,
		}
		if paused {
			launch.Plan = pause.New(m, launch.Kernel)
			launch.Pause = func(uint32, int) bool { return r.IntN(6) == 0 }
		}
		untilDone(t, launch)
	}
	left := result{lines: strings.Split(out.String(), "\n")}
	slices.Sort(left.lines)
	for _, b := range c.Buffers {
		left.memory = append(left.memory, memory.At(b.Addr, len(b.Want)))
	}
	return left
}

func lowered(t *testing.T, file string) *ir.Module {
	t.Helper()
	text, err := corpus.PTX(file)
	if err != nil {
		t.Fatal(err)
	}
	source, err := ptx.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	m, err := lower.Lower(source)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// place gives the buffers their places, and what is in them.
func place(t *testing.T, c *corpus.Case, memory *interp.Memory, vars map[*ir.Var]uint64) {
	t.Helper()
	for _, b := range c.Buffers {
		for v, at := range vars {
			if b.Var && v.Name == b.Name {
				b.Addr = at
			}
		}
	}
	c.Place(dataAt)
	for _, b := range c.Buffers {
		if b.Var {
			copy(memory.At(b.Addr, len(b.Want)), b.Init)
		} else if err := memory.Map(b.Addr, slices.Clone(b.Init)); err != nil {
			t.Fatal(err)
		}
	}
}

// untilDone launches until no block is paused.
func untilDone(t *testing.T, l *interp.Launch) {
	t.Helper()
	volume := func(d [3]uint32) int64 { return int64(max(d[0], 1)) * int64(max(d[1], 1)) * int64(max(d[2], 1)) }
	blocks := volume(l.Grid)
	if l.Plan != nil {
		// What nobody has saved may be anything.
		l.State = bytes.Repeat([]byte{0xdb}, int(l.Plan.StateBytes(blocks, volume(l.Block), int64(l.DynamicShared))))
		clear(l.State[:l.Plan.StatusBytes(blocks)])
	}
	done := bytes.Repeat([]byte{0xff}, int(4*blocks))
	for round := 0; ; round++ {
		if err := interp.Run(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		if l.Plan == nil || bytes.Equal(l.State[:4*blocks], done) {
			return
		}
		if round == 200 {
			l.Pause = nil // on to the end
		}
	}
}
