// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package passes

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// walk takes n branches from a block, as r says, and returns the blocks.
func walk(b *ir.Block, r *rand.Rand, n int) []*ir.Block {
	var path []*ir.Block
	for range n {
		path = append(path, b)
		succs := b.Succs()
		if len(succs) == 0 {
			return path
		}
		b = succs[r.IntN(len(succs))]
	}
	return path
}

// TestPeelKeepsEveryPath: from each block of random control flows, the peeled
// function takes the same ways, is reducible, and is no larger than it may be.
func TestPeelKeepsEveryPath(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	peeled, deep := 0, 0
	for range 3000 {
		f := randomFunc(r)
		for _, b := range f.Blocks {
			b.Instrs = append([]*ir.Instr{{Op: ir.Bar, Guard: ir.NoReg, Args: []ir.Operand{ir.Imm(0)}}}, b.Instrs...)
		}
		c := NewCFG(f)
		loops := c.Loops(c.Dominators())
		for n, b := range c.Blocks {
			for _, index := range []int{-1, 0} {
				p, err := Peel(f, b, index, "f__r1")
				if err != nil {
					if !errors.Is(err, ErrIrreducible) || len(loops.Irreducible) == 0 {
						t.Fatalf("%s\nblock %s: %v", f, b.Name, err)
					}
					continue
				}
				peeled++
				around := loops.Around(n)
				if len(around) > 1 {
					deep++
				}
				if len(p.Func.Blocks) > 2+(len(around)+1)*len(c.Blocks) {
					t.Fatalf("%s\nblock %s: %d blocks", f, b.Name, len(p.Func.Blocks))
				}
				p.Func.Kernel = true
				if err := ir.Verify(&ir.Module{Funcs: []*ir.Func{p.Func}}); err != nil {
					t.Fatal(err)
				}
				samePaths(t, f, b, index, p)
			}
		}
	}
	if peeled < 10000 || deep < 500 {
		t.Errorf("only %d points, %d of them in loops in loops", peeled, deep)
	}
}

func samePaths(t *testing.T, f *ir.Func, b *ir.Block, index int, p *Peeled) {
	t.Helper()
	for seed := range uint64(8) {
		want := walk(b, rand.New(rand.NewPCG(seed, 0)), 40)
		first := p.Func.Blocks[0]
		if index < 0 {
			first = first.Succs()[0]
		}
		got := walk(first, rand.New(rand.NewPCG(seed, 0)), 40)
		for i := range max(len(got), len(want)) {
			if i >= len(got) || i >= len(want) || p.Origin[got[i]] != want[i] || i > 0 && len(got[i].Instrs) != len(want[i].Instrs) {
				t.Fatalf("%s\nfrom block %s, %d, another way in\n%s", f, b.Name, index, p.Func)
			}
		}
	}
}

func TestPeelRefuses(t *testing.T) {
	m := parse(t, "kernel @k {\n  reg pred %p\nentry:\n  @%p br a, b\na:\n  br b\nb:\n  @%p br a, end\nend:\n  exit\nlost:\n  br end\n}\n")
	f := m.Funcs[0]
	if _, err := Peel(f, f.Blocks[0], -1, "x"); !errors.Is(err, ErrIrreducible) {
		t.Errorf("irreducible: %v", err)
	}
	// Where it begins in that loop, this has one place where it is entered.
	if _, err := Peel(f, f.Blocks[2], -1, "x"); err != nil {
		t.Error(err)
	}
	if _, err := Peel(f, f.Blocks[3], -1, "x"); err != nil {
		t.Error(err)
	}
	if _, err := Peel(f, f.Blocks[4], -1, "x"); err == nil {
		t.Error("a block that nothing reaches was peeled")
	}
	if _, err := Peel(f, f.Blocks[3], 0, "x"); err == nil {
		t.Error("behind a block's last instruction there is nothing")
	}
}
