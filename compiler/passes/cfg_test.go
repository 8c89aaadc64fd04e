// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package passes

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// randomFunc makes a function with a random control flow.
func randomFunc(r *rand.Rand) *ir.Func {
	f := &ir.Func{Name: "f", Regs: []ir.RegInfo{{Name: "p", Type: ir.Pred}}}
	n := 2 + r.IntN(12)
	for i := range n {
		f.Blocks = append(f.Blocks, &ir.Block{Name: fmt.Sprintf("b%d", i)})
	}
	for _, b := range f.Blocks {
		in := &ir.Instr{Op: ir.Ret, Guard: ir.NoReg}
		target := func() *ir.Block { return f.Blocks[1+r.IntN(n-1)] }
		switch r.IntN(5) {
		case 0:
		case 1, 2:
			in.Op, in.Targets = ir.Br, []*ir.Block{target()}
		default:
			in.Op, in.Guard, in.Targets = ir.Br, 0, []*ir.Block{target(), target()}
		}
		b.Instrs = []*ir.Instr{in}
	}
	return f
}

// reaches tells whether to can be reached from a block without passing a third.
func reaches(c *CFG, from, to, without int) bool {
	seen := make([]bool, len(c.Blocks))
	todo := []int{from}
	for len(todo) > 0 {
		b := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if b == without || seen[b] {
			continue
		}
		if b == to {
			return true
		}
		seen[b] = true
		todo = append(todo, c.Succs[b]...)
	}
	return false
}

// TestDominatorsByDefinition compares with what the words mean, on random graphs.
func TestDominatorsByDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		c := NewCFG(randomFunc(r))
		dom, post := c.Dominators(), c.PostDominators()
		var ends []int
		for b, succs := range c.Succs {
			if len(succs) == 0 {
				ends = append(ends, b)
			}
		}
		// What never ends counts as if it could.
		ended := slices.Clone(ends)
		for b := range c.Blocks {
			if !slices.ContainsFunc(ended, func(e int) bool { return reaches(c, b, e, -1) }) {
				ends = append(ends, b)
			}
		}
		for a := range c.Blocks {
			for b := range c.Blocks {
				if want := a == b || !reaches(c, 0, b, a); dom.Dominates(a, b) != want {
					t.Fatalf("%s\n%d dominates %d: %v", c.Func, a, b, !want)
				}
				toEnd := func(without int) bool {
					return slices.ContainsFunc(ends, func(e int) bool { return reaches(c, b, e, without) })
				}
				if slices.Contains(ends[len(ended):], a) {
					continue // where in it, nobody says
				}
				if want := a == b || !toEnd(a); post.Dominates(a, b) != want {
					t.Fatalf("%s\n%d post-dominates %d: %v", c.Func, a, b, !want)
				}
			}
		}
	}
}

// TestLoopsByDefinition: a loop has its header, and what comes to a latch without
// passing that; another one's parent is the smallest around it.
func TestLoopsByDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 4))
	nested := 0
	for range 3000 {
		c := NewCFG(randomFunc(r))
		dom := c.Dominators()
		loops := c.Loops(dom)
		var headers []int
		for h := range c.Blocks {
			if slices.ContainsFunc(c.Preds[h], func(p int) bool { return dom.Dominates(h, p) }) {
				headers = append(headers, h)
			}
		}
		if len(headers) != len(loops.All) {
			t.Fatalf("%s\n%d loops, want headers %v", c.Func, len(loops.All), headers)
		}
		for i, l := range loops.All {
			var blocks []int
			for b := range c.Blocks {
				if b == l.Header || slices.ContainsFunc(l.Latches, func(latch int) bool { return reaches(c, b, latch, l.Header) }) {
					blocks = append(blocks, b)
				}
				if l.Contains(b) != slices.Contains(l.Blocks(), b) {
					t.Fatalf("%s\nloop %d, block %d", c.Func, l.Header, b)
				}
			}
			if l.Header != headers[i] || !slices.Equal(l.Blocks(), blocks) {
				t.Fatalf("%s\nloop %d: %v, want %v", c.Func, l.Header, l.Blocks(), blocks)
			}
			var parent *Loop
			for _, o := range loops.All {
				if o != l && o.Contains(l.Header) && (parent == nil || len(o.Blocks()) < len(parent.Blocks())) {
					parent = o
				}
			}
			if l.Parent != parent {
				t.Fatalf("%s\nloop %d: parent %v, want %v", c.Func, l.Header, l.Parent, parent)
			}
			if parent != nil {
				nested++
			}
		}
	}
	if nested < 300 {
		t.Errorf("only %d loops in loops", nested)
	}
}

// TestLoopsAreAllCycles: without what is irreducible, every block that can come
// again is in a loop, and no other.
func TestLoopsAreAllCycles(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	reducible := 0
	for range 2000 {
		c := NewCFG(randomFunc(r))
		loops := c.Loops(c.Dominators())
		if len(loops.Irreducible) > 0 {
			continue
		}
		reducible++
		cycles := c.Cycles()
		for b := range c.Blocks {
			again := slices.ContainsFunc(c.Succs[b], func(s int) bool { return reaches(c, s, b, -1) })
			if again != cycles[b] || again != (loops.Innermost[b] != nil) {
				t.Fatalf("%s\nblock %d: again %v, cycle %v, loop %v", c.Func, b, again, cycles[b], loops.Innermost[b])
			}
		}
		for _, l := range loops.All {
			if l.Parent != nil && !l.Parent.Contains(l.Header) {
				t.Fatalf("%s\na loop at %d not inside its parent", c.Func, l.Header)
			}
		}
	}
	if reducible < 200 {
		t.Errorf("only %d graphs were reducible", reducible)
	}
}
