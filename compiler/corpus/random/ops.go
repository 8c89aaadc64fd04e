// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package random

import "strings"

// ops are what computes: an opcode, its result and its operands. p, h, r and d are
// registers of 1, 16, 32 and 64 bits; k, i and j the last three, or an integer; f and
// g of 32 and 64, or a floating point number; b a byte. Results are the same to the
// bit everywhere: what PTX calls approximate is not here.
var ops = expand(
	"add.{u32,s32,sat.s32} r i i", "add.{u64,s64} d j j", "add.{u16,s16} h k k", "add.{u16x2,s16x2} r r r",
	"sub.{u32,s32,sat.s32} r i i", "sub.{u64,s64} d j j", "sub.{u16,s16} h k k",
	"mul.{lo,hi}.{u32,s32} r i i", "mul.{lo,hi}.{u64,s64} d j j", "mul.{lo,hi}.{u16,s16} h k k", "mul.wide.{u32,s32} d i i", "mul.wide.{u16,s16} r k k",
	"mad.{lo,hi}.{u32,s32} r i i i", "mad.{lo,hi}.{u64,s64} d j j j", "mad.{lo,hi}.{u16,s16} h k k k", "mad.wide.{u32,s32} d i i j", "mad.wide.{u16,s16} r k k i",
	"mad.hi.sat.s32 r i i i", "mul24.{lo,hi}.{u32,s32} r i i", "mad24.{lo,hi}.{u32,s32} r i i i", "mad24.hi.sat.s32 r i i i",
	"sad.{u32,s32} r i i i", "sad.{u64,s64} d j j j", "sad.{u16,s16} h k k k",
	"{div,rem}.{u32,s32} r i i", "{div,rem}.{u64,s64} d j j", "{div,rem}.{u16,s16} h k k",
	"{abs,neg}.s32 r i", "{abs,neg}.s64 d j", "{abs,neg}.s16 h k",
	"{min,max}.{u32,s32} r i i", "{min,max}.{u64,s64} d j j", "{min,max}.{u16,s16} h k k", "{min,max}.{u16x2,s16x2,relu.s16x2} r r r", "{min,max}.relu.s32 r r r",
	"{and,or,xor}.b32 r i i", "{and,or,xor}.b64 d j j", "{and,or,xor}.b16 h k k", "{and,or,xor}.pred p p p",
	"{not,cnot}.b32 r i", "{not,cnot}.b64 d j", "{not,cnot}.b16 h k", "not.pred p p", "mov.pred p p",
	"lop3.b32 r i i i b", "lop3.{and,or}.b32 r|p i i i b p",
	"shl.b32 r i i", "shr.{b32,u32,s32} r i i", "shl.b64 d j i", "shr.{u64,s64} d j i", "shl.b16 h k i", "shr.{u16,s16} h k i",
	"shf.{l,r}.{wrap,clamp}.b32 r i i i", "{popc,clz}.b32 r i", "{popc,clz}.b64 r j", "bfind.{u32,s32,shiftamt.u32,shiftamt.s32} r i", "bfind.{u64,s64,shiftamt.u64} r j",
	"brev.b32 r i", "brev.b64 d j", "fns.b32 r i b i", "bfe.{u32,s32} r i b b", "bfe.{u64,s64} d j b b", "bfi.b32 r i i b b", "bfi.b64 d j j b b",
	"szext.{wrap,clamp}.{u32,s32} r i i", "bmsk.{wrap,clamp}.b32 r i i", "dp4a.{u32,s32}.{u32,s32} r i i i", "dp2a.{lo,hi}.{u32,s32}.{u32,s32} r i i i",
	"prmt.b32 r i i i", "prmt.b32.{f4e,b4e,rc8,ecl,ecr,rc16} r i i i",
	"mov.b32 r {h,h}", "mov.b32 {h,h} r", "mov.b64 d {r,r}", "mov.b64 {r,r} d", "mov.b64 d {h,h,h,h}", "mov.b64 {h,h,h,h} d",
	"selp.b32 r i i p", "selp.b64 d j j p", "selp.b16 h k k p", "slct.{u32,b32}.s32 r i i i", "slct.{u64,f64}.f32 d d d f", "slct.ftz.b32.f32 r r r f",
	"setp.{eq,ne,lt,le,gt,ge}.{u32,s32} p i i", "setp.{lo,ls,hi,hs}.u32 p|p i i", "setp.{eq,ne,lt,le,gt,ge}.{u64,s64} p j j", "setp.{eq,lt,ge}.{u16,s16} p|p k k",
	"setp.{eq,ne}.b32 p i i", "setp.{lt,ne}.{and,or,xor}.s32 p|p i i p", "setp.{eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}.f32 p f f",
	"setp.{lt,geu}.ftz.{and,or,xor}.f32 p|p f f p", "setp.{eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}.f64 p g g", "setp.{lt,nan,geu}.{f16,bf16} p h h",
	"set.{lt,geu}.{u32,s32,f32}.f32 r f f", "set.{eq,lt}.{u32,f32}.{u32,s32} r i i", "set.lt.{and,or,xor}.u32.f64 r g g p", "set.{lt,nan}.f16x2.f16x2 r r r",
	"testp.{finite,infinite,number,notanumber,normal,subnormal}.f32 p r", "testp.{finite,infinite,number,notanumber,normal,subnormal}.f64 p d",
	"{add,sub,mul}.f32 r f f", "{add,sub,mul}.{rn,rz,rm,rp}{,.ftz}.f32 r f f", "{add,sub,mul}.{rn,rm}.ftz.sat.f32 r f f", "fma.{rn,rz,rm,rp}{,.ftz}.f32 r f f f", "fma.{rn,rp}.sat.f32 r f f f", "mad.rn.f32 r f f f",
	"div.{rn,rz,rm,rp}{,.ftz}.f32 r f f", "{rcp,sqrt}.{rn,rz,rm,rp}{,.ftz}.f32 r f",
	"{abs,neg}{,.ftz}.f32 r f", "copysign.f32 r f f", "{min,max}{,.ftz}{,.NaN}{,.xorsign.abs}.f32 r f f", "{min,max}{,.NaN}.f32 r f f f",
	"{add,sub,mul}.{rn,rz,rm,rp}.f64 d g g", "fma.{rn,rz,rm,rp}.f64 d g g g", "div.{rn,rz,rm,rp}.f64 d g g", "{rcp,sqrt}.{rn,rz,rm,rp}.f64 d g",
	"{abs,neg}.f64 d g", "copysign.f64 d g g", "{min,max}.f64 d g g", "{add,sub,mul}{,.rn}{,.ftz}.f32x2 d d d", "fma.{rn,rz}.f32x2 d d d d",
	"{add,sub,mul}{,.rn}{,.ftz}{,.sat}.f16 h h h", "{add,sub,mul}.bf16 h h h", "{add,sub,mul}.{f16x2,bf16x2} r r r",
	"fma.rn{,.ftz,.sat,.relu}.f16 h h h h", "fma.rn{,.relu}.bf16 h h h h", "fma.rn{,.relu}.{f16x2,bf16x2} r r r r", "add.rn.f32.{f16,bf16} r h f", "fma.rn.f32.{f16,bf16} r h h f",
	"{abs,neg}.{f16,bf16} h h", "{abs,neg}.{f16x2,bf16x2} r r", "{min,max}{,.NaN}{,.xorsign.abs}.{f16,bf16} h h h", "{min,max}.{f16x2,bf16x2} r r r",
	"cvt.{u8,s8,u16,s16,u32,s32}.{u32,s32} r r", "cvt.sat.{u8,s8,u16,s16}.{u32,s32} r r", "cvt.sat.{u32.s32,s32.u32} r r", "cvt.{u64,s64}.{u8,s8,u16,s16,u32,s32} d r", "cvt{,.sat}.{u8,s8,u16,u32,s32}.{u64,s64} r d", "cvt.sat.{u64.s64,s64.u64,u64.s32} d d",
	"cvt.{rni,rzi,rmi,rpi}{,.ftz}.{u8,s8,u16,s16,u32,s32}.f32 r r", "cvt.{rni,rzi}.{u64,s64}.f32 d r", "cvt.{rni,rzi,rmi,rpi}.{u16,u32,s32}.f64 r d", "cvt.{rni,rzi}.{u64,s64}.f64 d d",
	"cvt.{rni,rzi}.{u8,s16,u32,s32}.f16 r h", "cvt.{rni,rzi}.{u32,s32}.bf16 r h", "cvt.{rni,rzi}.s16.bf16 h h", "cvt.{rn,rz,rm,rp}.f32.{u8,s8,u16,s16,u32,s32} r r", "cvt.{rn,rz,rm,rp}.f32.{u64,s64} r d", "cvt.{rn,rz}.f64.{u32,s32} d r",
	"cvt.{rn,rz,rm,rp}.f64.{u64,s64} d d", "cvt.{rn,rz}.f16.{u8,s8,u16,s16,u32,s32} h r", "cvt.rn.bf16.{u32,s32} h r", "cvt{,.ftz}.f64.f32 d r", "cvt.{rn,rz,rm,rp}{,.ftz,.sat}.f32.f64 r d",
	"cvt.{rn,rz}{,.relu}.{f16,bf16}.f32 h r", "cvt.f32.{f16,bf16} r h", "cvt.f64.f16 d h", "cvt.{rn,rz,rm,rp}.f16.f64 h d", "cvt.{rni,rzi,rmi,rpi}{,.ftz}.f32.f32 r r", "cvt.sat.f32.f32 r r",
	"cvt.{rni,rzi,rmi,rpi}.f64.f64 d d", "cvt.{rni,rzi}.f16.f16 h h", "cvt.{rn,rz}{,.relu}.{f16x2,bf16x2}.f32 r r r", "cvt.rna.tf32.f32 r r",
	"cvt.rn.satfinite{,.relu}.{e4m3x2,e5m2x2}.f32 h r r", "cvt.rn{,.relu}.f16x2.{e4m3x2,e5m2x2} r h", "cvt.pack.sat.{u8,s8}.s32.b32 r i i i", "cvt.pack.sat.{u16,s16}.s32 r i i",
)

// expand writes out {a,b} in all combinations, but for braces around operands.
func expand(patterns ...string) []string {
	var all []string
	for _, p := range patterns {
		name, operands, _ := strings.Cut(p, " ")
		i := strings.IndexByte(name, '{')
		if i < 0 {
			all = append(all, p)
			continue
		}
		j := i + strings.IndexByte(name[i:], '}')
		for word := range strings.SplitSeq(name[i+1:j], ",") {
			all = append(all, expand(name[:i]+word+name[j+1:]+" "+operands)...)
		}
	}
	return all
}
