// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package passes

import (
	"math/bits"
	"slices"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// RegSet is a set of registers.
type RegSet []uint64

func newRegSet(n int) RegSet { return make(RegSet, (n+63)/64) }

// Has tells whether r is in the set.
func (s RegSet) Has(r ir.Reg) bool { return s[r>>6]>>(r&63)&1 != 0 }

// Add puts r into the set. NoReg is none.
func (s RegSet) Add(r ir.Reg) {
	if r != ir.NoReg {
		s[r>>6] |= 1 << (r & 63)
	}
}

// Remove takes r out of the set.
func (s RegSet) Remove(r ir.Reg) {
	if r != ir.NoReg {
		s[r>>6] &^= 1 << (r & 63)
	}
}

// union adds o, and tells whether that changed anything.
func (s RegSet) union(o RegSet) bool {
	changed := false
	for i, w := range o {
		if w&^s[i] != 0 {
			s[i] |= w
			changed = true
		}
	}
	return changed
}

// Regs returns the registers in the set, in order.
func (s RegSet) Regs() []ir.Reg {
	var regs []ir.Reg
	for i, w := range s {
		for ; w != 0; w &= w - 1 {
			regs = append(regs, ir.Reg(i*64+bits.TrailingZeros64(w)))
		}
	}
	return regs
}

// Liveness has the registers whose values are read later.
type Liveness struct {
	cfg *CFG
	// In and Out of each block, at its beginning and behind its last instruction.
	In, Out []RegSet
}

// maxLive bounds the memory that Liveness takes: so many registers, in so many
// blocks, are 128 MiB of bits, twice.
const maxLive = 1 << 30

// TooLarge tells of a function whose live registers nobody should ask for.
func TooLarge(f *ir.Func) bool { return len(f.Blocks)*len(f.Regs) > maxLive }

// Liveness finds the live registers. A guarded write doesn't end a life: where
// the guard doesn't hold the old value stays.
func (c *CFG) Liveness() *Liveness {
	n := len(c.Blocks)
	regs := len(c.Func.Regs)
	l := &Liveness{cfg: c, In: make([]RegSet, n), Out: make([]RegSet, n)}
	for b := range n {
		l.In[b], l.Out[b] = newRegSet(regs), newRegSet(regs)
	}
	waiting := make([]bool, n)
	todo := make([]int, 0, n)
	for b := range n {
		todo, waiting[b] = append(todo, b), true
	}
	now := newRegSet(regs)
	succs, preds := c.onward()
	for len(todo) > 0 {
		b := todo[len(todo)-1]
		todo, waiting[b] = todo[:len(todo)-1], false
		for _, s := range succs[b] {
			l.Out[b].union(l.In[s])
		}
		copy(now, l.Out[b])
		instrs := c.Blocks[b].Instrs
		for _, in := range slices.Backward(instrs) {
			step(now, in)
		}
		if !l.In[b].union(now) {
			continue
		}
		for _, p := range preds[b] {
			if !waiting[p] {
				todo, waiting[p] = append(todo, p), true
			}
		}
	}
	return l
}

// onward returns where each block leads to, and from where. Threads that gather come
// to blocks that send them on to another one of theirs, and do nothing else there:
// of what these blocks lead to otherwise they need nothing.
func (c *CFG) onward() (succs, preds [][]int) {
	succs, preds = slices.Clone(c.Succs), make([][]int, len(c.Blocks))
	for b := range succs {
		if Gathering(c.Blocks[b]) {
			succs[b] = nil
			for _, s := range c.Succs[b] {
				next := slices.DeleteFunc(slices.Clone(c.Succs[s]), func(n int) bool { return !Gathering(c.Blocks[n]) })
				if len(next) == 0 {
					next = []int{s}
				}
				succs[b] = append(succs[b], next...)
			}
		}
		for _, s := range succs[b] {
			preds[s] = append(preds[s], b)
		}
	}
	return succs, preds
}

// step goes from behind an instruction to before it.
func step(live RegSet, in *ir.Instr) {
	if in.Guard == ir.NoReg {
		for _, r := range in.Dst {
			live.Remove(r)
		}
	}
	EachUse(in, live.Add)
}

// EachUse calls use with every register that an instruction reads. A guarded
// write is no use: it doesn't need the old value, it only leaves it.
func EachUse(in *ir.Instr, use func(ir.Reg)) {
	if in.Guard != ir.NoReg {
		use(in.Guard)
	}
	for i := range in.Args {
		if in.Args[i].Kind == ir.RegOperand {
			use(in.Args[i].Reg)
		}
	}
}

// After returns what is live behind instruction i of a block.
func (l *Liveness) After(b, i int) RegSet {
	live := append(RegSet(nil), l.Out[b]...)
	instrs := l.cfg.Blocks[b].Instrs
	for _, in := range slices.Backward(instrs[i+1:]) {
		step(live, in)
	}
	return live
}
