// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package opencl

import (
	"fmt"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// integer is the value of an operation on integers or bits with one result, an
// unsigned expression of the result's size; ok is false if it is no such thing.
func (e *emitter) integer(in *ir.Instr) (x string, ok bool) {
	t := in.Type
	if t == ir.U16x2 || t == ir.S16x2 {
		return e.packed(in), true
	}
	a := func(i int) string { return e.bits(in.Args[i], t) }
	s := func(i int) string { return e.arg(in.Args[i], t) }
	w := func(i int) string { return e.bits(in.Args[i], ir.B32) }
	f := fmt.Sprintf
	switch in.Op {
	case ir.Add:
		if in.Mods.Sat {
			return f("as_uint(add_sat(%s, %s))", s(0), s(1)), true
		}
		return e.narrow(t, a(0)+" + "+a(1)), true
	case ir.Sub:
		if in.Mods.Sat {
			return f("as_uint(sub_sat(%s, %s))", s(0), s(1)), true
		}
		return e.narrow(t, a(0)+" - "+a(1)), true
	case ir.Mul, ir.Mad:
		return e.product(in), true
	case ir.Mul24, ir.Mad24:
		return e.product24(in), true
	case ir.Sad:
		return e.narrow(t, f("%s + (%s > %s ? %s - %s : %s - %s)", a(2), s(0), s(1), a(0), a(1), a(1), a(0))), true
	case ir.Div, ir.Rem:
		return e.divide(in), true
	case ir.Abs:
		return e.narrow(t, f("%s < 0 ? 0 - %s : %s", s(0), a(0), a(0))), true
	case ir.Neg:
		return e.narrow(t, "0 - "+a(0)), true
	case ir.Min, ir.Max:
		x := f("%s(%s, %s)", in.Op, s(0), s(1))
		if in.Mods.Relu {
			x = f("max(%s, (%s)0)", x, stype(t))
		}
		return e.narrow(t, x), true
	case ir.And, ir.Or, ir.Xor:
		return e.narrow(t, a(0)+map[ir.Op]string{ir.And: " & ", ir.Or: " | ", ir.Xor: " ^ "}[in.Op]+a(1)), true
	case ir.Not:
		if t == ir.Pred {
			return "!" + paren(a(0)), true
		}
		return e.narrow(t, "~"+a(0)), true
	case ir.Cnot:
		return e.narrow(t, f("%s == 0 ? 1 : 0", a(0))), true
	case ir.Lop3:
		return f("hg_lop3(%s, %s, %s, %du)", a(0), a(1), a(2), in.Mods.Lut), true
	case ir.Shl, ir.Shr:
		return e.shift(in), true
	case ir.Shf:
		return f("hg_shf(%s, %s, %s, %t, %t)", a(0), a(1), a(2), in.Mods.Left, in.Mods.Wrap), true
	case ir.Popc:
		return f("(uint)popcount(%s)", a(0)), true
	case ir.Clz:
		return f("(uint)clz(%s)", a(0)), true
	case ir.Bfind:
		return f("hg_bfind_%s(%s, %t)", t, s(0), in.Mods.ShiftAmt), true
	case ir.Fns:
		return f("hg_fns(%s, %s, as_int(%s))", w(0), w(1), w(2)), true
	case ir.Brev:
		return f("hg_brev_b%d(%s)", 8*t.Size(), a(0)), true
	case ir.Bfe:
		return f("hg_bfe_%s(%s, %s, %s)", t, a(0), w(1), w(2)), true
	case ir.Bfi:
		return f("hg_bfi_b%d(%s, %s, %s, %s)", 8*t.Size(), a(0), a(1), w(2), w(3)), true
	case ir.Szext:
		return f("hg_szext(%s, %s, %t)", a(0), e.wrapped(w(1), in), t.Signed()), true
	case ir.Bmsk:
		return f("hg_bmsk(%s, %s)", e.wrapped(w(0), in), e.wrapped(w(1), in)), true
	case ir.Dp4a:
		return f("hg_dp4a(%s, %s, %s, %t, %t)", w(0), w(1), w(2), t.Signed(), in.Type2.Signed()), true
	case ir.Dp2a:
		first := 0
		if in.Mods.Half == ir.Hi {
			first = 2
		}
		return f("hg_dp2a(%s, %s, %s, %t, %t, %d)", w(0), w(1), w(2), t.Signed(), in.Type2.Signed(), first), true
	case ir.Prmt:
		if in.Mods.Prmt == ir.PrmtBytes {
			return f("hg_prmt(%s, %s, %s)", w(0), w(1), w(2)), true
		}
		return f("hg_prmt_mode(%s, %s, %s, %d)", w(0), w(1), w(2), in.Mods.Prmt-ir.PrmtF4E), true
	case ir.CvtPack:
		return e.cvtPack(in), true
	}
	return "", false
}

// narrow casts an expression that C computed as an int, or as a signed number.
func (e *emitter) narrow(t ir.Type, x string) string {
	if t == ir.Pred {
		return x
	}
	return fmt.Sprintf("(%s)(%s)", ctype(t), x)
}

// wrapped is a count modulo 32 if the instruction says so.
func (e *emitter) wrapped(x string, in *ir.Instr) string {
	if in.Mods.Wrap {
		return paren(x + " & 31")
	}
	return x
}

// packed does an operation on both halves of a register.
func (e *emitter) packed(in *ir.Instr) string {
	t := ir.U16
	if in.Type == ir.S16x2 {
		t = ir.S16
	}
	half := func(shift int) string {
		a := make([]string, len(in.Args))
		for i, o := range in.Args {
			a[i] = fmt.Sprintf("(ushort)(%s >> %d)", e.bits(o, ir.B32), shift)
			if t.Signed() {
				a[i] = fmt.Sprintf("as_short(%s)", a[i])
			}
		}
		var x string
		switch in.Op {
		case ir.Add:
			x = a[0] + " + " + a[1]
		case ir.Min, ir.Max:
			x = fmt.Sprintf("%s(%s, %s)", in.Op, a[0], a[1])
			if in.Mods.Relu {
				x = fmt.Sprintf("max(%s, (short)0)", x)
			}
		default:
			e.fail("%s of %s", in.Op, in.Type)
		}
		return fmt.Sprintf("(uint)(ushort)(%s)", x)
	}
	return half(0) + " | " + half(16) + " << 16"
}

// product is mul's and mad's value. A wide one is of twice the type's size.
func (e *emitter) product(in *ir.Instr) string {
	t := in.Type
	wide := map[int]ir.Type{2: ir.B32, 4: ir.B64, 8: ir.B128}[t.Size()]
	a, b := e.arg(in.Args[0], t), e.arg(in.Args[1], t)
	var x string
	result := t
	switch {
	case in.Mods.Half == ir.Wide && t.Signed():
		result = wide
		x = fmt.Sprintf("(%s)((%s)%s * (%s)%s)", ctype(wide), stype(wide), a, stype(wide), b)
	case in.Mods.Half == ir.Wide:
		result = wide
		x = fmt.Sprintf("(%s)%s * (%s)%s", ctype(wide), a, ctype(wide), b)
	case in.Mods.Half == ir.Hi && t.Size() == 2:
		x = fmt.Sprintf("(ushort)((uint)((int)%s * (int)%s) >> 16)", a, b)
		if !t.Signed() {
			x = fmt.Sprintf("(ushort)((uint)%s * (uint)%s >> 16)", a, b)
		}
	case in.Mods.Half == ir.Hi:
		x = fmt.Sprintf("(%s)mul_hi(%s, %s)", ctype(t), a, b)
	case t.Size() == 2:
		x = fmt.Sprintf("(ushort)((uint)%s * (uint)%s)", e.bits(in.Args[0], t), e.bits(in.Args[1], t))
	default:
		x = e.bits(in.Args[0], t) + " * " + e.bits(in.Args[1], t)
	}
	if in.Op == ir.Mul {
		return x
	}
	c := e.bits(in.Args[2], result)
	if in.Mods.Sat {
		return fmt.Sprintf("as_uint(add_sat(as_int(%s), as_int(%s)))", x, c)
	}
	return e.narrow(result, x+" + "+c)
}

// product24 multiplies the lower 24 bits.
func (e *emitter) product24(in *ir.Instr) string {
	operand := func(i int) string {
		if in.Type.Signed() {
			return fmt.Sprintf("(long)(as_int(%s << 8) >> 8)", e.bits(in.Args[i], ir.B32))
		}
		return fmt.Sprintf("(ulong)(%s & 0xffffffu)", e.bits(in.Args[i], ir.B32))
	}
	x := fmt.Sprintf("%s * %s", operand(0), operand(1))
	if in.Mods.Half == ir.Hi {
		x = paren(x) + " >> 16"
	}
	x = fmt.Sprintf("(uint)(%s)", x)
	if in.Op == ir.Mul24 {
		return x
	}
	c := e.bits(in.Args[2], ir.B32)
	if in.Mods.Sat {
		return fmt.Sprintf("as_uint(add_sat(as_int(%s), as_int(%s)))", x, c)
	}
	return x + " + " + c
}

func (e *emitter) divide(in *ir.Instr) string {
	t, size := in.Type, 4
	if in.Type.Size() == 8 {
		size = 8
	}
	letter := "u"
	if t.Signed() {
		letter = "s"
	}
	return e.narrow(t, fmt.Sprintf("hg_%s_%s%d(%s, %s)", in.Op, letter, 8*size, e.arg(in.Args[0], t), e.arg(in.Args[1], t)))
}

// shift by 32 bits of count, which is not taken modulo anything.
func (e *emitter) shift(in *ir.Instr) string {
	t, n := in.Type, e.bits(in.Args[1], ir.B32)
	size := max(32, 8*t.Size())
	if in.Op == ir.Shl {
		return e.narrow(t, fmt.Sprintf("hg_shl_b%d(%s, %s)", size, e.bits(in.Args[0], t), n))
	}
	letter := "u"
	if t.Signed() {
		letter = "s"
	}
	return e.narrow(t, fmt.Sprintf("hg_shr_%s%d(%s, %s)", letter, size, e.arg(in.Args[0], t), n))
}

// carried is an addition or subtraction with a carry in or out: statements.
func (e *emitter) carried(in *ir.Instr) {
	t := in.Type
	cin := "0"
	args := in.Args
	if in.Mods.CarryIn {
		cin = e.bits(args[len(args)-1], ir.Pred)
		args = args[:len(args)-1]
	}
	e.open("")
	c := ctype(t)
	x, y := e.bits(args[0], t), e.bits(args[1], t)
	if in.Op == ir.Mad {
		plain := *in
		plain.Op, plain.Args = ir.Mul, args[:2]
		x, y = e.product(&plain), e.bits(args[2], t)
	}
	e.line("%s a = %s, b = %s, c = %s;", c, x, y, cin)
	if in.Op == ir.Sub {
		e.line("%s s = a - b - c;", c)
		if in.Mods.CarryOut && len(in.Dst) > 1 {
			e.set(in.Dst[1], ir.Pred, "a < b || (a == b && c)")
		}
	} else {
		e.line("%s s = a + b + c;", c)
		if in.Mods.CarryOut && len(in.Dst) > 1 {
			e.set(in.Dst[1], ir.Pred, "s < a || (s == a && c)")
		}
	}
	e.set(in.Dst[0], t, "s")
	e.close()
}

// cvtPack converts two numbers with saturation and packs them, over Args[2]'s
// lower part shifted up if the type is below 16 bits.
func (e *emitter) cvtPack(in *ir.Instr) string {
	bits := map[ir.Type]int{ir.U16: 16, ir.S16: 16, ir.U8: 8, ir.S8: 8, ir.U4: 4, ir.S4: 4}[in.Type]
	lo, hi := int64(0), int64(1)<<bits-1
	if in.Type.Signed() {
		lo, hi = -1<<(bits-1), 1<<(bits-1)-1
	}
	part := func(i int) string {
		return fmt.Sprintf("((uint)clamp((long)%s, %dL, %dL) & %#xu)", e.arg(in.Args[i], in.Type2), lo, hi, uint32(1)<<bits-1)
	}
	// PTX: the first operand is the upper one.
	x := fmt.Sprintf("%s << %d | %s", part(0), bits, part(1))
	if len(in.Args) > 2 {
		x += fmt.Sprintf(" | %s << %d", e.bits(in.Args[2], ir.B32), 2*bits)
	}
	return x
}
