// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package interp

import (
	"math/big"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

var integers = []ir.Type{ir.U16, ir.S16, ir.U32, ir.S32, ir.U64, ir.S64}

// whole is the number that bits of an integer type are.
func whole(t ir.Type, x uint64) *big.Int {
	x &= ones(t)
	v := new(big.Int).SetUint64(x)
	if t.Signed() && x>>(8*t.Size()-1) != 0 {
		v.Sub(v, new(big.Int).Lsh(big.NewInt(1), uint(8*t.Size())))
	}
	return v
}

// low are the lowest bits of a number, as two's complement.
func low(v *big.Int, bits int) uint64 {
	m := new(big.Int).Lsh(big.NewInt(1), uint(bits))
	return new(big.Int).Mod(v, m).Uint64()
}

// samples are random numbers, and those at the ends of ranges.
func samples(n int) []uint64 {
	v := []uint64{0, 1, 2, 0x7f, 0x80, 0x7fff, 0x8000, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff, 1<<63 - 1, 1 << 63, ^uint64(0)}
	r := seeded()
	for range n {
		v = append(v, r.Uint64(), r.Uint64()>>r.UintN(64))
	}
	return v
}

// Integer arithmetic compared with numbers of any size. Registers have bits above
// a type's here, which must not count.
func TestIntegers(t *testing.T) {
	type exact func(t ir.Type, a, b, c *big.Int) *big.Int
	pair := func(f func(z, a, b *big.Int) *big.Int) exact {
		return func(_ ir.Type, a, b, _ *big.Int) *big.Int { return f(new(big.Int), a, b) }
	}
	product := func(_ ir.Type, a, b, _ *big.Int) *big.Int { return new(big.Int).Mul(a, b) }
	upper := func(t ir.Type, a, b, _ *big.Int) *big.Int {
		return new(big.Int).Rsh(new(big.Int).Mul(a, b), uint(8*t.Size()))
	}
	plus := func(f exact) exact {
		return func(t ir.Type, a, b, c *big.Int) *big.Int { return new(big.Int).Add(f(t, a, b, c), c) }
	}
	cases := []struct {
		op    ir.Op
		mods  ir.Mods
		exact exact
	}{
		{ir.Add, ir.Mods{}, pair((*big.Int).Add)},
		{ir.Sub, ir.Mods{}, pair((*big.Int).Sub)},
		{ir.Mul, ir.Mods{Half: ir.Lo}, product},
		{ir.Mul, ir.Mods{Half: ir.Hi}, upper},
		{ir.Mul, ir.Mods{Half: ir.Wide}, product},
		{ir.Mad, ir.Mods{Half: ir.Lo}, plus(product)},
		{ir.Mad, ir.Mods{Half: ir.Hi}, plus(upper)},
		{ir.Mad, ir.Mods{Half: ir.Wide}, plus(product)},
		{ir.Div, ir.Mods{}, func(_ ir.Type, a, b, _ *big.Int) *big.Int {
			if b.Sign() == 0 {
				return big.NewInt(-1)
			}
			return new(big.Int).Quo(a, b)
		}},
		{ir.Rem, ir.Mods{}, func(_ ir.Type, a, b, _ *big.Int) *big.Int {
			if b.Sign() == 0 {
				return a
			}
			return new(big.Int).Rem(a, b)
		}},
		{ir.Min, ir.Mods{}, func(_ ir.Type, a, b, _ *big.Int) *big.Int {
			if a.Cmp(b) < 0 {
				return a
			}
			return b
		}},
		{ir.Max, ir.Mods{}, func(_ ir.Type, a, b, _ *big.Int) *big.Int {
			if a.Cmp(b) > 0 {
				return a
			}
			return b
		}},
		{ir.Sad, ir.Mods{}, func(_ ir.Type, a, b, c *big.Int) *big.Int {
			d := new(big.Int).Sub(a, b)
			return d.Add(d.Abs(d), c)
		}},
		{ir.Neg, ir.Mods{}, func(_ ir.Type, a, _, _ *big.Int) *big.Int { return new(big.Int).Neg(a) }},
		{ir.Abs, ir.Mods{}, func(_ ir.Type, a, _, _ *big.Int) *big.Int { return new(big.Int).Abs(a) }},
	}
	values := samples(12)
	for _, c := range cases {
		for _, typ := range integers {
			size, wide := typ.Size(), c.mods.Half == ir.Wide
			if wide && size == 8 {
				continue
			}
			f := scalarOf(&ir.Instr{Op: c.op, Type: typ, Mods: c.mods, Args: make([]ir.Operand, 2)})
			if f == nil {
				t.Errorf("%s.%s is not there", c.op, typ)
				continue
			}
			third, bits := typ, 8*size
			if wide {
				bits *= 2
				third = map[ir.Type]ir.Type{ir.U16: ir.U32, ir.S16: ir.S32, ir.U32: ir.U64, ir.S32: ir.S64}[typ]
			}
			for i, a := range values {
				for j, b := range values {
					x := values[(i*7+j)%len(values)]
					want := low(c.exact(typ, whole(typ, a), whole(typ, b), whole(third, x)), bits)
					if got := f(a, b, x, 0); got != want {
						t.Fatalf("%s.%s %+v of %#x, %#x, %#x: got %#x, want %#x", c.op, typ, c.mods, a, b, x, got, want)
					}
				}
			}
		}
	}
}

// What doesn't fit is clamped.
func TestSaturation(t *testing.T) {
	clamp := func(v *big.Int) uint64 {
		if v.Cmp(big.NewInt(1<<31-1)) > 0 {
			v = big.NewInt(1<<31 - 1)
		}
		if v.Cmp(big.NewInt(-1<<31)) < 0 {
			v = big.NewInt(-1 << 31)
		}
		return low(v, 32)
	}
	add := scalarOf(&ir.Instr{Op: ir.Add, Type: ir.S32, Mods: ir.Mods{Sat: true}})
	sub := scalarOf(&ir.Instr{Op: ir.Sub, Type: ir.S32, Mods: ir.Mods{Sat: true}})
	mad := scalarOf(&ir.Instr{Op: ir.Mad, Type: ir.S32, Mods: ir.Mods{Sat: true, Half: ir.Hi}})
	for _, a := range samples(20) {
		for _, b := range samples(20) {
			x, y := whole(ir.S32, a), whole(ir.S32, b)
			if got, want := add(a, b, 0, 0), clamp(new(big.Int).Add(x, y)); got != want {
				t.Errorf("add.sat %#x, %#x: got %#x, want %#x", a, b, got, want)
			}
			if got, want := sub(a, b, 0, 0), clamp(new(big.Int).Sub(x, y)); got != want {
				t.Errorf("sub.sat %#x, %#x: got %#x, want %#x", a, b, got, want)
			}
			p := new(big.Int).Rsh(new(big.Int).Mul(x, y), 32)
			if got, want := mad(a, b, b, 0), clamp(p.Add(p, y)); got != want {
				t.Errorf("mad.hi.sat %#x, %#x: got %#x, want %#x", a, b, got, want)
			}
		}
	}
}

// Sums, differences and products of several words by carries.
func TestCarries(t *testing.T) {
	for _, typ := range []ir.Type{ir.U32, ir.S32, ir.U64, ir.S64} {
		n := uint(8 * typ.Size())
		unsigned := map[ir.Type]ir.Type{ir.S32: ir.U32, ir.S64: ir.U64, ir.U32: ir.U32, ir.U64: ir.U64}[typ]
		for _, op := range []ir.Op{ir.Add, ir.Sub, ir.Mad} {
			for _, in := range []bool{false, true} {
				i := &ir.Instr{Op: op, Type: typ, Mods: ir.Mods{CarryIn: in, CarryOut: true}}
				if op == ir.Mad {
					i.Mods.Half = ir.Lo
				}
				f, over := scalarOf(i), carryOut(i)
				for k, a := range samples(20) {
					for j, b := range samples(20) {
						cin := uint64((k + j) % 2)
						x, y, z := whole(unsigned, a), whole(unsigned, b), whole(unsigned, a^b)
						carry := new(big.Int)
						if in {
							carry.SetUint64(cin)
						}
						sum := new(big.Int)
						args := [4]uint64{a, b, cin}
						switch op {
						case ir.Add:
							sum.Add(x, y).Add(sum, carry)
						case ir.Sub:
							sum.Sub(x, y).Sub(sum, carry)
						default:
							args = [4]uint64{a, b, a ^ b, cin}
							lo := new(big.Int).Mul(x, y)
							sum.Add(new(big.Int).SetUint64(low(lo, int(n))), z).Add(sum, carry)
						}
						want := uint64(0)
						if sum.Sign() < 0 || sum.BitLen() > int(n) {
							want = 1
						}
						if got := over(args[0], args[1], args[2], args[3]); got != want {
							t.Fatalf("%s.%s %#x: carry %d, want %d", op, typ, args, got, want)
						}
						if got := f(args[0], args[1], args[2], args[3]); got != low(sum, int(n)) {
							t.Fatalf("%s.%s %#x: got %#x, want %#x", op, typ, args, got, low(sum, int(n)))
						}
					}
				}
			}
		}
	}
}

func TestMul24(t *testing.T) {
	for _, typ := range []ir.Type{ir.U32, ir.S32} {
		for _, half := range []ir.Half{ir.Lo, ir.Hi} {
			f := scalarOf(&ir.Instr{Op: ir.Mad24, Type: typ, Mods: ir.Mods{Half: half}})
			for _, a := range samples(20) {
				for _, b := range samples(20) {
					cut := func(x uint64) *big.Int {
						x &= 0xffffff
						v := new(big.Int).SetUint64(x)
						if typ.Signed() && x>>23 != 0 {
							v.Sub(v, big.NewInt(1<<24))
						}
						return v
					}
					p := new(big.Int).Mul(cut(a), cut(b))
					if half == ir.Hi {
						p.Rsh(p, 16)
					}
					if got, want := f(a, b, 77, 0), low(p.Add(p, big.NewInt(77)), 32); got != want {
						t.Fatalf("mad24.%s %#x, %#x: got %#x, want %#x", typ, a, b, got, want)
					}
				}
			}
		}
	}
}

func TestPairs(t *testing.T) {
	for _, c := range []struct {
		op         ir.Op
		typ        ir.Type
		mods       ir.Mods
		a, b, want uint64
	}{
		{ir.Add, ir.U16x2, ir.Mods{}, 0xffff0001, 0x00010002, 0x00000003},
		{ir.Min, ir.S16x2, ir.Mods{}, 0xffff0005, 0x00010003, 0xffff0003},
		{ir.Max, ir.U16x2, ir.Mods{}, 0xffff0005, 0x00010003, 0xffff0005},
		{ir.Max, ir.S16x2, ir.Mods{Relu: true}, 0xfff0fff5, 0xfff10003, 0x00000003},
		{ir.Add, ir.F16x2, ir.Mods{}, 0x3c004000, 0x3c003c00, 0x40004200},
		{ir.Mul, ir.BF16x2, ir.Mods{}, 0x40004040, 0x40003f80, 0x40804040},
		{ir.Neg, ir.F16x2, ir.Mods{}, 0x3c00bc00, 0, 0xbc003c00},
		{ir.Fma, ir.F16x2, ir.Mods{Relu: true}, 0x3c00bc00, 0x40004000, 0x40000000},
		{ir.Min, ir.F16x2, ir.Mods{NaN: true}, 0x7e003c00, 0x3c003800, 0x7fff3800},
	} {
		f := scalarOf(&ir.Instr{Op: c.op, Type: c.typ, Mods: c.mods, Args: make([]ir.Operand, 2)})
		if got := f(c.a, c.b, 0, 0); got != c.want {
			t.Errorf("%s.%s %#x, %#x: got %#x, want %#x", c.op, c.typ, c.a, c.b, got, c.want)
		}
	}
}

// A pipe of instructions with registers that are wider or narrower than types.
func TestCarriesInAKernel(t *testing.T) {
	b := newBench(t, 32, kernel("", `
  %x, %q = add.cout.u32 0xffffffff, 2
  %y, %q = add.cin.cout.u32 0xffffffff, 0, %q
  %z = add.cin.u32 7, 0, %q
  st.global.v2.u32 [%p], %x, %y
  st.global.u32 [%p+8], %z
  %x, %q = sub.cout.u32 1, 2
  %y, %q = sub.cin.cout.u32 0, 0, %q
  %y = sub.cin.u32 5, 0, %q
  st.global.v2.u32 [%p+16], %x, %y
  %x, %q = mad.lo.cout.u32 0x10000, 0x10001, 0xffff0000
  %y = mad.hi.cin.u32 0x10000, 0x10001, 5, %q
  st.global.v2.u32 [%p+24], %x, %y
  exit
`))
	b.run(t, 1, 1)
	// 0x10000 * 0x10001 = 0x1_0001_0000; the lower word and 0xffff0000 carry.
	for i, want := range []uint32{1, 0, 8, 0, 0xffffffff, 4, 0, 7} {
		if got := b.words()[i]; got != want {
			t.Errorf("word %d: got %#x, want %#x", i, got, want)
		}
	}
}

func TestSelections(t *testing.T) {
	f := scalarOf(&ir.Instr{Op: ir.Slct, Type: ir.U64, Type2: ir.S32})
	g := scalarOf(&ir.Instr{Op: ir.Slct, Type: ir.U32, Type2: ir.F32})
	ftz := scalarOf(&ir.Instr{Op: ir.Slct, Type: ir.U32, Type2: ir.F32, Mods: ir.Mods{FTZ: true}})
	for _, c := range []struct{ got, want uint64 }{
		{f(1, 2, 0, 0), 1},
		{f(1, 2, 0xffffffff, 0), 2},
		{f(1, 2, 0x7fffffff, 0), 1},
		{g(1, 2, 0, 0), 1},
		{g(1, 2, 0x80000000, 0), 1},
		{g(1, 2, bits32(-1), 0), 2},
		{g(1, 2, 0x7fc00000, 0), 2},
		{g(1, 2, 0x80000001, 0), 2},
		{ftz(1, 2, 0x80000001, 0), 1},
	} {
		if c.got != c.want {
			t.Errorf("got %d, want %d", c.got, c.want)
		}
	}
}
