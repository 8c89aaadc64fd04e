// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package opencl_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// Operations on random and on special values, each compared with the interpreter
// bit by bit. Registers: %A to %D have 64 bits, %a to %d their lower 32, %s %t %u
// the lower 16 of the first three, %p and %q the lowest bits of C and D. The first
// letter tells the result's: R 64 bits, r 32, h 16, x a predicate.
var exactOps = map[string][]string{
	"integers": expand(
		"r add.{u32,s32} %a, %b", "R add.{u64,s64} %A, %B", "h add.{u16,s16} %s, %t", "r add.sat.s32 %a, %b", "r add.{u16x2,s16x2} %a, %b",
		"r sub.{u32,s32} %a, %b", "R sub.u64 %A, %B", "h sub.u16 %s, %t", "r sub.sat.s32 %a, %b",
		"r mul.{lo,hi}.{u32,s32} %a, %b", "R mul.{lo,hi}.{u64,s64} %A, %B", "h mul.{lo,hi}.{u16,s16} %s, %t",
		"R mul.wide.{u32,s32} %a, %b", "r mul.wide.{u16,s16} %s, %t",
		"r mad.{lo,hi}.{u32,s32} %a, %b, %c", "R mad.{lo,hi}.{u64,s64} %A, %B, %C", "h mad.{lo,hi}.{u16,s16} %s, %t, %u",
		"R mad.wide.{u32,s32} %a, %b, %C", "r mad.wide.{u16,s16} %s, %t, %c", "r mad.hi.sat.s32 %a, %b, %c",
		"r mul24.{lo,hi}.{u32,s32} %a, %b", "r mad24.{lo,hi}.{u32,s32} %a, %b, %c", "r mad24.hi.sat.s32 %a, %b, %c",
		"r sad.{u32,s32} %a, %b, %c", "R sad.{u64,s64} %A, %B, %C", "h sad.{u16,s16} %s, %t, %u",
		"r {div,rem}.{u32,s32} %a, %b", "R {div,rem}.{u64,s64} %A, %B", "h {div,rem}.{u16,s16} %s, %t",
		"r {div,rem}.{u32,s32} %a, 0", "R {div,rem}.{u64,s64} %A, 0", "h {div,rem}.{u16,s16} %s, 0",
		"r {div,rem}.s32 %a, 0xffffffff", "R {div,rem}.s64 %A, 0xffffffffffffffff", "h {div,rem}.s16 %s, 0xffff",
		"r {abs,neg}.s32 %a", "R {abs,neg}.s64 %A", "h {abs,neg}.s16 %s",
		"r {min,max}.{u32,s32} %a, %b", "R {min,max}.{u64,s64} %A, %B", "h {min,max}.{u16,s16} %s, %t",
		"r {min,max}.{u16x2,s16x2} %a, %b", "r {min,max}.relu.{s32,s16x2} %a, %b",
	),
	"bits": expand(
		"r {and,or,xor}.b32 %a, %b", "R {and,or,xor}.b64 %A, %B", "h {and,or,xor}.b16 %s, %t", "x {and,or,xor}.pred %p, %q", "x and.pred %p, !%q",
		"r {not,cnot}.b32 %a", "R {not,cnot}.b64 %A", "h {not,cnot}.b16 %s", "x not.pred %p", "r cnot.b32 0",
		"r lop3.lut_{96,e8,1,80}.b32 %a, %b, %c",
		"r {shl.b32,shr.u32,shr.s32,shr.b32} %a, %b", "R {shl.b64,shr.u64,shr.s64} %A, %b", "h {shl.b16,shr.u16,shr.s16} %s, %b",
		"r {shl.b32,shr.u32,shr.s32} %a, %l", "R {shl.b64,shr.u64,shr.s64} %A, %l", "h {shl.b16,shr.u16,shr.s16} %s, %l",
		"r shf.left.b32 %a, %b, %l", "r shf.left.wrap.b32 %a, %b, %l", "r shf.b32 %a, %b, %l", "r shf.wrap.b32 %a, %b, %l",
		"r {popc,clz}.b32 %a", "r {popc,clz}.b64 %A", "r bfind.{u32,s32} %a", "r bfind.{u64,s64} %A", "r bfind.shiftamt.{u32,s32} %a", "r bfind.shiftamt.{u64,s64} %A",
		"r {popc,clz,brev}.b32 0", "r bfind.u32 0", "r bfind.s32 0xffffffff", "r brev.b32 %a", "R brev.b64 %A",
		"r fns.b32 %a, %l, 1", "r fns.b32 %a, %l, 3", "r fns.b32 %a, %l, 0xfffffffe", "r fns.b32 %a, %l, 0",
		"r bfe.{u32,s32} %a, %l, %m", "R bfe.{u64,s64} %A, %l, %m", "r bfi.b32 %a, %b, %l, %m", "R bfi.b64 %A, %B, %l, %m",
		"r szext.{u32,s32} %a, %l", "r szext.wrap.{u32,s32} %a, %l", "r bmsk.b32 %l, %m", "r bmsk.wrap.b32 %l, %m",
		"r dp4a.{u32,s32}.{u32,s32} %a, %b, %c", "r dp2a.{lo,hi}.{u32,s32}.{u32,s32} %a, %b, %c",
		"r prmt.b32 %a, %b, %c", "r prmt.{f4e,b4e,rc8,ecl,ecr,rc16}.b32 %a, %b, %c",
		"R pack.b64 %a, %b", "R pack.b64 %s, %t, %u, %s", "r pack.b32 %s, %t",
		"r mov.b32 %a", "R mov.b64 %A", "r selp.b32 %a, %b, %p", "R selp.b64 %A, %B, !%p", "h selp.b16 %s, %t, %p",
		"r slct.u32.s32 %a, %b, %c", "R slct.u64.f32 %A, %B, %c", "R slct.ftz.u64.f32 %A, %B, %c",
	),
	"compare": expand(
		"x setp.{eq,ne,lt,le,gt,ge}.{u32,s32} %a, %b", "x setp.{eq,ne,lt,le,gt,ge}.{u64,s64} %A, %B", "x setp.{eq,ne,lt,le,gt,ge}.{u16,s16} %s, %t",
		"x setp.{eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}.f32 %a, %b", "x setp.{eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}.f64 %A, %B",
		"x setp.{eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}.{f16,bf16} %s, %t",
		"x setp.{eq,lt,geu}.ftz.f32 %a, %b", "x setp.{lt,geu}.{and,or,xor}.f32 %a, %b, %p", "x setp.lt.and.u32 %a, %b, !%q",
		"r set.{lt,geu}.{u32,s32,f32}.f32 %a, %b", "r set.{eq,lt}.{u32,f32}.{u32,s32} %a, %b", "r set.lt.and.u32.f64 %A, %B, %p",
		"r set.{lt,nan}.f16x2.f16x2 %a, %b", "r set.{lt,nan}.bf16x2.bf16x2 %a, %b",
		"x testp.{finite,infinite,number,notanumber,normal,subnormal}.f32 %a", "x testp.{finite,infinite,number,notanumber,normal,subnormal}.f64 %A",
	),
	"f32": expand(
		"r {add,sub,mul}.f32 %a, %b", "r {add,sub,mul}.{rn,rz,rm,rp}.f32 %a, %b", "r {add,sub,mul}.{rn,rz,rm,rp}.ftz.f32 %a, %b", "r {add,sub,mul}.rn.sat.f32 %a, %b", "r {add,mul}.rz.ftz.sat.f32 %a, %b",
		"r fma.{rn,rz,rm,rp}.f32 %a, %b, %c", "r fma.{rn,rz,rm,rp}.ftz.f32 %a, %b, %c", "r fma.rn.sat.f32 %a, %b, %c", "r mad.rn.f32 %a, %b, %c",
		"r div.{rn,rz,rm,rp}.f32 %a, %b", "r div.{rn,rz}.ftz.f32 %a, %b", "r rcp.{rn,rz,rm,rp}.f32 %a", "r rcp.rn.ftz.f32 %a",
		"r sqrt.{rn,rz,rm,rp}.f32 %a", "r sqrt.{rn,rm}.ftz.f32 %a",
		"r {abs,neg}.f32 %a", "r {abs,neg}.ftz.f32 %a", "r copysign.f32 %a, %b",
		"r {min,max}.f32 %a, %b", "r {min,max}.ftz.f32 %a, %b", "r {min,max}.NaN.f32 %a, %b", "r {min,max}.xorsign.f32 %a, %b", "r {min,max}.NaN.xorsign.f32 %a, %b", "r {min,max}.NaN.f32 %a, %b, %c",
	),
	"f64": expand(
		"R {add,sub,mul}.{rn,rz,rm,rp}.f64 %A, %B", "R fma.{rn,rz,rm,rp}.f64 %A, %B, %C",
		"R div.{rn,rz,rm,rp}.f64 %A, %B", "R rcp.{rn,rz,rm,rp}.f64 %A", "R sqrt.{rn,rz,rm,rp}.f64 %A",
		"R {abs,neg}.f64 %A", "R copysign.f64 %A, %B", "R {min,max}.f64 %A, %B",
	),
	"f16": expand(
		"h {add,sub,mul}.{f16,bf16} %s, %t", "h {add,sub,mul}.rn.ftz.f16 %s, %t", "h {add,sub,mul}.rn.sat.f16 %s, %t", "r {add,sub,mul}.{f16x2,bf16x2} %a, %b",
		"h fma.rn.{f16,bf16} %s, %t, %u", "h fma.rn.{ftz,sat,relu}.f16 %s, %t, %u", "h fma.rn.relu.bf16 %s, %t, %u", "r fma.rn.{f16x2,bf16x2} %a, %b, %c",
		"h {abs,neg}.{f16,bf16} %s", "r {abs,neg}.{f16x2,bf16x2} %a", "h neg.ftz.f16 %s",
		"h {min,max}.{f16,bf16} %s, %t", "h {min,max}.NaN.{f16,bf16} %s, %t", "r {min,max}.{f16x2,bf16x2} %a, %b", "h {min,max}.xorsign.f16 %s, %t", "h {min,max}.NaN.xorsign.{f16,bf16} %s, %t",
	),
	"cvt": expand(
		"r cvt.{u8,s8,u16,s16,u32,s32}.{u32,s32} %a", "R cvt.{u64,s64}.{u8,s8,u16,s16,u32,s32} %a", "r cvt.{u8,s8,u32,s32}.{u64,s64} %A",
		"r cvt.sat.{u8,s8,u16,s16,u32,s32}.{u32,s32} %a", "r cvt.sat.{u8,s8,u16,s16,u32,s32}.{u64,s64} %A", "R cvt.sat.{u64,s64}.{u32,s32,u64,s64} %A",
		"r cvt.{rni,rzi,rmi,rpi}.{u8,s8,u16,s16,u32,s32}.f32 %a", "R cvt.{rni,rzi,rmi,rpi}.{u64,s64}.f32 %a", "r cvt.rzi.ftz.s32.f32 %a",
		"r cvt.{rni,rzi,rmi,rpi}.{u8,s8,u16,s16,u32,s32}.f64 %A", "R cvt.{rni,rzi,rmi,rpi}.{u64,s64}.f64 %A", "r cvt.{rni,rzi}.{u8,s8,u16,s16,u32,s32}.{f16,bf16} %s", "R cvt.rzi.{u64,s64}.f16 %s",
		"r cvt.{rn,rz,rm,rp}.f32.{u8,s8,u16,s16,u32,s32} %a", "r cvt.{rn,rz,rm,rp}.f32.{u64,s64} %A", "R cvt.{rn,rz,rm,rp}.f64.{u32,s32} %a", "R cvt.{rn,rz,rm,rp}.f64.{u64,s64} %A",
		"h cvt.{rn,rz,rm,rp}.f16.{u8,s8,u16,s16,u32,s32} %a", "h cvt.rn.bf16.{u32,s32} %a", "h cvt.rn.f16.{u64,s64} %A",
		"R cvt.f64.f32 %a", "R cvt.ftz.f64.f32 %a", "r cvt.{rn,rz,rm,rp}.f32.f64 %A", "r cvt.rn.ftz.f32.f64 %A", "r cvt.rn.sat.f32.f64 %A",
		"h cvt.{rn,rz}.{f16,bf16}.f32 %a", "h cvt.rn.relu.{f16,bf16}.f32 %a", "h cvt.rn.ftz.f16.f32 %a", "r cvt.f32.{f16,bf16} %s", "R cvt.f64.f16 %s", "h cvt.{rn,rz,rm,rp}.f16.f64 %A",
		"r cvt.{rni,rzi,rmi,rpi}.f32.f32 %a", "r cvt.{rni,rzi,rmi,rpi}.ftz.f32.f32 %a", "r cvt.ftz.f32.f32 %a", "r cvt.sat.f32.f32 %a", "R cvt.{rni,rzi,rmi,rpi}.f64.f64 %A", "h cvt.{rni,rzi,rmi,rpi}.f16.f16 %s",
		"r cvt.{rn,rz}.{f16x2,bf16x2}.f32 %a, %b", "r cvt.rn.relu.{f16x2,bf16x2}.f32 %a, %b",
		"r cvt.{rna,rn,rz}.tf32.f32 %a", "h cvt.rn.{e4m3x2,e5m2x2}.f32 %a, %b", "h cvt.rn.relu.{e4m3x2,e5m2x2}.f32 %a, %b", "h cvt.rn.{e4m3x2,e5m2x2}.f16x2 %a", "r cvt.rn.f16x2.{e4m3x2,e5m2x2} %s", "r cvt.rn.relu.f16x2.{e4m3x2,e5m2x2} %s",
		"r cvt_pack.sat.{u8,s8}.s32 %a, %b, %c", "r cvt_pack.sat.{u16,s16}.s32 %a, %b",
	),
}

// expand writes out {a,b} in all combinations.
func expand(patterns ...string) []string {
	var all []string
	for _, p := range patterns {
		i := strings.IndexByte(p, '{')
		if i < 0 {
			all = append(all, p)
			continue
		}
		j := i + strings.IndexByte(p[i:], '}')
		for w := range strings.SplitSeq(p[i+1:j], ",") {
			all = append(all, expand(p[:i]+w+p[j+1:])...)
		}
	}
	return all
}

const opThreads = 512

// opKernel is a kernel that does each operation once in each thread and stores
// the results, as 64 bits, behind the inputs: [operation][thread].
func opKernel(ops []string) string {
	var b strings.Builder
	b.WriteString(`kernel @ops {
  param $data 8 align 8 at 0
  reg b64 %base %in %out %A %B %C %D %R
  reg b32 %a %b %c %d %r %i %l %m
  reg b16 %s %t %u %h
  reg pred %p %q %x
entry:
  %base = ld.param.u64 [$data]
  %i = mov.u32 tid.x
  %in = mad.wide.u32 %i, 32, %base
  %A, %B = ld.global.v2.u64 [%in]
  %C, %D = ld.global.v2.u64 [%in+16]
  %a = cvt.u32.u64 %A
  %b = cvt.u32.u64 %B
  %c = cvt.u32.u64 %C
  %d = cvt.u32.u64 %D
  %s = cvt.u16.u64 %A
  %t = cvt.u16.u64 %B
  %u = cvt.u16.u64 %C
  %l = and.b32 %c, 127
  %m = and.b32 %d, 63
  %r = and.b32 %c, 1
  %p = setp.ne.u32 %r, 0
  %r = and.b32 %d, 1
  %q = setp.ne.u32 %r, 0
  %out = mad.wide.u32 %i, 8, %base
`)
	for i, op := range ops {
		result, text, _ := strings.Cut(op, " ")
		fmt.Fprintf(&b, "  %%%s = %s\n", result, text)
		switch result {
		case "r":
			b.WriteString("  %R = cvt.u64.u32 %r\n")
		case "h":
			b.WriteString("  %R = cvt.u64.u16 %h\n")
		case "x":
			b.WriteString("  %R = selp.b64 1, 0, %x\n")
		}
		fmt.Fprintf(&b, "  st.global.u64 [%%out+%d], %%R\n", 32*opThreads+8*i*opThreads)
	}
	b.WriteString("  exit\n}\n")
	return b.String()
}

// opInputs are random bits and the special values of each floating point format.
func opInputs(r *rand.Rand) []byte {
	special32 := []float32{
		0, float32(math.Copysign(0, -1)), 1, -1, 0.5, 1.5, 2.5, -2.5, math.MaxFloat32, -math.MaxFloat32, math.SmallestNonzeroFloat32, 1e-40, -3e-39,
		float32(math.Inf(1)), float32(math.Inf(-1)), 2147483648, -2147483648, 4294967296, 65504, 65519.9, 65520, 6e-8, 3e-5, 447.9, 448, 57344, 1e30,
	}
	special64 := []float64{
		0, math.Copysign(0, -1), 1, -1, 0.5, 1.5, -2.5, math.MaxFloat64, math.SmallestNonzeroFloat64, 1e-310, -1e-308, math.Inf(1), math.Inf(-1),
		2147483648, 9223372036854775808, 18446744073709551616, -9223372036854775808, 1e39, 1e-39, 1e-45, 65520,
	}
	value := func() uint64 {
		switch r.IntN(8) {
		case 0:
			return uint64(r.Int64N(64)) - 32
		case 1:
			return r.Uint64()
		case 2:
			return uint64(math.Float32bits(special32[r.IntN(len(special32))])) | r.Uint64()<<32
		case 3:
			return math.Float64bits(special64[r.IntN(len(special64))])
		case 4: // a float near one, in both sizes
			return uint64(math.Float32bits(float32(r.NormFloat64()))) | uint64(math.Float32bits(float32(r.NormFloat64())))<<32
		case 5:
			return math.Float64bits(r.NormFloat64() * math.Pow(2, float64(r.IntN(80)-40)))
		case 6: // floats of like exponents, of which sums cancel and round
			return uint64(0x3f000000|r.Uint32()&0x81ffffff) | uint64(0x3ff00000|r.Uint32()&0x803fffff)<<32
		}
		halves := []uint64{0, 0x8000, 0x3c00, 0xbc00, 0x7bff, 0x7c00, 0xfc00, 0x7e01, 0x0001, 0x83ff, 0x0400, 0x3f80, 0x7f7f, 0x7f80, 0xff81, 0x0080, 0x007f}
		return halves[r.IntN(len(halves))] | halves[r.IntN(len(halves))]<<16 | r.Uint64()<<32
	}
	var b []byte
	for range 4 * opThreads {
		b = binary.LittleEndian.AppendUint64(b, value())
	}
	return b
}

func TestExactOps(t *testing.T) {
	d := openDevice(t)
	for name, ops := range exactOps {
		t.Run(name, func(t *testing.T) {
			m, plans := parse(t, opKernel(ops))
			p := write(t, m, plans)
			k := kernelOf(t, p, "ops")
			if log, err := d.Build(optionsFor(), p.Text); err != nil {
				t.Fatalf("%v\n%s", err, log)
			}
			seed := rand.New(rand.NewPCG(1, uint64(len(name))))
			in := opInputs(seed)
			l := &launch{kernel: "ops", grid: [3]uint32{1, 1, 1}, block: [3]uint32{opThreads, 1, 1}, data: append(in, make([]byte, 8*len(ops)*opThreads)...)}
			got, _ := onDevice(t, d, m, k, k.Entry, l, nil, nil)
			want, _ := onInterp(t, m, k.Plan, l, nil)
			le := binary.LittleEndian
			for i, op := range ops {
				bad := 0
				for j := range opThreads {
					at := 32*opThreads + 8*(i*opThreads+j)
					if g, w := le.Uint64(got[at:]), le.Uint64(want[at:]); g != w {
						if bad == 0 {
							t.Errorf("%s: of %x, %x, %x, %x: %#x, want %#x", op, le.Uint64(in[32*j:]), le.Uint64(in[32*j+8:]), le.Uint64(in[32*j+16:]), le.Uint64(in[32*j+24:]), g, w)
						}
						bad++
					}
				}
				if bad > 1 {
					t.Errorf("%s: %d differ", op, bad)
				}
			}
		})
	}
}
