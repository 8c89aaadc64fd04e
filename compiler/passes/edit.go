// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package passes

import (
	"fmt"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// editor adds registers, variables and blocks to a function, with names that it
// doesn't have yet.
type editor struct {
	f     *ir.Func
	taken map[string]bool // with the sigils of the text form
	next  map[string]int
}

func edit(f *ir.Func) *editor {
	e := &editor{f: f, taken: map[string]bool{}, next: map[string]int{}}
	for _, r := range f.Regs {
		e.taken["%"+r.Name] = true
	}
	for _, v := range f.Vars {
		e.taken["$"+v.Name] = true
	}
	for _, p := range f.Params {
		e.taken["$"+p.Name] = true
	}
	for _, p := range f.Results {
		e.taken["$"+p.Name] = true
	}
	for _, b := range f.Blocks {
		e.taken[":"+b.Name] = true
	}
	return e
}

func (e *editor) name(sigil, want string) string {
	name := want
	for e.taken[sigil+name] {
		e.next[sigil+want]++
		name = fmt.Sprintf("%s.%d", want, e.next[sigil+want])
	}
	e.taken[sigil+name] = true
	return name
}

func (e *editor) reg(name string, t ir.Type) ir.Reg {
	e.f.Regs = append(e.f.Regs, ir.RegInfo{Name: e.name("%", name), Type: t})
	return ir.Reg(len(e.f.Regs) - 1)
}

func (e *editor) local(name string, size, align int64) *ir.Var {
	v := &ir.Var{Name: e.name("$", name), Space: ir.Local, Size: size, Align: align}
	e.f.Vars = append(e.f.Vars, v)
	return v
}

// block makes a block, which the caller puts among the function's.
func (e *editor) block(name string) *ir.Block {
	return &ir.Block{Name: e.name(":", name)}
}

// emit adds an instruction without a guard.
func emit(b *ir.Block, in ir.Instr) {
	in.Guard = ir.NoReg
	b.Instrs = append(b.Instrs, &in)
}

func branch(b *ir.Block, to *ir.Block, at ir.Pos) {
	emit(b, ir.Instr{Op: ir.Br, Targets: []*ir.Block{to}, Pos: at})
}

func addressOf(v *ir.Var) ir.Operand {
	return ir.Operand{Kind: ir.VarOperand, Var: v, Reg: ir.NoReg}
}

// copier clones instructions into another function.
type copier struct {
	regs   []ir.Reg
	blocks map[*ir.Block]*ir.Block
	vars   map[*ir.Var]*ir.Var
}

// body makes registers and empty blocks for a clone of f in e's function.
func (e *editor) body(f *ir.Func) *copier {
	c := &copier{regs: make([]ir.Reg, len(f.Regs)), blocks: map[*ir.Block]*ir.Block{}, vars: map[*ir.Var]*ir.Var{}}
	for i, r := range f.Regs {
		c.regs[i] = e.reg(r.Name, r.Type)
	}
	for _, b := range f.Blocks {
		c.blocks[b] = e.block(f.Name + "." + b.Name)
	}
	return c
}

func (c *copier) reg(r ir.Reg) ir.Reg {
	if r == ir.NoReg {
		return r
	}
	return c.regs[r]
}

func (c *copier) instr(in *ir.Instr) *ir.Instr {
	n := *in
	n.Guard = c.reg(in.Guard)
	n.Dst = make([]ir.Reg, len(in.Dst))
	for i, r := range in.Dst {
		n.Dst[i] = c.reg(r)
	}
	n.Args = make([]ir.Operand, len(in.Args))
	for i, a := range in.Args {
		if a.Kind == ir.RegOperand {
			a.Reg = c.reg(a.Reg)
		}
		if v := c.vars[a.Var]; v != nil {
			a.Var = v
		}
		n.Args[i] = a
	}
	n.Targets = make([]*ir.Block, len(in.Targets))
	for i, b := range in.Targets {
		n.Targets[i] = c.blocks[b]
	}
	n.CallArgs, n.CallResults = c.list(in.CallArgs), c.list(in.CallResults)
	return &n
}

func (c *copier) list(vars []*ir.Var) []*ir.Var {
	var list []*ir.Var
	for _, v := range vars {
		list = append(list, c.vars[v])
	}
	return list
}

// place is somewhere in local memory.
type place struct {
	base   ir.Operand
	offset int64
}

// moveBytes copies memory of so many bytes, in pieces as the alignment allows.
func (e *editor) moveBytes(b *ir.Block, to, from place, size, align int64, at ir.Pos) {
	for done := int64(0); done < size; {
		piece := min(max(align, 1), 8)
		for piece > size-done {
			piece /= 2
		}
		t := map[int64]ir.Type{1: ir.B8, 2: ir.B16, 4: ir.B32, 8: ir.B64}[piece]
		r := e.reg("copy", t)
		m := ir.Mods{Space: ir.Local}
		emit(b, ir.Instr{Op: ir.Ld, Type: t, Mods: m, Dst: []ir.Reg{r}, Args: []ir.Operand{from.base}, Offset: from.offset + done, Pos: at})
		emit(b, ir.Instr{Op: ir.St, Type: t, Mods: m, Args: []ir.Operand{to.base, ir.R(r)}, Offset: to.offset + done, Pos: at})
		done += piece
	}
}

// splitCalls gives each call a block's last place before its branch: what a call
// comes back to is a block of its own, and a guarded call is branched around.
func splitCalls(f *ir.Func) {
	var e *editor
	for i := 0; i < len(f.Blocks); i++ {
		b := f.Blocks[i]
		for n, in := range b.Instrs {
			if in.Op != ir.Call || in.Guard == ir.NoReg && b.Instrs[n+1].Op == ir.Br && b.Instrs[n+1].Guard == ir.NoReg {
				continue
			}
			if e == nil {
				e = edit(f)
			}
			rest := e.block(b.Name + ".back")
			rest.Instrs = append(rest.Instrs, b.Instrs[n+1:]...)
			added := []*ir.Block{rest}
			b.Instrs = b.Instrs[:n:n]
			calling := b
			if in.Guard != ir.NoReg {
				calling = e.block(b.Name + ".call")
				added = []*ir.Block{calling, rest}
				b.Instrs = append(b.Instrs, &ir.Instr{
					Op: ir.Br, Guard: in.Guard, GuardNot: in.GuardNot, Targets: []*ir.Block{calling, rest}, Pos: in.Pos,
				})
				call := *in
				call.Guard, call.GuardNot = ir.NoReg, false
				in = &call
			}
			calling.Instrs = append(calling.Instrs, in)
			branch(calling, rest, in.Pos)
			f.Blocks = append(f.Blocks[:i+1:i+1], append(added, f.Blocks[i+1:]...)...)
			break
		}
	}
}
