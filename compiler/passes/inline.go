// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package passes

import (
	"slices"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// maxInlined is how many instructions a function may have that is inlined, and
// how many inlining may make of one. Other calls use the stack.
const maxInlined = 30_000

// inline puts the body of every function that calls nothing else, or only such
// functions, in place of its calls. What is recursive, calls through a pointer,
// or would grow too large, stays.
func inline(m *ir.Module) error {
	flat := map[*ir.Func]bool{}
	for _, f := range callOrder(m) {
		size, calls := 0, 0
		for _, b := range f.Blocks {
			size += len(b.Instrs)
			for _, in := range b.Instrs {
				if in.Op == ir.Call && in.Callee != nil && flat[in.Callee] {
					size += instrCount(in.Callee)
				} else if in.Op == ir.Call {
					calls++
				}
			}
		}
		if size > maxInlined {
			continue
		}
		inlineInto(f, flat)
		flat[f] = calls == 0 && len(f.Blocks) > 0
	}
	return nil
}

func instrCount(f *ir.Func) int {
	n := 0
	for _, b := range f.Blocks {
		n += len(b.Instrs)
	}
	return n
}

// callOrder returns the functions, each behind those that it calls where that is
// possible. Those that take part in a recursion, or lead to one, come last.
func callOrder(m *ir.Module) []*ir.Func {
	callers := map[*ir.Func][]*ir.Func{}
	open := map[*ir.Func]int{}
	for _, f := range m.Funcs {
		seen := map[*ir.Func]bool{}
		for _, b := range f.Blocks {
			for _, in := range b.Instrs {
				if g := in.Callee; g != nil && !seen[g] {
					seen[g] = true
					callers[g] = append(callers[g], f)
					open[f]++
				}
			}
		}
	}
	var order []*ir.Func
	for _, f := range m.Funcs {
		if open[f] == 0 {
			order = append(order, f)
		}
	}
	for i := 0; i < len(order); i++ {
		for _, caller := range callers[order[i]] {
			if open[caller]--; open[caller] == 0 {
				order = append(order, caller)
			}
		}
	}
	for _, f := range m.Funcs {
		if open[f] > 0 {
			order = append(order, f)
		}
	}
	return order
}

func inlineInto(f *ir.Func, flat map[*ir.Func]bool) {
	hasCall := func(in *ir.Instr) bool { return in.Op == ir.Call && in.Callee != nil && flat[in.Callee] }
	if !slices.ContainsFunc(f.Blocks, func(b *ir.Block) bool { return slices.ContainsFunc(b.Instrs, hasCall) }) {
		localSlots(f) // of printf and the like
		return
	}
	splitCalls(f)
	e := edit(f)
	var blocks []*ir.Block
	for _, b := range f.Blocks {
		blocks = append(blocks, b)
		last := len(b.Instrs) - 2
		if last < 0 || !hasCall(b.Instrs[last]) {
			continue
		}
		call, back := b.Instrs[last], b.Succs()[0]
		b.Instrs = b.Instrs[:last]
		blocks = append(blocks, e.paste(b, call, back)...)
	}
	f.Blocks = blocks
	localSlots(f)
}

// paste continues block b with the body of what it calls, up to back.
func (e *editor) paste(b *ir.Block, call *ir.Instr, back *ir.Block) []*ir.Block {
	g := call.Callee
	c := e.body(g)
	grows := usesAlloca(g)
	saved := ir.NoReg
	if grows {
		saved = e.reg("stack", ir.B64)
		emit(b, ir.Instr{Op: ir.StackSave, Dst: []ir.Reg{saved}, Pos: call.Pos})
	}
	for _, v := range g.Vars {
		n := e.local(v.Name, v.Size, v.Align)
		n.Space = v.Space
		c.vars[v] = n
	}
	for i, p := range g.Params {
		from := call.CallArgs[i]
		c.vars[&p.Var] = from
		if changes(g, &p.Var) || slices.Contains(call.CallResults, from) {
			own := e.local(p.Name, p.Size, p.Align)
			c.vars[&p.Var] = own
			e.moveBytes(b, place{base: addressOf(own)}, place{base: addressOf(from)}, p.Size, min(p.Align, from.Align), call.Pos)
		}
	}
	for i, r := range g.Results {
		c.vars[&r.Var] = call.CallResults[i]
	}
	branch(b, c.blocks[g.Blocks[0]], call.Pos)
	var blocks []*ir.Block
	for _, from := range g.Blocks {
		to := c.blocks[from]
		for _, in := range from.Instrs {
			n := c.instr(in)
			ownParams(n)
			if n.Op == ir.Ret {
				if grows {
					emit(to, ir.Instr{Op: ir.StackRestore, Args: []ir.Operand{ir.R(saved)}, Pos: n.Pos})
				}
				n = &ir.Instr{Op: ir.Br, Guard: ir.NoReg, Targets: []*ir.Block{back}, Pos: n.Pos}
			}
			to.Instrs = append(to.Instrs, n)
		}
		blocks = append(blocks, to)
	}
	return blocks
}

// changes tells whether a function may change its parameter.
func changes(f *ir.Func, v *ir.Var) bool {
	for _, b := range f.Blocks {
		for _, in := range b.Instrs {
			for i := range in.Args {
				if in.Args[i].Var == v && in.Op != ir.Ld {
					return true
				}
			}
			if slices.Contains(in.CallResults, v) {
				return true
			}
		}
	}
	return false
}

func usesAlloca(f *ir.Func) bool {
	return slices.ContainsFunc(f.Blocks, func(b *ir.Block) bool {
		return slices.ContainsFunc(b.Instrs, func(in *ir.Instr) bool { return in.Op == ir.Alloca })
	})
}

// ownParams makes local memory of what an instruction of a device function has
// in param: that is what its parameters, and those of its calls, become.
func ownParams(in *ir.Instr) {
	if in.Mods.Space == ir.Param {
		in.Mods.Space = ir.Local
		in.Text = ""
	}
}

// localSlots makes local variables of what a function passed to calls that are
// no more.
func localSlots(f *ir.Func) {
	passed := map[*ir.Var]bool{}
	for _, b := range f.Blocks {
		for _, in := range b.Instrs {
			for _, v := range slices.Concat(in.CallArgs, in.CallResults) {
				passed[v] = true
			}
		}
	}
	own := map[*ir.Var]bool{}
	for _, v := range f.Vars {
		if v.Space == ir.Param && !passed[v] {
			v.Space = ir.Local
		}
		own[v] = true
	}
	for _, b := range f.Blocks {
		for _, in := range b.Instrs {
			if len(in.Args) == 0 || in.Args[0].Kind != ir.VarOperand || !own[in.Args[0].Var] || in.Mods.Space == in.Args[0].Var.Space {
				continue
			}
			if in.Op.Address() || in.Op == ir.Cvta {
				in.Mods.Space, in.Text = in.Args[0].Var.Space, ""
			}
		}
	}
}
