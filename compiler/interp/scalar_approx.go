// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package interp

import (
	"math"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// The functions that PTX only approximates. Here they are computed in double
// precision and rounded once, so that they are within any error that it allows
// (ISA 9.7.3: ex2 2 ulp, lg2 2^-22, sin and cos 2^-20.5 absolute, rsqrt
// 2^-22.9 relative, tanh 2^-11 relative).
var approximations = map[ir.Op]func(float64) float64{
	ir.Rsqrt: func(x float64) float64 { return 1 / math.Sqrt(x) },
	ir.Sin:   math.Sin,
	ir.Cos:   math.Cos,
	ir.Lg2:   math.Log2,
	ir.Ex2:   math.Exp2,
	ir.Tanh:  math.Tanh,
}

func buildApprox(in *ir.Instr) scalar {
	if f, pair := halfwise(in, buildApprox); pair {
		return f
	}
	f, fn := formatOf(in.Type), approximations[in.Op]
	switch {
	case f == nil:
		return nil
	case f == binary64 && in.Op == ir.Rsqrt && in.Mods.FTZ:
		return grossly(fn)
	case f == binary64 && in.Op != ir.Rsqrt:
		return nil
	}
	m := ones(in.Type)
	return modified(in, f, func(a, _, _, _ uint64) uint64 {
		a &= m
		if n, is := f.quiet(a); is {
			return n
		}
		// A zero keeps its sign: 1/sqrt(-0) is minus infinity.
		if in.Op == ir.Rsqrt && f.isZero(a) {
			return a | f.inf()
		}
		y := fn(f64(f.convert(a, binary64, ir.RN)))
		if y != y {
			return f.canonical()
		}
		return binary64.convert(bits64(y), f, ir.RN)
	})
}

// grossly is for rcp.approx.ftz.f64 and rsqrt.approx.ftz.f64, which read and
// write the upper 32 bits only (ISA 9.7.3.13 and 9.7.3.17).
func grossly(fn func(float64) float64) scalar {
	return func(a, _, _, _ uint64) uint64 {
		a = binary64.flush(a &^ 0xffffffff)
		y := fn(f64(a))
		switch {
		case y != y:
			return binary64.canonical()
		case math.IsInf(y, 0):
			if a&binary64.sign() != 0 {
				y = math.Inf(-1)
			}
			return bits64(y)
		}
		return binary64.flush((bits64(y) + 1<<31) &^ 0xffffffff)
	}
}
