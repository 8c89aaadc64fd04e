// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package passes

import "github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"

// phases finds loads from shared memory that are the same for all threads: those
// from one address that nobody writes to between the barriers around them. That
// is how threads hear of what one of them decided: a flag that ends a loop, the
// row of a pivot.
type phases struct {
	u     *Uniformity
	bases []base
	// writes that can be executed behind a barrier, before the next one; the
	// entry is a barrier too.
	writes map[*ir.Instr][]*ir.Instr
}

// base is the shared variable that an address is in. An address stays within its
// variable: what goes beyond is an error in the program.
type base struct {
	v   *ir.Var
	any bool
}

func (b base) join(o base) base {
	switch {
	case o == (base{}) || b == o:
		return b
	case b == (base{}):
		return o
	}
	return base{any: true}
}

func newPhases(u *Uniformity) *phases {
	p := &phases{u: u, bases: make([]base, len(u.cfg.Func.Regs))}
	for changed := true; changed; {
		changed = false
		for _, b := range u.cfg.Blocks {
			for _, in := range b.Instrs {
				of := p.result(in)
				for _, r := range in.Dst {
					if r == ir.NoReg {
						continue
					}
					if joined := p.bases[r].join(of); joined != p.bases[r] {
						p.bases[r], changed = joined, true
					}
				}
			}
		}
	}
	return p
}

func (p *phases) operand(a *ir.Operand) base {
	switch {
	case a.Kind == ir.RegOperand:
		return p.bases[a.Reg]
	case a.Kind == ir.VarOperand && a.Var.Space == ir.Shared:
		return base{v: a.Var}
	}
	return base{}
}

// result returns what the address that an instruction makes is in.
func (p *phases) result(in *ir.Instr) base {
	var of base
	for i := range in.Args {
		of = of.join(p.operand(&in.Args[i]))
	}
	switch in.Op {
	case ir.Mov, ir.Add, ir.Sub, ir.Selp, ir.Cvt, ir.Cvta, ir.CvtaTo:
		return of
	case ir.Mad:
		return p.operand(&in.Args[2])
	case ir.Ld, ir.Atom, ir.Shfl, ir.Call:
		return base{any: true}
	case ir.Mul, ir.Mul24, ir.Shl, ir.Div, ir.Rem:
		return base{} // an index: no address is made of these
	}
	if of == (base{}) {
		return of
	}
	return base{any: true}
}

// forget begins a new round: barriers may have been taken back.
func (p *phases) forget() { p.writes = map[*ir.Instr][]*ir.Instr{} }

// same tells whether a load in a block that all threads execute together, from an
// address that is the same for all, gives all the same.
func (p *phases) same(b, i int) bool {
	in := p.u.cfg.Blocks[b].Instrs[i]
	if in.Op != ir.Ld || in.Mods.Space != ir.Shared {
		return false
	}
	clean := true
	p.back(b, i, func(b, i int) {
		for _, w := range p.behind(b, i) {
			clean = clean && !p.overlap(in, w)
		}
	})
	return clean
}

// barrier tells of one where all threads meet.
func (p *phases) barrier(b int, in *ir.Instr) bool {
	return in.Op == ir.Bar && WholeBlock(in) && !p.u.blocks[b]
}

// back calls found with each barrier that can be the last before instruction i of
// block b; -1 of block 0 is the entry.
func (p *phases) back(b, i int, found func(b, i int)) {
	seen := make([]bool, len(p.u.cfg.Blocks))
	todo := [][2]int{{b, i - 1}}
	for len(todo) > 0 {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		b, i := at[0], at[1]
		for i >= 0 && !p.barrier(b, p.u.cfg.Blocks[b].Instrs[i]) {
			i--
		}
		if i >= 0 || b == 0 {
			found(b, i)
			continue
		}
		for _, from := range p.u.cfg.Preds[b] {
			if !seen[from] {
				seen[from] = true
				todo = append(todo, [2]int{from, len(p.u.cfg.Blocks[from].Instrs) - 1})
			}
		}
	}
}

// behind returns the writes to shared memory that come behind instruction i of
// block b, a barrier, and before the next one.
func (p *phases) behind(b, i int) []*ir.Instr {
	key := p.u.cfg.Blocks[0].Instrs[0]
	if i >= 0 {
		key = p.u.cfg.Blocks[b].Instrs[i]
	}
	if writes, there := p.writes[key]; there {
		return writes
	}
	var writes []*ir.Instr
	seen := make([]bool, len(p.u.cfg.Blocks))
	todo := [][2]int{{b, i + 1}}
	for len(todo) > 0 {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		b, i := at[0], at[1]
		instrs := p.u.cfg.Blocks[b].Instrs
		for i < len(instrs) && !p.barrier(b, instrs[i]) {
			if writesShared(instrs[i]) {
				writes = append(writes, instrs[i])
			}
			i++
		}
		if i < len(instrs) {
			continue
		}
		for _, to := range p.u.cfg.Succs[b] {
			if !seen[to] {
				seen[to] = true
				todo = append(todo, [2]int{to, 0})
			}
		}
	}
	p.writes[key] = writes
	return writes
}

// writesShared tells of what can change shared memory.
func writesShared(in *ir.Instr) bool {
	switch in.Op {
	case ir.St, ir.Atom, ir.Red, ir.WmmaStore, ir.Stmatrix:
		return in.Mods.Space == ir.Shared || in.Mods.Space == ir.Generic
	case ir.CpAsync, ir.Call, ir.MbarInit, ir.MbarInval, ir.MbarArrive, ir.MbarArriveDrop, ir.MbarExpect, ir.MbarTest, ir.MbarTry:
		return true
	}
	return false
}

// overlap tells whether a write can be to what a load reads.
func (p *phases) overlap(load, write *ir.Instr) bool {
	if write.Op == ir.Call || write.Mods.Space == ir.Generic {
		return true
	}
	a, b := p.operand(&load.Args[0]), p.operand(&write.Args[0])
	dynamic := func(v *ir.Var) bool { return v.Extern || v.Size == 0 }
	switch {
	case a.v == nil || b.v == nil || dynamic(a.v) && dynamic(b.v):
		return true
	case a.v != b.v:
		return false
	}
	from, n, ok := span(load)
	to, m, ok2 := span(write)
	return !ok || !ok2 || from < to+m && to < from+n
}

// span returns which bytes of a variable are accessed, where that is known.
func span(in *ir.Instr) (offset, size int64, known bool) {
	if in.Op != ir.Ld && in.Op != ir.St || in.Args[0].Kind != ir.VarOperand {
		return 0, 0, false
	}
	return in.Offset + int64(in.Args[0].Imm), int64(in.Type.Size() * max(int(in.Mods.Vec), 1)), true
}
