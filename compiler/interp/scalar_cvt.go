// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package interp

import "github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"

// buildCvt is for every pair of types that PTX converts.
func buildCvt(in *ir.Instr) scalar {
	to, from := in.Type, in.Type2
	switch to {
	case ir.F16x2, ir.BF16x2, ir.E4M3x2, ir.E5M2x2:
		return packedCvt(in)
	case ir.TF32:
		return toTF32(in)
	}
	f, g := formatOf(from), formatOf(to)
	switch {
	case from.Float() && f == nil || to.Float() && g == nil:
		return nil
	case f != nil && g != nil:
		return floatToFloat(in, f, g)
	case f != nil:
		return floatToInt(in, f)
	case g != nil:
		return clamped(in, g, intToFloat(in, g))
	}
	return intToInt(in)
}

func intToInt(in *ir.Instr) scalar {
	read, m := value(in.Type2), ones(in.Type)
	if in.Mods.Sat {
		lo, hi := limits(in.Type)
		negative := in.Type2.Signed()
		return func(a, _, _, _ uint64) uint64 {
			x := read(a)
			switch {
			case negative && int64(x) < 0:
				return uint64(max(int64(x), lo)) & m
			case x > hi:
				return hi
			}
			return x
		}
	}
	return func(a, _, _, _ uint64) uint64 { return read(a) & m }
}

// limits are the smallest and the largest integer of a type.
func limits(t ir.Type) (lo int64, hi uint64) {
	m := ones(t)
	if t.Signed() {
		return -int64(m>>1) - 1, m >> 1
	}
	return 0, m
}

func intToFloat(in *ir.Instr, g *format) scalar {
	read, r, negative := value(in.Type2), in.Mods.Round, in.Type2.Signed()
	return func(a, _, _, _ uint64) uint64 {
		n := number{sig: wide{0, read(a)}}
		if negative && int64(n.sig.lo) < 0 {
			n.neg, n.sig.lo = true, -n.sig.lo
		}
		return g.round(n, false, r)
	}
}

// floatToInt clamps to the range of the integer. NaN becomes 0; if one of both
// types has 64 bits, the integer's highest bit (ISA 9.7.9.22).
func floatToInt(in *ir.Instr, f *format) scalar {
	m, r := ones(in.Type), in.Mods.Round
	if r == ir.NoRound {
		r = ir.RZI
	}
	lo, hi := limits(in.Type)
	var nan uint64
	if in.Type2 == ir.F64 || in.Type.Size() == 8 {
		nan = m ^ m>>1
	}
	read := ones(in.Type2)
	return func(a, _, _, _ uint64) uint64 {
		a &= read
		if in.Mods.FTZ {
			a = f.flush(a)
		}
		if f.isNaN(a) {
			return nan
		}
		n := number{neg: a&f.sign() != 0}
		var x uint64
		ok := false
		if !f.isInf(a) {
			n = f.open(a)
			x, _, ok = n.integer(r)
		}
		if n.neg {
			if !ok || x > -uint64(lo) {
				x = -uint64(lo)
			}
			return -x & m
		}
		if !ok || x > hi {
			return hi
		}
		return x
	}
}

func floatToFloat(in *ir.Instr, f, g *format) scalar {
	r, m := in.Mods.Round, ones(in.Type2)
	s := func(a, _, _, _ uint64) uint64 { return f.convert(a&m, g, r) }
	switch {
	case f == g && (r == ir.RNI || r == ir.RZI || r == ir.RMI || r == ir.RPI):
		s = func(a, _, _, _ uint64) uint64 { return f.integral(a&m, r) }
	case f == g:
		s = truncated(in.Type)
	case f == binary32 && g == binary64:
		s = func(a, _, _, _ uint64) uint64 {
			x := float64(f32(a))
			if x != x {
				return g.canonical()
			}
			return bits64(x)
		}
	}
	if in.Mods.FTZ { // of single precision only, on both sides
		exact := s
		s = func(a, _, _, _ uint64) uint64 {
			if f == binary32 {
				a = f.flush(a & m)
			}
			a = exact(a, 0, 0, 0)
			if g == binary32 {
				a = g.flush(a)
			}
			return a
		}
	}
	return clamped(in, g, s)
}

// toTF32 leaves the 13 bits that tf32 has not as zeroes.
func toTF32(in *ir.Instr) scalar {
	if in.Type2 != ir.F32 {
		return nil
	}
	r, finite := in.Mods.Round, in.Mods.Sat
	s := func(a, _, _, _ uint64) uint64 {
		a &= 0xffffffff
		if binary32.isNaN(a) {
			return binary32.nan
		}
		d := binary32.convert(a, tfloat32, r)
		if finite {
			d = tfloat32.largest(d)
		}
		return d << 13
	}
	return clamped(unsaturated(in), binary32, s)
}

// unsaturated is for types of which Mods.Sat is PTX's .satfinite, not .sat.
func unsaturated(in *ir.Instr) *ir.Instr {
	one := *in
	one.Mods.Sat = false
	return &one
}

// largest makes the largest number of one that is infinite.
func (f *format) largest(x uint64) uint64 {
	if f.isInf(x) || f.finite && f.isNaN(x) {
		return x&f.sign() | f.top()
	}
	return x
}

// halves are the formats of a packed type's elements.
func halves(t ir.Type) *format {
	switch t {
	case ir.F16x2:
		return binary16
	case ir.BF16x2:
		return bfloat16
	case ir.E4M3x2:
		return e4m3
	case ir.E5M2x2:
		return e5m2
	}
	return nil
}

// packedCvt converts two numbers: two .f32, the first to the upper half, or a
// packed pair.
func packedCvt(in *ir.Instr) scalar {
	g, r := halves(in.Type), in.Mods.Round
	finite := in.Mods.Sat || in.Type.Size() == 2 // which these types always are
	n := 4 * in.Type.Size()                      // bits of a half
	one := func(f *format) scalar {
		s := func(a, _, _, _ uint64) uint64 {
			d := f.convert(a, g, r)
			if finite && !f.isNaN(a) {
				return g.largest(d)
			}
			return d
		}
		return clamped(unsaturated(in), g, s)
	}
	if in.Type2 == ir.F32 {
		if len(in.Args) != 2 {
			return nil
		}
		s := one(binary32)
		return func(a, b, _, _ uint64) uint64 {
			return s(a&0xffffffff, 0, 0, 0)<<n | s(b&0xffffffff, 0, 0, 0)
		}
	}
	f := halves(in.Type2)
	if f == nil {
		return nil
	}
	s, w := one(f), 4*in.Type2.Size()
	return func(a, _, _, _ uint64) uint64 {
		return s(a>>w&(1<<w-1), 0, 0, 0)<<n | s(a&(1<<w-1), 0, 0, 0)
	}
}

// buildCvtPack converts two integers with saturation; a comes above b, and what
// c has in its lower bits above both.
func buildCvtPack(in *ir.Instr) scalar {
	size := in.Type.Size()
	if size != 1 && size != 2 {
		return nil
	}
	one := *in
	one.Mods.Sat = true
	if one.Type2 == ir.NoType {
		one.Type2 = ir.S32
	}
	s, n, third := intToInt(&one), 8*size, len(in.Args) == 3
	return func(a, b, c, _ uint64) uint64 {
		d := s(a, 0, 0, 0)<<n | s(b, 0, 0, 0)
		if third {
			d |= c << (2 * n)
		}
		return uint64(uint32(d))
	}
}
