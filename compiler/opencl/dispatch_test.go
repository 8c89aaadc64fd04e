// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package opencl

import (
	"math/rand/v2"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/passes"
)

// randomFlow is a function of blocks that go on with any others; in some, threads meet.
func randomFlow(r *rand.Rand) *ir.Func {
	f := &ir.Func{}
	for range 3 + r.IntN(12) {
		f.Blocks = append(f.Blocks, &ir.Block{})
	}
	for _, b := range f.Blocks {
		if r.IntN(8) == 0 {
			b.Instrs = append(b.Instrs, &ir.Instr{Op: ir.Bar, Guard: ir.NoReg, Args: []ir.Operand{ir.Imm(0)}})
		}
		end := &ir.Instr{Op: ir.Brx, Guard: ir.NoReg}
		for range r.IntN(4) {
			end.Targets = append(end.Targets, f.Blocks[1+r.IntN(len(f.Blocks)-1)]) // never to the first
		}
		if len(end.Targets) == 0 {
			end.Op = ir.Exit
		}
		b.Instrs = append(b.Instrs, end)
	}
	f.Blocks = passes.NewCFG(f).Blocks // as passes.Prepare leaves it: all can be reached
	return f
}

// reducible tells, by the definition: what is left is one block if blocks are joined
// with their only predecessor, and branches to themselves are left out, as long as
// there are any.
func reducible(f *ir.Func) bool {
	to := map[*ir.Block]map[*ir.Block]bool{}
	for todo := []*ir.Block{f.Blocks[0]}; len(todo) > 0; {
		b := todo[0]
		todo = todo[1:]
		if to[b] != nil {
			continue
		}
		to[b] = map[*ir.Block]bool{}
		for _, s := range b.Succs() {
			to[b][s] = true
			todo = append(todo, s)
		}
	}
	for changed := true; changed; {
		changed = false
		from := map[*ir.Block][]*ir.Block{}
		for b, list := range to {
			delete(list, b)
			for s := range list {
				from[s] = append(from[s], b)
			}
		}
		for b, only := range from {
			if len(only) != 1 || b == f.Blocks[0] {
				continue
			}
			delete(to[only[0]], b)
			for s := range to[b] {
				to[only[0]][s] = true
			}
			delete(to, b)
			changed = true
			break
		}
	}
	return len(to) == 1
}

// TestOneBeginning: with the switch, no loop of what is written has two beginnings,
// whatever the program's control flow is.
func TestOneBeginning(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 22))
	dispatched, before := 0, 0
	for range 3000 {
		f := randomFlow(r)
		for _, mode := range []Mode{Natural, General} {
			e := &emitter{f: f, mode: mode, dispatched: map[*ir.Block]int{}}
			if !reducible(e.written().f) {
				before++
			}
			e.dispatchCycles()
			if len(e.joins) > 0 {
				dispatched++
			}
			if !reducible(e.written().f) {
				t.Fatalf("mode %d: a loop of %d blocks has two beginnings, %d lead over the switch", mode, len(f.Blocks), len(e.joins))
			}
		}
	}
	if dispatched < 1000 || before < 1000 {
		t.Errorf("%d of 6000 needed a switch, %d have one", before, dispatched)
	}
}
