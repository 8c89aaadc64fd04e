// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package lower

import (
	"maps"
	"slices"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ptx"
)

// handlers lower instructions, by their opcode's first word.
var handlers map[string]func(*function)

func init() {
	handlers = map[string]func(*function){
		"add": (*function).addSub, "addc": (*function).addSub, "sub": (*function).addSub, "subc": (*function).addSub,
		"mul": (*function).mul, "mad": (*function).mad, "madc": (*function).mad, "fma": (*function).fma,
		"mul24": half24(ir.Mul24, 2), "mad24": half24(ir.Mad24, 3),
		"sad": plain(ir.Sad, 3, ""), "rem": plain(ir.Rem, 2, ""), "cnot": plain(ir.Cnot, 1, ""),
		"and": plain(ir.And, 2, ""), "or": plain(ir.Or, 2, ""), "xor": plain(ir.Xor, 2, ""), "not": plain(ir.Not, 1, ""),
		"abs": plain(ir.Abs, 1, "ftz"), "neg": plain(ir.Neg, 1, "ftz"), "copysign": plain(ir.Copysign, 2, ""),
		"div": (*function).div, "min": minMax(ir.Min), "max": minMax(ir.Max),
		"rcp": rounded(ir.Rcp), "sqrt": rounded(ir.Sqrt),
		"rsqrt": approximate(ir.Rsqrt), "sin": approximate(ir.Sin), "cos": approximate(ir.Cos),
		"lg2": approximate(ir.Lg2), "ex2": approximate(ir.Ex2), "tanh": approximate(ir.Tanh),
		"testp": (*function).testp,
		"shl":   shift(ir.Shl), "shr": shift(ir.Shr), "shf": (*function).shf,
		"popc": count(ir.Popc), "clz": count(ir.Clz), "bfind": count(ir.Bfind), "brev": plain(ir.Brev, 1, ""),
		"fns": (*function).fns, "bfe": (*function).bfe, "bfi": (*function).bfi,
		"szext": wrapping(ir.Szext), "bmsk": wrapping(ir.Bmsk),
		"dp4a": dot(ir.Dp4a), "dp2a": dot(ir.Dp2a), "prmt": (*function).prmt, "lop3": (*function).lop3,
		"set": (*function).set, "setp": (*function).setp, "selp": (*function).selp, "slct": (*function).slct,
		"mov": (*function).mov, "cvt": (*function).cvt,
	}
	for _, more := range []map[string]func(*function){memoryHandlers, threadHandlers, matrixHandlers, flowHandlers} {
		maps.Copy(handlers, more)
	}
}

// op emits an operation with one result.
func (f *function) op(op ir.Op, t ir.Type, m ir.Mods, dst ir.Reg, args ...ir.Operand) {
	f.emit(&ir.Instr{Op: op, Type: t, Mods: m, Dst: []ir.Reg{dst}, Args: args})
}

// sources returns operands that all have type t.
func (f *function) sources(list []ptx.Operand, t ir.Type) []ir.Operand {
	out := make([]ir.Operand, len(list))
	for i := range list {
		out[i] = f.src(&list[i], t)
	}
	return out
}

// plain is an operation whose result and n operands have the one type that it
// names.
func plain(op ir.Op, n int, accept string) func(*function) {
	return func(f *function) {
		t := f.typeFor(op)
		m := f.arithmetic(t, accept)
		a := f.args(n+1, n+1)
		f.op(op, t, m, f.dst(&a[0], t), f.sources(a[1:], t)...)
	}
}

// pairwise takes an f32x2 instruction apart into two of f32.
func (f *function) pairwise(n int, each func(t ir.Type, dst ir.Reg, args []ir.Operand)) {
	a := f.args(n+1, n+1)
	low := make([]ir.Operand, n)
	high := make([]ir.Operand, n)
	for i := range n {
		l, h := f.temp(ir.B32), f.temp(ir.B32)
		f.emit(&ir.Instr{Op: ir.Unpack, Type: ir.B64, Dst: []ir.Reg{l, h}, Args: []ir.Operand{f.src(&a[i+1], ir.B64)}})
		low[i], high[i] = ir.R(l), ir.R(h)
	}
	l, h := f.temp(ir.B32), f.temp(ir.B32)
	each(ir.F32, l, low)
	each(ir.F32, h, high)
	f.op(ir.Pack, ir.B64, ir.Mods{}, f.dst(&a[0], ir.B64), ir.R(l), ir.R(h))
}

// floatMods are the modifiers of an add, sub, mul or fma, which round to nearest
// if they don't say how.
func (f *function) floatMods(t ir.Type) ir.Mods {
	m := f.arithmetic(t, "round ftz sat")
	if t.Float() && m.Round == ir.NoRound {
		m.Round = ir.RN
	}
	return m
}

func (f *function) addSub() {
	op := ir.Add
	if f.in.Op[0] == 's' {
		op = ir.Sub
	}
	if f.mods.flag("f32x2") {
		m := f.floatMods(ir.F32)
		f.pairwise(2, func(t ir.Type, d ir.Reg, args []ir.Operand) { f.op(op, t, m, d, args...) })
		return
	}
	carry := len(f.in.Op) == 4
	out := f.mods.flag("cc")
	t := f.typeFor(op)
	m := f.floatMods(t)
	if m.Sat && !t.Float() && t != ir.S32 || (carry || out) && (t.Float() || t.Size() < 4 || m.Sat) {
		f.fail(f.in.Pos, "%s is not possible", f.in.Opcode())
	}
	if t == ir.F32 {
		if narrow := f.mixed(); narrow != ir.NoType {
			a := f.args(3, 3)
			f.op(op, t, m, f.dst(&a[0], t), f.widened(&a[1], narrow), f.src(&a[2], t))
			return
		}
	}
	a := f.args(3, 3)
	f.carried(&ir.Instr{Op: op, Type: t, Mods: m, Dst: []ir.Reg{f.dst(&a[0], t)}, Args: f.sources(a[1:], t)}, carry, out)
}

// mixed takes the type of a narrower operand, as in add.f32.f16.
func (f *function) mixed() ir.Type {
	t, _ := pick(&f.mods, map[string]ir.Type{"f16": ir.F16, "bf16": ir.BF16})
	return t
}

func (f *function) widened(o *ptx.Operand, narrow ir.Type) ir.Operand {
	r := f.temp(ir.B32)
	f.emit(&ir.Instr{Op: ir.Cvt, Type: ir.F32, Type2: narrow, Dst: []ir.Reg{r}, Args: []ir.Operand{f.src(o, narrow)}})
	return ir.R(r)
}

// carried emits an instruction with the carry flag, which is a predicate here.
func (f *function) carried(in *ir.Instr, carryIn, carryOut bool) {
	if (carryIn || carryOut) && f.carry == ir.NoReg {
		f.carry = f.declareReg("%cc", ir.Pred, 1).regs[0]
	}
	if carryIn {
		in.Mods.CarryIn = true
		in.Args = append(in.Args, ir.R(f.carry))
	}
	if carryOut {
		in.Mods.CarryOut = true
		in.Dst = append(in.Dst, f.carry)
	}
	f.emit(in)
}

// half takes .lo, .hi or .wide of an integer product.
func (f *function) half() ir.Half {
	h, word := pick(&f.mods, halves)
	if word == "" {
		f.fail(f.in.Pos, "%s lacks .lo, .hi or .wide", clip(f.in.Opcode()))
	}
	return h
}

// product is the type of a product of two values of type t.
func (f *function) product(t ir.Type, h ir.Half) ir.Type {
	if h != ir.Wide {
		return t
	}
	wide := map[ir.Type]ir.Type{ir.U16: ir.U32, ir.S16: ir.S32, ir.U32: ir.U64, ir.S32: ir.S64}[t]
	if wide == ir.NoType {
		f.fail(f.in.Pos, "%s is not possible", clip(f.in.Opcode()))
	}
	return wide
}

func (f *function) mul() {
	if f.mods.flag("f32x2") {
		m := f.floatMods(ir.F32)
		f.pairwise(2, func(t ir.Type, d ir.Reg, args []ir.Operand) { f.op(ir.Mul, t, m, d, args...) })
		return
	}
	t := f.typeFor(ir.Mul)
	var m ir.Mods
	result := t
	if t.Float() {
		m = f.floatMods(t)
	} else {
		m.Half = f.half()
		result = f.product(t, m.Half)
	}
	a := f.args(3, 3)
	f.op(ir.Mul, t, m, f.dst(&a[0], result), f.sources(a[1:], t)...)
}

func (f *function) mad() {
	carry := f.in.Op == "madc"
	out := f.mods.flag("cc")
	t := f.typeFor(ir.Mad)
	if t.Float() && !carry && !out {
		f.fused(t, true)
		return
	}
	m := ir.Mods{Half: f.half(), Sat: f.mods.flag("sat")}
	result := f.product(t, m.Half)
	if m.Sat && (t != ir.S32 || m.Half != ir.Hi) || (carry || out) && (t.Size() < 4 || m.Half == ir.Wide || m.Sat || t.Float()) {
		f.fail(f.in.Pos, "%s is not possible", clip(f.in.Opcode()))
	}
	a := f.args(4, 4)
	args := append(f.sources(a[1:3], t), f.src(&a[3], result))
	f.carried(&ir.Instr{Op: ir.Mad, Type: t, Mods: m, Dst: []ir.Reg{f.dst(&a[0], result)}, Args: args}, carry, out)
}

func (f *function) fma() {
	if f.mods.flag("f32x2") {
		m := f.floatMods(ir.F32)
		f.pairwise(3, func(t ir.Type, d ir.Reg, args []ir.Operand) { f.op(ir.Fma, t, m, d, args...) })
		return
	}
	f.fused(f.typeFor(ir.Fma), false)
}

// fused is a multiplication and addition that rounds once, as mad does too on
// every device from sm_20 on.
func (f *function) fused(t ir.Type, mad bool) {
	m := f.arithmetic(t, "round ftz sat relu")
	if m.Round == ir.NoRound {
		f.fail(f.in.Pos, "%s does not say how it rounds", clip(f.in.Opcode()))
	}
	if t == ir.F32 && !mad {
		if narrow := f.mixed(); narrow != ir.NoType {
			a := f.args(4, 4)
			f.op(ir.Fma, t, m, f.dst(&a[0], t), f.widened(&a[1], narrow), f.widened(&a[2], narrow), f.src(&a[3], t))
			return
		}
	}
	a := f.args(4, 4)
	f.op(ir.Fma, t, m, f.dst(&a[0], t), f.sources(a[1:], t)...)
}

func half24(op ir.Op, n int) func(*function) {
	return func(f *function) {
		t := f.typeFor(op)
		m := ir.Mods{Half: f.half()}
		m.Sat = op == ir.Mad24 && f.mods.flag("sat")
		if m.Half == ir.Wide || m.Sat && (m.Half != ir.Hi || t != ir.S32) {
			f.fail(f.in.Pos, "%s is not possible", clip(f.in.Opcode()))
		}
		a := f.args(n+1, n+1)
		f.op(op, t, m, f.dst(&a[0], t), f.sources(a[1:], t)...)
	}
}

func (f *function) div() {
	t := f.typeFor(ir.Div)
	m := f.arithmetic(t, "round ftz approx full")
	f.oneMode(t, m)
	a := f.args(3, 3)
	f.op(ir.Div, t, m, f.dst(&a[0], t), f.sources(a[1:], t)...)
}

// oneMode checks that a floating point operation says how exact it is.
func (f *function) oneMode(t ir.Type, m ir.Mods) {
	n := 0
	for _, set := range []bool{m.Round != ir.NoRound, m.Approx, m.Full} {
		if set {
			n++
		}
	}
	if t.Float() && n != 1 {
		f.fail(f.in.Pos, "%s does not say how it rounds", clip(f.in.Opcode()))
	}
}

func minMax(op ir.Op) func(*function) {
	return func(f *function) {
		t := f.typeFor(op)
		m := f.arithmetic(t, "ftz NaN xorsign relu")
		a := f.args(3, 4)
		if f.err != nil {
			return
		}
		if len(f.in.Args) == 4 && (t != ir.F32 || m.Relu) {
			f.fail(f.in.Pos, "%s has two operands", clip(f.in.Opcode()))
		}
		f.op(op, t, m, f.dst(&a[0], t), f.sources(a[1:len(f.in.Args)], t)...)
	}
}

func rounded(op ir.Op) func(*function) {
	return func(f *function) {
		t := f.typeFor(op)
		m := f.arithmetic(t, "round ftz approx")
		f.oneMode(t, m)
		a := f.args(2, 2)
		f.op(op, t, m, f.dst(&a[0], t), f.src(&a[1], t))
	}
}

func approximate(op ir.Op) func(*function) {
	return func(f *function) {
		t := f.typeFor(op)
		m := f.arithmetic(t, "ftz approx")
		if !m.Approx {
			f.fail(f.in.Pos, "%s lacks .approx", clip(f.in.Opcode()))
		}
		a := f.args(2, 2)
		f.op(op, t, m, f.dst(&a[0], t), f.src(&a[1], t))
	}
}

func (f *function) testp() {
	test, word := pick(&f.mods, map[string]ir.Test{
		"finite": ir.Finite, "infinite": ir.Infinite, "number": ir.Number, "notanumber": ir.NotANumber, "normal": ir.Normal, "subnormal": ir.Subnormal,
	})
	if word == "" {
		f.fail(f.in.Pos, "testp does not say what it tests")
	}
	t := f.typeFor(ir.Testp)
	a := f.args(2, 2)
	f.op(ir.Testp, t, ir.Mods{Test: test}, f.dst(&a[0], ir.Pred), f.src(&a[1], t))
}

func shift(op ir.Op) func(*function) {
	return func(f *function) {
		t := f.typeFor(op)
		a := f.args(3, 3)
		f.op(op, t, ir.Mods{}, f.dst(&a[0], t), f.src(&a[1], t), f.src(&a[2], ir.U32))
	}
}

func (f *function) shf() {
	left, right := f.mods.flag("l"), f.mods.flag("r")
	wrap, clamp := f.mods.flag("wrap"), f.mods.flag("clamp")
	t := f.typeFor(ir.Shf)
	if left == right || wrap == clamp {
		f.fail(f.in.Pos, "%s is not possible", clip(f.in.Opcode()))
	}
	a := f.args(4, 4)
	f.op(ir.Shf, t, ir.Mods{Left: left, Wrap: wrap}, f.dst(&a[0], t), f.sources(a[1:], t)...)
}

// count is an operation with a 32-bit number for a result.
func count(op ir.Op) func(*function) {
	return func(f *function) {
		m := ir.Mods{ShiftAmt: op == ir.Bfind && f.mods.flag("shiftamt")}
		t := f.typeFor(op)
		a := f.args(2, 2)
		f.op(op, t, m, f.dst(&a[0], ir.U32), f.src(&a[1], t))
	}
}

func (f *function) fns() {
	t := f.typeFor(ir.Fns)
	a := f.args(4, 4)
	f.op(ir.Fns, t, ir.Mods{}, f.dst(&a[0], ir.B32), f.src(&a[1], ir.B32), f.src(&a[2], ir.B32), f.src(&a[3], ir.S32))
}

func (f *function) bfe() {
	t := f.typeFor(ir.Bfe)
	a := f.args(4, 4)
	f.op(ir.Bfe, t, ir.Mods{}, f.dst(&a[0], t), f.src(&a[1], t), f.src(&a[2], ir.U32), f.src(&a[3], ir.U32))
}

func (f *function) bfi() {
	t := f.typeFor(ir.Bfi)
	a := f.args(5, 5)
	f.op(ir.Bfi, t, ir.Mods{}, f.dst(&a[0], t), f.src(&a[1], t), f.src(&a[2], t), f.src(&a[3], ir.U32), f.src(&a[4], ir.U32))
}

func wrapping(op ir.Op) func(*function) {
	return func(f *function) {
		wrap, clamp := f.mods.flag("wrap"), f.mods.flag("clamp")
		if wrap == clamp {
			f.fail(f.in.Pos, "%s lacks .clamp or .wrap", clip(f.in.Opcode()))
		}
		t := f.typeFor(op)
		a := f.args(3, 3)
		f.op(op, t, ir.Mods{Wrap: wrap}, f.dst(&a[0], t), f.src(&a[1], t), f.src(&a[2], ir.U32))
	}
}

func dot(op ir.Op) func(*function) {
	return func(f *function) {
		var m ir.Mods
		if op == ir.Dp2a {
			if m.Half = f.half(); m.Half == ir.Wide {
				f.fail(f.in.Pos, "dp2a takes .lo or .hi")
			}
		}
		ta, tb := f.typeFor(op), f.typeFor(op)
		a := f.args(4, 4)
		f.emit(&ir.Instr{Op: op, Type: ta, Type2: tb, Mods: m, Dst: []ir.Reg{f.dst(&a[0], ir.B32)}, Args: f.sources(a[1:], ir.B32)})
	}
}

func (f *function) prmt() {
	mode, _ := pick(&f.mods, map[string]ir.PrmtMode{
		"f4e": ir.PrmtF4E, "b4e": ir.PrmtB4E, "rc8": ir.PrmtRC8, "ecl": ir.PrmtECL, "ecr": ir.PrmtECR, "rc16": ir.PrmtRC16,
	})
	t := f.typeFor(ir.Prmt)
	a := f.args(4, 4)
	f.op(ir.Prmt, t, ir.Mods{Prmt: mode}, f.dst(&a[0], ir.B32), f.sources(a[1:], ir.B32)...)
}

func (f *function) lop3() {
	m := ir.Mods{}
	m.Bool, _ = pick(&f.mods, map[string]ir.BoolOp{"and": ir.BoolAnd, "or": ir.BoolOr})
	t := f.typeFor(ir.Lop3)
	n := 5
	if m.Bool != ir.NoBool {
		n = 6
	}
	a := f.args(n, n)
	if lut := &a[4]; lut.Kind != ptx.Num || lut.Num.Bits > 255 {
		f.failAt(lut, "a table of 8 bits is expected")
	} else {
		m.Lut = uint8(lut.Num.Bits)
	}
	dst := f.pair(&a[0], t)
	args := f.sources(a[1:4], t)
	if m.Bool == ir.NoBool {
		f.emit(&ir.Instr{Op: ir.Lop3, Type: t, Mods: m, Dst: dst[:1], Args: args})
		return
	}
	f.emit(&ir.Instr{Op: ir.Lop3, Type: t, Mods: m, Dst: dst, Args: append(args, f.predicate(&a[5]))})
}

// pair returns the registers of a|b, b being a predicate, or of a with none for b.
func (f *function) pair(o *ptx.Operand, t ir.Type) []ir.Reg {
	if o.Kind == ptx.Pair {
		return []ir.Reg{f.dst(&o.Elems[0], t), f.dst(&o.Elems[1], ir.Pred)}
	}
	return []ir.Reg{f.dst(o, t), ir.NoReg}
}

// compare takes the comparison and the combination with a predicate.
func (f *function) compare() ir.Mods {
	var m ir.Mods
	cmp, word := pick(&f.mods, compares)
	if word == "" {
		f.fail(f.in.Pos, "%s does not say what it compares", clip(f.in.Opcode()))
	}
	m.Cmp = cmp
	m.Bool, _ = pick(&f.mods, boolOps)
	return m
}

// checkCompare finds comparisons that a type doesn't have.
func (f *function) checkCompare(m ir.Mods, t ir.Type) {
	wrong := false
	switch {
	case t.Float():
		wrong = slices.ContainsFunc([]string{"lo", "ls", "hi", "hs"}, f.has)
	case m.Cmp >= ir.EQU:
		wrong = true
	case bits(t):
		wrong = m.Cmp != ir.EQ && m.Cmp != ir.NE
	case t.Signed():
		wrong = slices.ContainsFunc([]string{"lo", "ls", "hi", "hs"}, f.has)
	}
	if wrong {
		f.fail(f.in.Pos, "%s is not possible", clip(f.in.Opcode()))
	}
}

func (f *function) has(word string) bool { return slices.Contains(f.in.Mods, word) }

func (f *function) setp() {
	m := f.compare()
	t := f.typeFor(ir.Setp)
	m.FTZ = f.arithmetic(t, "ftz").FTZ
	f.checkCompare(m, t)
	dst, args := f.compared(m, t, ir.Pred)
	if f.err != nil {
		return
	}
	if f.in.Args[0].Kind != ptx.Pair {
		dst = dst[:1]
	}
	f.emit(&ir.Instr{Op: ir.Setp, Type: t, Mods: m, Dst: dst, Args: args})
}

func (f *function) compared(m ir.Mods, t, result ir.Type) ([]ir.Reg, []ir.Operand) {
	n := 3
	if m.Bool != ir.NoBool {
		n = 4
	}
	a := f.args(n, n)
	dst := f.pair(&a[0], result)
	args := f.sources(a[1:3], t)
	if n == 4 {
		args = append(args, f.predicate(&a[3]))
	}
	return dst, args
}

func (f *function) set() {
	m := f.compare()
	ftz := f.mods.flag("ftz")
	t := f.typeFor(ir.Set)
	t2 := f.typ()
	m.FTZ = ftz
	f.checkCompare(m, t2)
	if f.err == nil && (!ir.Setp.Takes(t2) || ftz && !t2.Float()) {
		f.fail(f.in.Pos, "%s is not possible", clip(f.in.Opcode()))
	}
	dst, args := f.compared(m, t2, t)
	f.emit(&ir.Instr{Op: ir.Set, Type: t, Type2: t2, Mods: m, Dst: dst[:1], Args: args})
}

func (f *function) selp() {
	t := f.typeFor(ir.Selp)
	a := f.args(4, 4)
	f.op(ir.Selp, t, ir.Mods{}, f.dst(&a[0], t), f.src(&a[1], t), f.src(&a[2], t), f.predicate(&a[3]))
}

func (f *function) slct() {
	ftz := f.mods.flag("ftz")
	t := f.typeFor(ir.Slct)
	t2 := f.typ()
	if t2 != ir.S32 && t2 != ir.F32 || ftz && t2 != ir.F32 {
		f.fail(f.in.Pos, "%s is not possible", clip(f.in.Opcode()))
	}
	a := f.args(4, 4)
	f.emit(&ir.Instr{
		Op: ir.Slct, Type: t, Type2: t2, Mods: ir.Mods{FTZ: ftz}, Dst: []ir.Reg{f.dst(&a[0], t)},
		Args: []ir.Operand{f.src(&a[1], t), f.src(&a[2], t), f.src(&a[3], t2)},
	})
}
