// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package lower

import (
	"slices"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ptx"
)

var memoryHandlers = map[string]func(*function){
	"ld": (*function).load, "ldu": (*function).load, "st": (*function).store,
	"atom": (*function).atom, "red": (*function).atom,
	"cvta": (*function).cvta, "isspacep": (*function).isspacep,
	"prefetch": (*function).prefetch, "prefetchu": (*function).prefetch, "applypriority": (*function).prefetch, "discard": (*function).prefetch,
	"createpolicy": (*function).createPolicy,
	"membar":       (*function).membar, "fence": (*function).fence,
	"alloca": (*function).alloca, "stacksave": (*function).stackSave, "stackrestore": (*function).stackRestore,
	"cp": (*function).cp, "mbarrier": (*function).mbarrier,
}

// ordering takes what says how an access is ordered with others.
func (f *function) ordering() ir.Mods {
	var m ir.Mods
	m.Volatile = f.mods.flag("volatile")
	if f.mods.flag("mmio") {
		m.Volatile = true
	}
	m.Order, _ = pick(&f.mods, orders)
	m.Scope, _ = pick(&f.mods, scopes)
	return m
}

var cacheOps = map[string]bool{"ca": true, "cg": true, "cs": true, "lu": true, "cv": true, "wb": true, "wt": true, "nc": true}

// access takes the modifiers that ld and st share, and the number of operands
// that stand behind the others.
func (f *function) access() (m ir.Mods, vec, policy int) {
	m = f.ordering()
	m.Space = f.space()
	for _, word := pick(&f.mods, cacheOps); word != ""; _, word = pick(&f.mods, cacheOps) {
	}
	if f.hints() {
		policy = 1
	}
	if vec = f.vecMod(); vec > 1 {
		m.Vec = uint8(vec)
	}
	return m, vec, policy
}

func (f *function) load() {
	m, vec, policy := f.access()
	t := f.typeFor(ir.Ld)
	a := f.args(2+policy, 2+policy)
	if f.err != nil {
		return
	}
	if m.Order != ir.Weak && m.Order != ir.Relaxed && m.Order != ir.Acquire {
		f.fail(f.in.Pos, "%s is not possible", clip(f.in.Opcode()))
	}
	in := &ir.Instr{Op: ir.Ld, Type: t}
	var at ir.Operand
	at, in.Offset, m.Space = f.addr(&a[1], m.Space)
	in.Mods, in.Args = m, []ir.Operand{at}
	to := f.vector(&a[0], vec)
	for i := range to {
		in.Dst = append(in.Dst, f.wideDst(&to[i], t))
	}
	f.emit(in)
}

func (f *function) store() {
	m, vec, policy := f.access()
	t := f.typeFor(ir.St)
	a := f.args(2+policy, 2+policy)
	if f.err != nil {
		return
	}
	if m.Order != ir.Weak && m.Order != ir.Relaxed && m.Order != ir.Release || m.Space == ir.Const {
		f.fail(f.in.Pos, "%s is not possible", clip(f.in.Opcode()))
	}
	in := &ir.Instr{Op: ir.St, Type: t}
	var at ir.Operand
	at, in.Offset, m.Space = f.addr(&a[0], m.Space)
	in.Mods, in.Args = m, []ir.Operand{at}
	from := f.vector(&a[1], vec)
	for i := range from {
		in.Args = append(in.Args, f.wideSrc(&from[i], t))
	}
	f.emit(in)
}

var atomOps = map[string]ir.AtomOp{
	"add": ir.AtomAdd, "and": ir.AtomAnd, "or": ir.AtomOr, "xor": ir.AtomXor, "exch": ir.AtomExch, "cas": ir.AtomCas,
	"min": ir.AtomMin, "max": ir.AtomMax, "inc": ir.AtomInc, "dec": ir.AtomDec,
}

// atomTypes are what the operations can work on (PTX ISA, atom).
var atomTypes = map[ir.AtomOp][]ir.Type{
	ir.AtomAdd:  {ir.U32, ir.S32, ir.U64, ir.S64, ir.F16, ir.F16x2, ir.BF16, ir.BF16x2, ir.F32, ir.F64},
	ir.AtomAnd:  {ir.B32, ir.B64},
	ir.AtomOr:   {ir.B32, ir.B64},
	ir.AtomXor:  {ir.B32, ir.B64},
	ir.AtomExch: {ir.B32, ir.B64, ir.B128, ir.U32, ir.U64, ir.S32, ir.S64, ir.F32, ir.F64},
	ir.AtomCas:  {ir.B16, ir.B32, ir.B64, ir.B128, ir.U32, ir.U64, ir.S32, ir.S64},
	ir.AtomMin:  {ir.U32, ir.S32, ir.U64, ir.S64, ir.F16, ir.F16x2, ir.BF16, ir.BF16x2},
	ir.AtomMax:  {ir.U32, ir.S32, ir.U64, ir.S64, ir.F16, ir.F16x2, ir.BF16, ir.BF16x2},
	ir.AtomInc:  {ir.U32},
	ir.AtomDec:  {ir.U32},
}

// atom lowers atom and red. The elements of a vector are independent of one
// another, so it becomes several.
func (f *function) atom() {
	m := f.ordering()
	if m.Order == ir.Weak {
		m.Order = ir.Relaxed
	}
	if m.Scope == ir.NoScope {
		m.Scope = ir.GPU
	}
	m.Space = f.space()
	var word string
	m.Atom, word = pick(&f.mods, atomOps)
	if word == "" || m.Volatile || m.Order == ir.SC {
		f.fail(f.in.Pos, "%s is no operation", clip(f.in.Opcode()))
	}
	f.mods.flag("noftz")
	policy := 0
	if f.hints() {
		policy = 1
	}
	vec := f.vecMod()
	t := f.typ()
	if f.err == nil && !slices.Contains(atomTypes[m.Atom], t) {
		f.fail(f.in.Pos, "%s can't have the type .%s", clip(f.in.Opcode()), t)
	}
	result, values := 1, 1
	op := ir.Atom
	if f.in.Op == "red" {
		result, op = 0, ir.Red
	}
	if m.Atom == ir.AtomCas {
		values = 2
	}
	if op == ir.Red && (m.Atom == ir.AtomCas || m.Atom == ir.AtomExch) {
		f.fail(f.in.Pos, "%s is no reduction", clip(f.in.Opcode()))
	}
	n := result + 1 + values + policy
	a := f.args(n, n)
	if f.err != nil {
		return
	}
	at, offset, space := f.addr(&a[result], m.Space)
	m.Space = space
	var dst []ptx.Operand
	if result == 1 {
		dst = f.vector(&a[0], vec)
	}
	operands := make([][]ptx.Operand, values)
	for i := range operands {
		operands[i] = f.vector(&a[result+1+i], vec)
	}
	for i := range vec {
		in := &ir.Instr{Op: op, Type: t, Mods: m, Args: []ir.Operand{at}, Offset: offset + int64(i*t.Size())}
		for _, o := range operands {
			in.Args = append(in.Args, f.src(&o[i], t))
		}
		if result == 1 {
			in.Dst = []ir.Reg{f.dst(&dst[i], t)}
		}
		f.emit(in)
	}
}

func (f *function) cvta() {
	to := f.mods.flag("to")
	m := ir.Mods{Space: f.space()}
	t := f.typ()
	if f.err == nil && (m.Space == ir.Generic || t != ir.U64) {
		f.fail(f.in.Pos, "%s is not possible", clip(f.in.Opcode()))
	}
	a := f.args(2, 2)
	op := ir.Cvta
	if to {
		op = ir.CvtaTo
	}
	f.emit(&ir.Instr{Op: op, Mods: m, Dst: []ir.Reg{f.dst(&a[0], ir.U64)}, Args: []ir.Operand{f.src(&a[1], ir.U64)}})
}

func (f *function) isspacep() {
	m := ir.Mods{Space: f.space()}
	if m.Space == ir.Generic {
		f.fail(f.in.Pos, "isspacep lacks a state space")
	}
	a := f.args(2, 2)
	f.emit(&ir.Instr{Op: ir.Isspacep, Mods: m, Dst: []ir.Reg{f.dst(&a[0], ir.Pred)}, Args: []ir.Operand{f.src(&a[1], ir.U64)}})
}

// prefetch lowers what says that an address will be used, or not any more.
func (f *function) prefetch() {
	f.mods.flag("tensormap")
	space := f.space()
	for _, level := range []string{"L1", "L2"} {
		f.mods.flag(level)
	}
	f.hints()
	a := f.args(1, 2)
	if len(f.in.Args) == 2 && a[1].Kind != ptx.Num {
		f.failAt(&a[1], "a size is expected")
	}
	at, offset, space := f.addr(&a[0], space)
	f.emit(&ir.Instr{Op: ir.Prefetch, Mods: ir.Mods{Space: space}, Args: []ir.Operand{at}, Offset: offset})
}

// createPolicy makes a policy for caches, which nothing here reads.
func (f *function) createPolicy() {
	for _, word := range []string{"fractional", "range", "cvt", "L2", "global"} {
		f.mods.flag(word)
	}
	f.hints()
	f.mods.flag("b64")
	a := f.args(1, 4)
	f.op(ir.Mov, ir.B64, ir.Mods{}, f.dst(&a[0], ir.B64), ir.Imm(0))
}

func (f *function) membar() {
	f.args(0, 0)
	if f.mods.flag("proxy") {
		f.proxy()
		return
	}
	scope, word := pick(&f.mods, scopes)
	if word == "" {
		f.fail(f.in.Pos, "membar lacks .cta, .gl or .sys")
	}
	f.emit(&ir.Instr{Op: ir.Fence, Mods: ir.Mods{Order: ir.SC, Scope: scope}})
}

func (f *function) fence() {
	if f.mods.flag("proxy") {
		f.args(0, 0)
		f.proxy()
		return
	}
	f.args(0, 0)
	f.mods.flag("mbarrier_init")
	order, word := pick(&f.mods, orders)
	if word == "" {
		order = ir.AcqRel
	}
	scope, word := pick(&f.mods, scopes)
	if word == "" || order == ir.Weak || order == ir.Relaxed {
		f.fail(f.in.Pos, "%s is not possible", clip(f.in.Opcode()))
	}
	f.emit(&ir.Instr{Op: ir.Fence, Mods: ir.Mods{Order: order, Scope: scope}})
}

// proxy lowers fences between ways to memory, of which there is one here.
func (f *function) proxy() {
	_, word := pick(&f.mods, map[string]bool{"alias": true, "async": true, "async::generic": true, "async.global": true})
	if word == "" {
		f.fail(f.in.Pos, "%s is not known", clip(f.in.Opcode()))
	}
	f.mods.flag("global")
	f.mods.flag("shared::cta")
	pick(&f.mods, orders)
	pick(&f.mods, scopes)
	f.emit(&ir.Instr{Op: ir.Fence, Mods: ir.Mods{Order: ir.AcqRel, Scope: ir.CTA}})
}

func (f *function) stackType() ir.Type {
	t := f.typ()
	if f.err == nil && t != ir.U64 && t != ir.B64 {
		f.fail(f.in.Pos, "%s takes .u64", f.in.Op)
	}
	return t
}

func (f *function) alloca() {
	t := f.stackType()
	a := f.args(2, 3)
	if a[2].Kind == ptx.Num && (a[2].Num.Bits > 16 || a[2].Num.Bits&(a[2].Num.Bits-1) != 0) {
		f.failAt(&a[2], "an alignment of at most 16 is expected")
	}
	f.emit(&ir.Instr{Op: ir.Alloca, Dst: []ir.Reg{f.dst(&a[0], t)}, Args: []ir.Operand{f.src(&a[1], t)}})
}

func (f *function) stackSave() {
	t := f.stackType()
	a := f.args(1, 1)
	f.emit(&ir.Instr{Op: ir.StackSave, Dst: []ir.Reg{f.dst(&a[0], t)}})
}

func (f *function) stackRestore() {
	t := f.stackType()
	a := f.args(1, 1)
	f.emit(&ir.Instr{Op: ir.StackRestore, Args: []ir.Operand{f.src(&a[0], t)}})
}
