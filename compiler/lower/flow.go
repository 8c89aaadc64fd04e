// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package lower

import (
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ptx"
)

var flowHandlers = map[string]func(*function){
	"bra": (*function).bra, "brx": (*function).brx, "call": (*function).call,
	"ret": (*function).retInstr, "exit": (*function).exit, "trap": (*function).trap,
}

func (f *function) label(o *ptx.Operand) *ir.Block {
	if o.Kind == ptx.Name && o.Suffix == "" && o.Num.Bits == 0 && !o.Not && !o.Neg {
		if sym := f.lookup(o.Name); sym != nil && sym.label != nil {
			return sym.label
		}
	}
	f.failAt(o, "%s is no label that can be reached from here", clip(o.Name))
	return nil
}

func (f *function) bra() {
	f.mods.flag("uni")
	a := f.args(1, 1)
	if to := f.label(&a[0]); to != nil {
		f.end(&ir.Instr{Op: ir.Br, Targets: []*ir.Block{to}})
	}
}

// maxTargets bounds what the branch targets of a function take.
const maxTargets = 1 << 20

func (f *function) brx() {
	f.mods.flag("idx")
	f.mods.flag("uni")
	a := f.args(2, 2)
	if f.err != nil {
		return
	}
	index := f.src(&a[0], ir.U32)
	sym := f.lookup(a[1].Name)
	if sym == nil || sym.targets == nil || sym.targets.Calls {
		f.failAt(&a[1], "%s is no list of branch targets", clip(a[1].Name))
		return
	}
	in := &ir.Instr{Op: ir.Brx, Args: []ir.Operand{index}}
	if f.targets += len(sym.targets.Names); f.targets > maxTargets {
		f.failAt(&a[1], "the function has too many branch targets")
		return
	}
	for _, name := range sym.targets.Names {
		to := f.label(&ptx.Operand{Name: name, Line: sym.targets.Pos.Line, Col: sym.targets.Pos.Col})
		if to == nil {
			return
		}
		in.Targets = append(in.Targets, to)
	}
	f.end(in)
}

func (f *function) retInstr() {
	f.mods.flag("uni")
	f.args(0, 0)
	f.ret()
}

func (f *function) exit() {
	f.args(0, 0)
	f.end(&ir.Instr{Op: ir.Exit})
}

func (f *function) trap() {
	f.args(0, 0)
	f.end(&ir.Instr{Op: ir.Trap})
}

// call passes arguments and results in variables of space Param. Those that the
// program has in registers, or as numbers, get one.
func (f *function) call() {
	f.mods.flag("uni")
	c := f.in.Call
	if c.Callee.Kind != ptx.Name {
		f.failAt(&c.Callee, "a function or a register is expected")
		return
	}
	sym := f.lookup(c.Callee.Name)
	switch {
	case sym == nil:
		f.failAt(&c.Callee, "%s is not declared", clip(c.Callee.Name))
	case sym.fn != nil:
		f.direct(c, sym)
	case sym.reg != nil:
		f.indirectCall(c)
	default:
		f.failAt(&c.Callee, "%s is no function", clip(c.Callee.Name))
	}
}

func (f *function) direct(c *ptx.Call, sym *symbol) {
	in := &ir.Instr{Op: ir.Call, Callee: sym.fn}
	if sym.fn.Kernel {
		f.failAt(&c.Callee, "%s is a kernel: only functions can be called", clip(sym.fn.Name))
		return
	}
	after := f.slots(in, c, sym.decl.Params, sym.decl.Results)
	if f.err != nil {
		return
	}
	switch {
	case sym.defined:
		f.emit(in)
	case systemCalls[sym.fn.Name] != nil:
		if !systemCalls[sym.fn.Name](f, in) {
			f.failAt(&c.Callee, "%s has other parameters", clip(sym.fn.Name))
		}
	default:
		f.nvidiaOnly(clip(sym.fn.Name) + " is in another module")
		return
	}
	after()
}

func (f *function) indirectCall(c *ptx.Call) {
	in := &ir.Instr{Op: ir.Call, Args: []ir.Operand{f.src(&c.Callee, ir.U64)}}
	list := f.lookup(c.Proto)
	switch {
	case f.err != nil:
		return
	case list != nil && list.proto != nil:
		after := f.slots(in, c, list.proto.Params, list.proto.Results)
		f.indirect = append(f.indirect, in)
		f.emit(in)
		after()
	case list != nil && list.targets != nil && list.targets.Calls:
		var of *symbol
		for _, name := range list.targets.Names {
			of = f.globals.names[name]
			if of == nil || of.fn == nil || of.fn.Kernel {
				f.failAt(&c.Callee, "%s is no function", clip(name))
				return
			}
			in.Callees = append(in.Callees, of.fn)
		}
		after := f.slots(in, c, of.decl.Params, of.decl.Results)
		for _, callee := range in.Callees {
			if f.err == nil && (!sameSlots(in.CallArgs, callee.Params) || !sameSlots(in.CallResults, callee.Results)) {
				f.failAt(&c.Callee, "%s has other parameters", clip(callee.Name))
			}
		}
		f.emit(in)
		after()
	default:
		f.failAt(&c.Callee, "a call of a register needs a prototype")
	}
}

// slots sets what in passes and returns. What it returns reads results into
// registers, after the call.
func (f *function) slots(in *ir.Instr, c *ptx.Call, params, results []*ptx.Var) (after func()) {
	if len(c.Args) != len(params) || len(c.Results) != len(results) {
		f.failAt(&c.Callee, "%s has %d parameters and %d results, the call has %d and %d",
			clip(c.Callee.Name), len(params), len(results), len(c.Args), len(c.Results))
		return func() {}
	}
	for i := range c.Args {
		v, t := f.slot(&c.Args[i], params[i])
		if t != ir.NoType {
			f.emit(&ir.Instr{Op: ir.St, Type: t, Mods: ir.Mods{Space: ir.Param}, Args: []ir.Operand{varOperand(v), f.slotValue(&c.Args[i], t)}})
		}
		in.CallArgs = append(in.CallArgs, v)
	}
	var loads []*ir.Instr
	for i := range c.Results {
		v, t := f.slot(&c.Results[i], results[i])
		if t != ir.NoType {
			loads = append(loads, &ir.Instr{Op: ir.Ld, Type: t, Mods: ir.Mods{Space: ir.Param}, Dst: []ir.Reg{f.slotResult(&c.Results[i], t)}, Args: []ir.Operand{varOperand(v)}})
		}
		in.CallResults = append(in.CallResults, v)
	}
	return func() {
		for _, l := range loads {
			f.emit(l)
		}
	}
}

// slot returns the variable that is passed for a parameter: the program's own,
// or a new one with the type in which its value is put there.
func (f *function) slot(o *ptx.Operand, p *ptx.Var) (*ir.Var, ir.Type) {
	size, align := f.layout(p)
	if o.Kind == ptx.Name && o.Suffix == "" && o.Num.Bits == 0 {
		if sym := f.lookup(o.Name); sym != nil && sym.v != nil && sym.v.Space == ir.Param {
			if sym.v.Size != size {
				f.failAt(o, "%s has %d bytes, the parameter has %d", clip(o.Name), sym.v.Size, size)
			}
			return sym.v, ir.NoType
		}
	}
	if len(p.Dims) > 0 || p.Vec != 0 {
		f.failAt(o, "a .param variable is expected")
	}
	v := &ir.Var{Name: f.varNames.unique("slot"), Space: ir.Param, Size: size, Align: align}
	f.f.Vars = append(f.f.Vars, v)
	t := typeOf(p.Type)
	if t == ir.Pred {
		f.failAt(o, "predicates can't be passed")
	}
	return v, t
}

func (f *function) slotValue(o *ptx.Operand, t ir.Type) ir.Operand {
	if o.Kind == ptx.Sink {
		f.failAt(o, "a value is expected")
	}
	return f.wideSrc(o, t)
}

func (f *function) slotResult(o *ptx.Operand, t ir.Type) ir.Reg { return f.wideDst(o, t) }

// systemCalls are functions that CUDA's driver has in the device (CUDA C++
// Programming Guide, "Formatted Output", "Assertion", "Dynamic Global Memory
// Allocation"; PTX interoperability guide, "System Calls"). False: the declared
// parameters are others.
var systemCalls = map[string]func(*function, *ir.Instr) bool{
	"vprintf": func(f *function, in *ir.Instr) bool {
		return f.systemCall(ir.Printf, in, []ir.Type{ir.U64, ir.U64}, []ir.Type{ir.U32})
	},
	"__assertfail": func(f *function, in *ir.Instr) bool {
		return f.systemCall(ir.Assertfail, in, []ir.Type{ir.U64, ir.U64, ir.U32, ir.U64, ir.U64}, nil)
	},
	"malloc": func(f *function, in *ir.Instr) bool {
		return f.systemCall(ir.Malloc, in, []ir.Type{ir.U64}, []ir.Type{ir.U64})
	},
	"free": func(f *function, in *ir.Instr) bool {
		return f.systemCall(ir.Free, in, []ir.Type{ir.U64}, nil)
	},
}

func (f *function) systemCall(op ir.Op, in *ir.Instr, params, results []ir.Type) bool {
	fits := func(vars []*ir.Var, types []ir.Type) bool {
		if len(vars) != len(types) {
			return false
		}
		for i, t := range types {
			if vars[i].Size != int64(t.Size()) {
				return false
			}
		}
		return true
	}
	if !fits(in.CallArgs, params) || !fits(in.CallResults, results) {
		return false
	}
	call := &ir.Instr{Op: op}
	for i, t := range params {
		r := f.temp(t)
		f.emit(&ir.Instr{Op: ir.Ld, Type: t, Mods: ir.Mods{Space: ir.Param}, Dst: []ir.Reg{r}, Args: []ir.Operand{varOperand(in.CallArgs[i])}})
		call.Args = append(call.Args, ir.R(r))
	}
	for _, t := range results {
		call.Dst = append(call.Dst, f.temp(t))
	}
	f.emit(call)
	for i, t := range results {
		f.emit(&ir.Instr{Op: ir.St, Type: t, Mods: ir.Mods{Space: ir.Param}, Args: []ir.Operand{varOperand(in.CallResults[i]), ir.R(call.Dst[i])}})
	}
	return true
}
