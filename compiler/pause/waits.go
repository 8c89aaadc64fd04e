// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package pause

import (
	"slices"
	"strings"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/passes"
)

// waits finds where a block waits for another one: what goes round until what it
// reads in global memory has changed. Cooperative groups' grid barrier does, and a
// lock. It returns the read, what to call it, and whether no pause point is on the
// way round.
//
// Where there is one, much less is taken for waiting already: any branch that a
// read decides on. That costs no pause, and what is overlooked would wait for ever.
func (p *planner) waits() (in *ir.Instr, what string, blind bool) {
	w := &waits{planner: p, pointers: passes.FindPointers(p.module, p.Func), of: passes.Spaces(ir.Global)}
	heads := w.heads()
	if len(heads) == 0 {
		return nil, "", false
	}
	w.index()
	for _, c := range w.cycles(heads) {
		round := w.without(c.blocks)
		if in, what := w.polls(round, c.part, w.leaves(round)); in != nil {
			return in, what, true
		}
		if in == nil && len(round) < len(c.blocks) {
			in, what = w.polls(c.blocks, false, w.branches(c.blocks))
		}
	}
	return in, what, false
}

// waits is the search for them.
type waits struct {
	*planner
	pointers *passes.Pointers
	of       passes.SpaceSet // the memory that others write
	// written has the instructions that write a register, and stores those that
	// write what another one of the same block of threads can read.
	written map[ir.Reg][]place
	stores  []place
}

// place is an instruction and the block that it is in.
type place struct {
	block int
	in    *ir.Instr
}

// cycle is a set of blocks that go round.
type cycle map[int]bool

// heads are the blocks with reads of memory that may be of what others write.
func (w *waits) heads() []int {
	var heads []int
	for b, block := range w.cfg.Blocks {
		if slices.ContainsFunc(block.Instrs, func(in *ir.Instr) bool { return w.reads(in) }) {
			heads = append(heads, b)
		}
	}
	return heads
}

func (w *waits) reads(in *ir.Instr) bool {
	if in.Op != ir.Ld && in.Op != ir.Atom || strings.HasPrefix(in.Text, "ld.global.nc") {
		return false
	}
	return w.pointers.Accesses(in).Has(w.of)
}

// index fills in what is written where.
func (w *waits) index() {
	w.written = map[ir.Reg][]place{}
	for b, block := range w.cfg.Blocks {
		for _, in := range block.Instrs {
			for _, r := range in.Dst {
				if r != ir.NoReg {
					w.written[r] = append(w.written[r], place{b, in})
				}
			}
			if w.private(in) && in.Op != ir.Ld {
				w.stores = append(w.stores, place{b, in})
			}
		}
	}
}

// private tells of an access to memory that a block of threads has for itself.
func (w *waits) private(in *ir.Instr) bool {
	switch in.Op {
	case ir.Ld, ir.St, ir.Atom, ir.Red:
		return w.pointers.Accesses(in).Has(passes.Spaces(ir.Shared, ir.Local, ir.Param))
	case ir.Stmatrix, ir.WmmaStore, ir.CpAsync:
		return true
	}
	return false
}

// round is a way round: a set of blocks. It is a part of a loop if that has other
// ways round, by other latches: a compiler may make one of a loop that waits and
// the one around it.
type round struct {
	blocks cycle
	part   bool
}

// cycles are the loops, and what is irreducible, around some blocks.
func (w *waits) cycles(heads []int) []round {
	var rounds []round
	seen := map[*passes.Loop]bool{}
	for _, b := range heads {
		for _, loop := range w.loops.Around(b) {
			if seen[loop] {
				continue
			}
			seen[loop] = true
			rounds = append(rounds, round{blocks: setOf(loop.Blocks())})
			for _, latch := range loop.Latches {
				if len(loop.Latches) > 1 {
					rounds = append(rounds, round{w.back(loop.Header, latch), true})
				}
			}
		}
	}
	if len(w.loops.Irreducible) > 0 {
		for _, component := range w.cfg.Components() {
			if len(component) > 1 {
				rounds = append(rounds, round{blocks: setOf(component)})
			}
		}
	}
	return rounds
}

func setOf(blocks []int) cycle {
	c := make(cycle, len(blocks))
	for _, b := range blocks {
		c[b] = true
	}
	return c
}

// back returns the blocks from a header to one of its latches.
func (w *waits) back(header, latch int) cycle {
	c := cycle{header: true}
	for todo := []int{latch}; len(todo) > 0; {
		b := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if !c[b] {
			c[b] = true
			todo = append(todo, w.cfg.Preds[b]...)
		}
	}
	return c
}

// without returns what is left to go round of a cycle without the blocks that
// have a pause point in them.
func (w *waits) without(c cycle) cycle {
	left := make(cycle, len(c))
	for b := range c {
		left[b] = true
	}
	for i := range w.Points {
		delete(left, w.cfg.Number[w.Points[i].Block])
	}
	if len(left) == len(c) {
		return left
	}
	// What has no way on or no way there goes round no more.
	var todo []int
	for b := range left {
		todo = append(todo, b)
	}
	inside := func(b int) bool { return left[b] }
	for len(todo) > 0 {
		b := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if !left[b] || slices.ContainsFunc(w.cfg.Succs[b], inside) && slices.ContainsFunc(w.cfg.Preds[b], inside) {
			continue
		}
		delete(left, b)
		todo = append(append(todo, w.cfg.Succs[b]...), w.cfg.Preds[b]...)
	}
	return left
}

// leaves are the blocks, in order, from which branches lead out of a cycle.
func (w *waits) leaves(c cycle) []int {
	return slices.DeleteFunc(w.branches(c), func(b int) bool {
		return !slices.ContainsFunc(w.cfg.Succs[b], func(s int) bool { return !c[s] })
	})
}

// branches are a cycle's blocks that lead to several.
func (w *waits) branches(c cycle) []int {
	var branches []int
	for b := range w.cfg.Blocks {
		if c[b] && len(w.cfg.Succs[b]) > 1 {
			branches = append(branches, b)
		}
	}
	return branches
}

// polls follows what decides over branches in a cycle back to a read, always the
// same one if the cycle is a part of a loop only: through registers, through memory
// that the block has for itself, and through the branches that decide what is
// executed.
func (w *waits) polls(c cycle, same bool, branches []int) (*ir.Instr, string) {
	f := &follower{waits: w, cycle: c, same: same, regs: map[ir.Reg]bool{}, blocks: map[int]bool{}}
	for b := range c {
		f.fenced = f.fenced || slices.ContainsFunc(w.cfg.Blocks[b].Instrs, orders)
	}
	for _, b := range branches {
		f.uses(w.cfg.Blocks[b].Term())
		f.decided(b)
	}
	for len(f.todo) > 0 && f.found == nil {
		at := f.todo[len(f.todo)-1]
		f.todo = f.todo[:len(f.todo)-1]
		f.visit(at)
	}
	return f.found, f.what
}

// orders tells of what keeps a compiler from reading weakly once for all rounds.
func orders(in *ir.Instr) bool { return in.Op == ir.Fence || in.Op == ir.Bar }

// follower goes back from decisions.
type follower struct {
	*waits
	cycle  cycle
	same   bool // reads of one address only
	fenced bool // a weak load is done in each round
	regs   map[ir.Reg]bool
	blocks map[int]bool // what decides over them is followed
	memory bool         // so are the stores
	todo   []place
	found  *ir.Instr
	what   string
}

func (f *follower) uses(in *ir.Instr) {
	passes.EachUse(in, func(r ir.Reg) {
		if f.regs[r] {
			return
		}
		f.regs[r] = true
		f.add(f.written[r])
	})
}

func (f *follower) add(places []place) {
	for _, at := range places {
		if f.cycle[at.block] {
			f.todo = append(f.todo, at)
		}
	}
}

// decided follows the branches that decide over a block.
func (f *follower) decided(b int) {
	if f.blocks[b] {
		return
	}
	f.blocks[b] = true
	for _, d := range f.uniform.Deciders(b) {
		if f.cycle[d] {
			f.uses(f.cfg.Blocks[d].Term())
			f.decided(d)
		}
	}
}

func (f *follower) visit(at place) {
	if what := f.polling(at.in); what != "" {
		f.found, f.what = at.in, what
		return
	}
	f.uses(at.in)
	f.decided(at.block)
	if (at.in.Op == ir.Ld || at.in.Op == ir.Atom) && f.private(at.in) && !f.memory {
		f.memory = true
		f.add(f.stores)
	}
}

// polling tells of a read of global memory that makes sense in a loop only if
// somebody else writes there, and says what is read. "": it is none. Weak loads
// are none if the compiler may read once. Atomic operations are none that change
// what they find: a counter that hands out work, or a compare-and-swap that
// tries again with the value that it found.
func (f *follower) polling(in *ir.Instr) string {
	switch {
	case !f.reads(in), f.same && !f.fixed(&in.Args[0]):
	case in.Op == ir.Ld && (in.Mods.Volatile || in.Mods.Order != ir.Weak || f.fenced):
		return "what it loads from global memory"
	case in.Op == ir.Atom && f.keepsTrying(in):
		return "what it finds in global memory with atom." + atomNames[in.Mods.Atom]
	}
	return ""
}

var atomNames = map[ir.AtomOp]string{
	ir.AtomAdd: "add", ir.AtomAnd: "and", ir.AtomOr: "or", ir.AtomXor: "xor", ir.AtomExch: "exch",
	ir.AtomCas: "cas", ir.AtomMin: "min", ir.AtomMax: "max", ir.AtomInc: "inc", ir.AtomDec: "dec",
}

// keepsTrying tells of an atomic operation that does the same in every round.
func (f *follower) keepsTrying(in *ir.Instr) bool {
	a := &in.Args[1]
	switch in.Mods.Atom {
	case ir.AtomCas, ir.AtomExch, ir.AtomMin, ir.AtomMax, ir.AtomAnd, ir.AtomOr:
		return f.fixed(a)
	case ir.AtomAdd, ir.AtomXor:
		return a.Kind == ir.ImmOperand && a.Imm == 0
	}
	return false
}

// fixed tells of an operand that is the same in each round: it comes from outside
// of the cycle, or is a constant, whichever way that is copied: also through memory
// that is named the same way (compilers that don't optimize do that).
func (f *follower) fixed(a *ir.Operand) bool {
	seen, todo := map[*ir.Instr]bool{}, []place(nil)
	add := func(at place) {
		if f.cycle[at.block] && !seen[at.in] {
			seen[at.in] = true
			todo = append(todo, at)
		}
	}
	use := func(r ir.Reg) {
		for _, at := range f.written[r] {
			add(at)
		}
	}
	if a.Kind == ir.RegOperand {
		use(a.Reg)
	}
	for len(todo) > 0 {
		in := todo[len(todo)-1].in
		todo = todo[:len(todo)-1]
		switch in.Op {
		case ir.Mov, ir.Cvt, ir.Cvta, ir.CvtaTo:
			passes.EachUse(in, use)
		case ir.Ld:
			if !f.private(in) || f.reads(in) {
				return false
			}
			for _, at := range f.stores {
				if at.in.Op == ir.St && at.in.Args[0] == in.Args[0] && at.in.Offset == in.Offset {
					add(at)
				}
			}
		case ir.St:
			for i := range in.Args[1:] {
				if in.Args[1+i].Kind == ir.RegOperand {
					use(in.Args[1+i].Reg)
				}
			}
		default:
			return false
		}
	}
	return true
}
