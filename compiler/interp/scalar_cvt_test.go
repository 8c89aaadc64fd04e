// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package interp

import (
	"math"
	"math/big"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

func cvt(to, from ir.Type, mods ir.Mods, args int) scalar {
	return scalarOf(&ir.Instr{Op: ir.Cvt, Type: to, Type2: from, Mods: mods, Args: make([]ir.Operand, args)})
}

// All pairs of integers, with and without saturation.
func TestIntegerConversions(t *testing.T) {
	all := append([]ir.Type{ir.U8, ir.S8}, integers...)
	for _, from := range all {
		for _, to := range all {
			plain, sat := cvt(to, from, ir.Mods{}, 1), cvt(to, from, ir.Mods{Sat: true}, 1)
			lo, hi := limits(to)
			least, most := big.NewInt(lo), new(big.Int).SetUint64(hi)
			for _, a := range samples(40) {
				v := whole(from, a)
				if got, want := plain(a, 0, 0, 0), low(v, 8*to.Size()); got != want {
					t.Errorf("cvt.%s.%s %#x: got %#x, want %#x", to, from, a, got, want)
				}
				if v.Cmp(least) < 0 {
					v = least
				}
				if v.Cmp(most) > 0 {
					v = most
				}
				if got, want := sat(a, 0, 0, 0), low(v, 8*to.Size()); got != want {
					t.Errorf("cvt.sat.%s.%s %#x: got %#x, want %#x", to, from, a, got, want)
				}
			}
		}
	}
}

var floats = map[ir.Type]*format{ir.F16: binary16, ir.BF16: bfloat16, ir.F32: binary32, ir.F64: binary64}

func TestIntegersToFloats(t *testing.T) {
	all := append([]ir.Type{ir.U8, ir.S8}, integers...)
	for _, from := range all {
		for to, g := range floats {
			for _, mode := range modes[:4] {
				f := cvt(to, from, ir.Mods{Round: mode}, 1)
				for _, a := range samples(40) {
					v := whole(from, a)
					if v.Sign() == 0 {
						if got := f(a, 0, 0, 0); got != 0 {
							t.Errorf("cvt.%s.%s of 0: got %#x", to, from, got)
						}
						continue
					}
					want := g.nearestTo(new(big.Float).SetPrec(4000).SetInt(v), mode)
					if got := f(a, 0, 0, 0); got != want {
						t.Errorf("cvt.%s.%s %#x, mode %d: got %#x, want %#x", to, from, a, mode, got, want)
					}
				}
			}
		}
	}
}

func TestFloatsToIntegers(t *testing.T) {
	all := append([]ir.Type{ir.U8, ir.S8}, integers...)
	r := seeded()
	for from, f := range floats {
		for _, to := range all {
			lo, hi := limits(to)
			for mode, round := range map[ir.Round]func(float64) float64{ir.RNI: math.RoundToEven, ir.RZI: math.Trunc, ir.RMI: math.Floor, ir.RPI: math.Ceil} {
				s := cvt(to, from, ir.Mods{Round: mode}, 1)
				for range 300 {
					a := f.random(r)
					x := f64(f.convert(a, binary64, ir.RN))
					var want uint64
					switch y := round(x); {
					case x != x && (from == ir.F64 || to.Size() == 8):
						want = 1 << (8*to.Size() - 1)
					case x != x:
						want = 0
					case y <= float64(lo):
						want = uint64(lo) & ones(to)
					case y >= float64(hi):
						want = hi
					case y < 0:
						want = uint64(int64(y)) & ones(to)
					default:
						want = uint64(y)
					}
					if got := s(a, 0, 0, 0); got != want {
						t.Errorf("cvt.%s.%s of %g, mode %d: got %#x, want %#x", to, from, x, mode, got, want)
					}
				}
			}
		}
	}
}

func TestConversionsByHand(t *testing.T) {
	for _, c := range []struct {
		name     string
		to, from ir.Type
		mods     ir.Mods
		args     int
		a, b     uint64
		want     uint64
	}{
		{"down to half", ir.F16, ir.F32, ir.Mods{Round: ir.RZ}, 1, 0x3f801fff, 0, 0x3c00},
		{"to half, up", ir.F16, ir.F32, ir.Mods{Round: ir.RP}, 1, 0x3f800001, 0, 0x3c01},
		{"to half, relu", ir.F16, ir.F32, ir.Mods{Round: ir.RN, Relu: true}, 1, bits32(-1), 0, 0},
		{"to half, saturated", ir.F16, ir.F32, ir.Mods{Round: ir.RN, Sat: true}, 1, bits32(7), 0, 0x3c00},
		{"to half, flushed", ir.F16, ir.F32, ir.Mods{Round: ir.RN, FTZ: true}, 1, 0x80000001, 0, 0x8000},
		{"double to single, flushed", ir.F32, ir.F64, ir.Mods{Round: ir.RN, FTZ: true}, 1, bits64(-0x1p-140), 0, 0x80000000},
		{"double to single", ir.F32, ir.F64, ir.Mods{Round: ir.RM}, 1, bits64(0.1), 0, 0x3dcccccc},
		{"single to double", ir.F64, ir.F32, ir.Mods{}, 1, bits32(0.1), 0, bits64(float64(float32(0.1)))},
		{"a NaN to double", ir.F64, ir.F32, ir.Mods{}, 1, 0xff800001, 0, 0x7ff8000000000000},
		{"a double NaN to single", ir.F32, ir.F64, ir.Mods{Round: ir.RN}, 1, 0xfff8000000000000, 0, 0x7fffffff},
		{"integral", ir.F32, ir.F32, ir.Mods{Round: ir.RNI}, 1, bits32(-2.5), 0, bits32(-2)},
		{"integral, saturated", ir.F32, ir.F32, ir.Mods{Round: ir.RZI, Sat: true}, 1, bits32(7.5), 0, bits32(1)},
		{"integral double", ir.F64, ir.F64, ir.Mods{Round: ir.RPI}, 1, bits64(1e15 + 0.5), 0, bits64(1e15 + 1)},
		{"integral half", ir.F16, ir.F16, ir.Mods{Round: ir.RMI}, 1, 0x3e00, 0, 0x3c00},
		{"only flushed", ir.F32, ir.F32, ir.Mods{FTZ: true}, 1, 1, 0, 0},
		{"only saturated", ir.F32, ir.F32, ir.Mods{Sat: true}, 1, bits32(-1), 0, 0},
		{"a pair of halves", ir.F16x2, ir.F32, ir.Mods{Round: ir.RN}, 2, bits32(1), bits32(2), 0x3c004000},
		{"a pair, relu", ir.BF16x2, ir.F32, ir.Mods{Round: ir.RN, Relu: true}, 2, bits32(-1), bits32(2), 0x4000},
		{"tf32", ir.TF32, ir.F32, ir.Mods{Round: ir.RNA}, 1, 0x3f801000, 0, 0x3f802000},
		{"tf32 to even", ir.TF32, ir.F32, ir.Mods{Round: ir.RN}, 1, 0x3f801000, 0, 0x3f800000},
		{"e4m3", ir.E4M3x2, ir.F32, ir.Mods{Round: ir.RN, Sat: true}, 2, bits32(448), bits32(-1.125), 0x7eb9},
		{"e4m3 too large", ir.E4M3x2, ir.F32, ir.Mods{Round: ir.RN}, 2, bits32(-1e9), 0x7f800000, 0xfe7e},
		{"e4m3 NaN", ir.E4M3x2, ir.F32, ir.Mods{Round: ir.RN}, 2, 0x7fc00000, 0, 0x7f00},
		{"e5m2", ir.E5M2x2, ir.F32, ir.Mods{Round: ir.RN}, 2, bits32(1e9), bits32(1.75), 0x7b3f},
		{"e4m3 to halves", ir.F16x2, ir.E4M3x2, ir.Mods{Round: ir.RN}, 1, 0x7eb9, 0, 0x5f00bc80},
		{"halves to e5m2", ir.E5M2x2, ir.F16x2, ir.Mods{Round: ir.RN}, 1, 0x3c007c00, 0, 0x3c7b},
		{"registers that are wider", ir.U8, ir.S32, ir.Mods{}, 1, 0x1234, 0, 0x34},
		{"half to s8, clamped", ir.S8, ir.F16, ir.Mods{Round: ir.RZI}, 1, half(-1000), 0, 0x80},
		{"unsigned of negative", ir.U32, ir.F32, ir.Mods{Round: ir.RZI}, 1, bits32(-5), 0, 0},
		{"infinite", ir.S64, ir.F32, ir.Mods{Round: ir.RZI}, 1, 0xff800000, 0, 1 << 63},
		{"NaN to s32", ir.S32, ir.F32, ir.Mods{Round: ir.RZI}, 1, 0x7fc00000, 0, 0},
		{"double NaN to s32", ir.S32, ir.F64, ir.Mods{Round: ir.RZI}, 1, 0x7ff8000000000000, 0, 0x80000000},
	} {
		f := cvt(c.to, c.from, c.mods, c.args)
		if f == nil {
			t.Errorf("%s: not there", c.name)
			continue
		}
		if got := f(c.a, c.b, 0, 0); got != c.want {
			t.Errorf("%s: got %#x, want %#x", c.name, got, c.want)
		}
	}
	if cvt(ir.F16x2, ir.F32, ir.Mods{}, 1) != nil {
		t.Error("a conversion that is none")
	}
	pack := scalarOf(&ir.Instr{Op: ir.CvtPack, Type: ir.S8, Type2: ir.S32, Mods: ir.Mods{Sat: true}, Args: make([]ir.Operand, 3)})
	if got := pack(300, uint64(uint32(0xffffff00)), 0xbeef, 0); got != 0xbeef7f80 {
		t.Errorf("cvt.pack: got %#x", got)
	}
}
