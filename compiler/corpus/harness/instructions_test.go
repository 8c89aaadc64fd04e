// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/corpus"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ptx"
)

// instruction is one use of an opcode, by 64 threads, and what PTX's ISA says that
// thread t has afterwards in a register: %d, %r, %h or %p, by the first letter. f: in
// %r is a number that is only near, of an approximate operation.
type instruction struct {
	result byte
	opcode string
	text   string
	want   func(t uint64) uint64
}

func same(v uint64) func(uint64) uint64 { return func(uint64) uint64 { return v } }

func float(v float64) func(uint64) uint64 { return same(uint64(math.Float32bits(float32(v)))) }

func double(v float64) func(uint64) uint64 { return same(math.Float64bits(v)) }

// pair is of two values of 16 bits.
func pair(low, high uint64) uint64 { return low | high<<16 }

// ones is a matrix operand that has the same in each element: registers, and the text
// that fills them.
func ones(name string, n int, value string) (list, fill string) {
	var regs []string
	for i := range n {
		reg := fmt.Sprintf("%%%s%d", name, i)
		regs = append(regs, reg)
		fill += fmt.Sprintf("mov.b32 %s, %s; ", reg, value)
	}
	return "{" + strings.Join(regs, ", ") + "}", fill
}

// product is an mma of matrices that are all 1, 2 for c, of which %r gets an element
// of d.
func product(opcode string, nd, na, nb, nc int, one, two string) string {
	d, _ := ones("m", nd, "0")
	a, fillA := ones("u", na, one)
	b, fillB := ones("v", nb, one)
	c, fillC := ones("w", nc, two)
	return fillA + fillB + fillC + fmt.Sprintf("%s %s, %s, %s, %s; mov.b32 %%r, %%m0;", opcode, d, a, b, c)
}

// Thread t has: %t its number; %lane; %own 64 bytes of shared memory, aligned; %tile
// 2048 bytes of its warp's; %in an array of 64-bit numbers, of which number i is
// 0x100000001*i; %place 64 bytes of global memory, 0 in the beginning.
var instructions = []instruction{
	{'r', "add", "add.sat.s32 %r, 0x7fffffff, 5;", same(0x7fffffff)},
	{'d', "addc", "add.cc.u64 %d, -1, 2; addc.u64 %d, 10, 20;", same(31)},
	{'r', "sub", "sub.s32 %r, %t, 3;", func(t uint64) uint64 { return uint64(uint32(t) - 3) }},
	{'r', "subc", "sub.cc.u32 %r, 1, 2; subc.u32 %r, 10, 3;", same(6)},
	{'d', "mul", "mul.wide.s32 %d, -3, 5;", same(math.MaxUint64 - 14)},
	{'r', "mad", "mad.hi.sat.s32 %r, 0x7fffffff, 0x7fffffff, 0x7fffffff;", same(0x7fffffff)},
	{'r', "madc", "add.cc.u32 %r, -1, -1; madc.lo.u32 %r, 3, 4, 5;", same(18)},
	{'r', "mul24", "mul24.hi.u32 %r, 0xabcdef12, 0x345678;", same((0xcdef12 * 0x345678) >> 16)},
	{'r', "mad24", "mad24.lo.s32 %r, 0xffffff, 7, 9;", same(2)},
	{'h', "sad", "mov.b16 %h0, -5; sad.s16 %h, %h0, 3, 10;", same(18)},
	{'r', "div", "div.s32 %r, -7, 2;", same(0xfffffffd)},
	{'f', "div", "mov.b32 %r0, 0f40E00000; div.full.f32 %r, %r0, 0f40000000;", float(3.5)},
	{'r', "rem", "rem.s32 %r, -7, 3;", same(0xffffffff)},
	{'r', "abs", "abs.s32 %r, -7;", same(7)},
	{'d', "neg", "neg.f64 %d, 0d3FF0000000000000;", double(-1)},
	{'r', "min", "min.NaN.f32 %r, 0f7FC00000, 0f3F800000;", same(0x7fffffff)},
	{'r', "max", "max.s16x2 %r, 0x0001ffff, 0x00020000;", same(0x00020000)},
	{'r', "popc", "popc.b64 %r, 0xff00ff00000001;", same(17)},
	{'r', "clz", "clz.b32 %r, %t;", func(t uint64) uint64 { return uint64(bits.LeadingZeros32(uint32(t))) }},
	{'r', "bfind", "bfind.shiftamt.u32 %r, 0x10000;", same(15)},
	{'r', "fns", "fns.b32 %r, 0b101100, 0, 2;", same(3)},
	{'r', "brev", "brev.b32 %r, %t;", func(t uint64) uint64 { return uint64(bits.Reverse32(uint32(t))) }},
	{'r', "bfe", "bfe.s32 %r, 0xf0, 4, 4;", same(0xffffffff)},
	{'r', "bfi", "bfi.b32 %r, 0xab, 0x11111111, 8, 8;", same(0x1111ab11)},
	{'r', "szext", "szext.wrap.s32 %r, 0x18, 37;", same(0xfffffff8)},
	{'r', "bmsk", "bmsk.clamp.b32 %r, 4, 8;", same(0xff0)},
	{'r', "dp4a", "dp4a.s32.s32 %r, 0x01ff0203, 0x05060708, 100;", same(100 + 5 - 6 + 14 + 24)},
	{'r', "dp2a", "dp2a.lo.u32.u32 %r, 0x00030002, 0x01020304, 100;", same(100 + 2*4 + 3*3)},
	{'p', "testp", "testp.subnormal.f32 %p, 0f00000001;", same(1)},
	{'r', "copysign", "copysign.f32 %r, 0fBF800000, 0f40000000;", float(-2)},
	{'r', "fma", "fma.rn.f32 %r, 0f3F800001, 0f3F800001, 0fBF800002;", float(1.0 / (1 << 46))},
	{'d', "rcp", "rcp.rn.f64 %d, 0d4010000000000000;", double(0.25)},
	{'r', "sqrt", "sqrt.rn.f32 %r, 0f40000000;", same(0x3fb504f3)},
	{'f', "rsqrt", "rsqrt.approx.f32 %r, 0f40800000;", float(0.5)},
	{'f', "sin", "sin.approx.f32 %r, 0f3F800000;", float(math.Sin(1))},
	{'f', "cos", "cos.approx.f32 %r, 0f3F800000;", float(math.Cos(1))},
	{'f', "lg2", "lg2.approx.f32 %r, 0f41200000;", float(math.Log2(10))},
	{'f', "ex2", "ex2.approx.f32 %r, 0f3F000000;", float(math.Sqrt2)},
	{'f', "tanh", "tanh.approx.f32 %r, 0f3F000000;", float(math.Tanh(0.5))},
	{'r', "set", "set.lt.u32.s32 %r, -1, 1;", same(0xffffffff)},
	{'p', "setp", "setp.hi.u32 %p, %t, 40;", func(t uint64) uint64 { return (40 - t) >> 63 }},
	{'r', "selp", "setp.eq.u32 %p0, %t, 5; selp.b32 %r, 7, 8, %p0;", func(t uint64) uint64 {
		if t == 5 {
			return 7
		}
		return 8
	}},
	{'r', "slct", "slct.u32.s32 %r, 7, 8, -1;", same(8)},
	{'r', "and", "and.b32 %r, %t, 6;", func(t uint64) uint64 { return t & 6 }},
	{'d', "or", "or.b64 %d, 0xf0, 0x0f;", same(0xff)},
	{'h', "xor", "mov.b16 %h0, 0x0ff0; xor.b16 %h, %h0, 0xffff;", same(0xf00f)},
	{'r', "not", "not.b32 %r, 1;", same(0xfffffffe)},
	{'r', "cnot", "cnot.b32 %r, 0;", same(1)},
	{'r', "lop3", "lop3.b32 %r, 0b1100, 0b1010, 0b1111, 0x96;", same(0b1001)},
	{'r', "shf", "shf.l.wrap.b32 %r, 0x80000000, 1, 33;", same(3)},
	{'r', "shl", "shl.b32 %r, 1, 32;", same(0)},
	{'r', "shr", "shr.s32 %r, 0x80000000, 40;", same(0xffffffff)},
	{'r', "mov", "mov.b32 {%h0, %h1}, 0x12345678; mov.b32 %r, {%h1, %h0};", same(0x56781234)},
	{'r', "shfl", "shfl.sync.bfly.b32 %r, %t, 3, 31, -1;", func(t uint64) uint64 { return t ^ 3 }},
	{'r', "shfl", "shfl.sync.up.b32 %r|%p0, %t, 2, 0x1800, -1;", func(t uint64) uint64 { return t - 2*min(t%8/2, 1) }},
	{'r', "prmt", "prmt.b32 %r, 0x33221100, 0x77665544, 0x70f4;", same(0x77000044)},
	{'d', "ld", "ld.global.v2.u64 {%d0, %d}, [%in+32];", same(5 * 0x100000001)},
	{'d', "ldu", "ldu.global.u64 %d, [%in+24];", same(3 * 0x100000001)},
	{'d', "st", "st.shared.b8 [%own+1], %t; st.shared.b8 [%own], 7; ld.shared.u16 %d, [%own];", func(t uint64) uint64 { return t<<8 | 7 }},
	{'d', "prefetch", "prefetch.global.L2 [%in]; ld.global.u64 %d, [%in+8];", same(0x100000001)},
	{'d', "prefetchu", "prefetchu.L1 [%in]; ld.global.u64 %d, [%in+8];", same(0x100000001)},
	{'d', "applypriority", "applypriority.global.L2::evict_normal [%in], 128; ld.global.u64 %d, [%in+8];", same(0x100000001)},
	{'d', "discard", "discard.global.L2 [%place], 128; st.global.u64 [%place+56], %in; mov.b64 %d, 4;", same(4)},
	{'d', "createpolicy", "createpolicy.fractional.L2::evict_last.b64 %d0, 1.0; ld.global.L2::cache_hint.u64 %d, [%in+16], %d0;", same(2 * 0x100000001)},
	{'p', "isspacep", "cvta.shared.u64 %d0, %own; isspacep.shared %p, %d0;", same(1)},
	{'p', "isspacep", "cvta.shared.u64 %d0, %own; isspacep.global %p, %d0;", same(0)},
	{'r', "cvta", "st.shared.u32 [%own], %t; cvta.shared.u64 %d0, %own; ld.u32 %r, [%d0];", func(t uint64) uint64 { return t }},
	{'r', "cvt", "cvt.rni.sat.u8.f32 %r, 0f43960000;", same(255)},
	{'h', "cvt", "cvt.rz.bf16.f32 %h, 0f3FFFFFFF;", same(0x3fff)},
	{'r', "cvt", "cvt.rna.tf32.f32 %r, 0f3F801000;", same(0x3f802000)},
	{'d', "cp.async", "cp.async.ca.shared.global [%own], [%in+40], 8; cp.async.wait_all; ld.shared.u64 %d, [%own];", same(5 * 0x100000001)},
	{'d', "cp.async", "st.shared.u64 [%own+8], -1; cp.async.cg.shared.global [%own], [%in+16], 16, 8; cp.async.commit_group; cp.async.wait_group 0; ld.shared.u64 %d, [%own+8];", same(0)},
	{'r', "bra", "mov.b32 %r, 1; setp.lt.u32 %p0, %t, 9; @%p0 bra L; mov.b32 %r, 2; L:", func(t uint64) uint64 {
		if t < 9 {
			return 1
		}
		return 2
	}},
	{'r', "brx.idx", "and.b32 %r0, %t, 3; S: .branchtargets A, B, C, A; brx.idx %r0, S; A: mov.b32 %r, 5; bra E; B: mov.b32 %r, 6; bra E; C: mov.b32 %r, 7; E:", func(t uint64) uint64 {
		return []uint64{5, 6, 7, 5}[t%4]
	}},
	{'r', "call", ".param .b32 a; .param .b32 b; st.param.b32 [a], %t; call (b), triple, (a); ld.param.b32 %r, [b];", func(t uint64) uint64 { return 3 * t }},
	{'r', "ret", ".param .b32 a; .param .b32 b; st.param.b32 [a], 1000; call (b), triple, (a); ld.param.b32 %r, [b];", same(1)},
	{'r', "bar", "bar.sync 0; st.shared.u32 [%own], %t; bar.sync 1; xor.b32 %r0, %t, 63; sub.s32 %r0, %r0, %t; mul.wide.s32 %d0, %r0, 64; add.u64 %d0, %d0, %own; ld.shared.u32 %r, [%d0]; bar.sync 0;", func(t uint64) uint64 { return t ^ 63 }},
	{'r', "bar", "setp.lt.u32 %p0, %t, 5; bar.red.popc.u32 %r, 0, %p0;", same(5)},
	{'r', "bar", "bar.sync 0; st.shared.u32 [%own], 1; setp.ge.u32 %p0, %t, 32; @%p0 bra B; st.shared.u32 [%own], 77; bar.arrive 2, 64; mov.b32 %r, 77; bra E; B: bar.sync 2, 64; ld.shared.u32 %r, [%own-2048]; E: bar.sync 0;", same(77)},
	{'p', "barrier", "setp.lt.u32 %p0, %t, 63; barrier.red.and.pred %p, 3, 64, %p0;", same(0)},
	{'r', "barrier", "shr.u32 %r0, %t, 5; add.u32 %r0, %r0, 4; st.shared.u32 [%own], %t; barrier.sync %r0, 32; xor.b32 %r1, %t, 31; sub.s32 %r1, %r1, %t; mul.wide.s32 %d0, %r1, 64; add.u64 %d0, %d0, %own; ld.shared.u32 %r, [%d0]; bar.sync 0;", func(t uint64) uint64 { return t ^ 31 }},
	{'r', "membar", "st.shared.u32 [%own], 3; membar.gl; ld.shared.u32 %r, [%own];", same(3)},
	{'r', "fence", "st.shared.u32 [%own], 4; fence.acq_rel.sys; ld.shared.u32 %r, [%own];", same(4)},
	{'r', "atom", "st.shared.u32 [%own], 9; atom.shared.inc.u32 %r0, [%own], 9; ld.shared.u32 %r1, [%own]; mad.lo.u32 %r, %r0, 16, %r1;", same(9 * 16)},
	{'r', "atom", "st.global.u32 [%place], 0; atom.global.dec.u32 %r0, [%place], 9; ld.global.u32 %r1, [%place]; mad.lo.u32 %r, %r0, 16, %r1;", same(9)},
	{'h', "atom", "st.shared.u32 [%own], 0x20001; mov.b16 %h0, 1; atom.shared.cas.b16 %h1, [%own], %h0, 5; ld.shared.u16 %h, [%own];", same(5)},
	{'d', "atom", "st.global.u64 [%place], 0; atom.global.add.f64 %d0, [%place], 0d3FF0000000000000; atom.global.exch.b64 %d, [%place], 0;", double(1)},
	{'d', "atom", "st.global.u64 [%place], -3; atom.global.max.s64 %d0, [%place], -2; atom.global.cas.b64 %d, [%place], -2, 1; ld.global.u64 %d, [%place];", same(1)},
	{'r', "red", "bar.sync 0; st.shared.u32 [%tile], 0; bar.sync 0; red.shared.add.u32 [%tile], %lane; bar.sync 0; ld.shared.u32 %r, [%tile]; bar.sync 0;", same(31 * 16)},
	{'r', "vote", "setp.lt.u32 %p0, %lane, 3; vote.sync.ballot.b32 %r, %p0, -1;", same(7)},
	{'p', "vote", "setp.lt.u32 %p0, %t, 40; vote.sync.uni.pred %p, %p0, -1;", func(t uint64) uint64 { return 1 - t/32 }},
	{'r', "match.all", "match.all.sync.b32 %r|%p0, %t, -1;", same(0)},
	{'r', "match.any", "and.b32 %r0, %t, 1; match.any.sync.b32 %r, %r0, -1;", func(t uint64) uint64 { return 0x55555555 << (t & 1) }},
	{'r', "activemask", "bar.sync 0; activemask.b32 %r;", same(0xffffffff)},
	{'r', "redux", "redux.sync.add.u32 %r, %lane, -1;", same(31 * 16)},
	{'r', "griddepcontrol", "griddepcontrol.wait; griddepcontrol.launch_dependents; mov.b32 %r, 5;", same(5)},
	{'r', "elect", "elect.sync %r0|%p0, -1; vote.sync.ballot.b32 %r1, %p0, -1; bfind.u32 %r2, %r1; popc.b32 %r3, %r1; sub.u32 %r2, %r2, %r0; add.u32 %r, %r3, %r2;", same(1)},
	{'r', "mbarrier.init", "mbarrier.init.shared.b64 [%own], 2; mbarrier.arrive.shared.b64 %d0, [%own]; mbarrier.pending_count.b64 %r, %d0;", same(2)},
	{'p', "mbarrier.arrive", "mbarrier.init.shared.b64 [%own], 1; mbarrier.arrive.shared.b64 %d0, [%own]; mbarrier.test_wait.shared.b64 %p, [%own], %d0;", same(1)},
	{'p', "mbarrier.test_wait", "mbarrier.init.shared.b64 [%own], 2; mbarrier.arrive.shared.b64 %d0, [%own]; mbarrier.test_wait.shared.b64 %p, [%own], %d0;", same(0)},
	{'p', "mbarrier.try_wait", "mbarrier.init.shared.b64 [%own], 1; mbarrier.arrive.shared.b64 %d0, [%own]; mbarrier.try_wait.parity.shared.b64 %p, [%own], 0;", same(1)},
	{'p', "mbarrier.arrive_drop", "mbarrier.init.shared.b64 [%own], 2; mbarrier.arrive_drop.shared.b64 %d0, [%own]; mbarrier.arrive.shared.b64 %d0, [%own]; mbarrier.arrive.shared.b64 %d0, [%own]; mbarrier.test_wait.shared.b64 %p, [%own], %d0;", same(1)},
	{'r', "mbarrier.pending_count", "mbarrier.init.shared.b64 [%own], 9; mbarrier.arrive.shared.b64 %d0, [%own], 4; mbarrier.arrive.shared.b64 %d0, [%own]; mbarrier.pending_count.b64 %r, %d0;", same(5)},
	{'p', "mbarrier.expect_tx", "mbarrier.init.shared.b64 [%own], 1; mbarrier.expect_tx.relaxed.cta.shared.b64 [%own], 16; mbarrier.test_wait.parity.shared.b64 %p, [%own], 0;", same(0)},
	{'r', "mbarrier.inval", "mbarrier.init.shared.b64 [%own], 1; mbarrier.inval.shared.b64 [%own]; st.shared.u32 [%own], 6; ld.shared.u32 %r, [%own];", same(6)},
	{'p', "cp.async.mbarrier.arrive", "mbarrier.init.shared.b64 [%own], 1; cp.async.mbarrier.arrive.noinc.shared.b64 [%own]; mbarrier.test_wait.parity.shared.b64 %p, [%own], 0;", same(1)},
	{'r', "mma", product("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 4, 4, 2, 4, "0x3c003c00", "0f40000000"), float(18)},
	{'r', "mma", product("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32", 4, 2, 1, 4, "0x3f803f80", "0f40000000"), float(10)},
	{'r', "mma", product("mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32", 4, 2, 1, 4, "0x3f800000", "0f40000000"), float(6)},
	{'r', "mma", product("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32", 2, 1, 1, 2, "0x01010101", "2"), same(18)},
	{'r', "wmma.mma", product("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32", 8, 8, 8, 8, "0x3c003c00", "0f40000000"), float(18)},
	{'r', "wmma.load", "shl.b32 %r0, %lane, 4; cvt.u64.u32 %d0, %r0; add.u64 %d0, %d0, %tile; st.shared.v4.b32 [%d0], {0x3c003c00, 0x3c003c00, 0x3c003c00, 0x3c003c00}; bar.warp.sync -1; wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%u0,%u1,%u2,%u3,%u4,%u5,%u6,%u7}, [%tile], 16; mov.b32 %r, %u5;", same(0x3c003c00)},
	{'r', "wmma.store", "mov.b32 %u0, 0f41100000; wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [%tile], {%u0,%u0,%u0,%u0,%u0,%u0,%u0,%u0}, 16; bar.warp.sync -1; mul.wide.u32 %d0, %lane, 32; add.u64 %d0, %d0, %tile; ld.shared.b32 %r, [%d0]; bar.warp.sync -1;", float(9)},
	{'r', "ldmatrix", fillTile + "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r}, [%d0]; bar.warp.sync -1;", func(t uint64) uint64 {
		return pair(2*(t%32), 2*(t%32)+1)
	}},
	{'r', "ldmatrix", fillTile + "ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%r}, [%d0]; bar.warp.sync -1;", transposed},
	{'r', "stmatrix", "and.b32 %r0, %lane, 7; mul.wide.u32 %d0, %r0, 16; add.u64 %d0, %d0, %tile; stmatrix.sync.aligned.m8n8.x1.shared.b16 [%d0], {%lane}; bar.warp.sync -1; mul.wide.u32 %d0, %lane, 4; add.u64 %d0, %d0, %tile; ld.shared.u32 %r, [%d0]; bar.warp.sync -1;", func(t uint64) uint64 { return t % 32 }},
	{'r', "movmatrix", "shl.b32 %r0, %lane, 1; add.u32 %r1, %r0, 1; shl.b32 %r1, %r1, 16; or.b32 %r0, %r0, %r1; movmatrix.sync.aligned.m8n8.trans.b16 %r, %r0;", transposed},
	{'r', "alloca", "alloca.u64 %d0, 16; st.local.u32 [%d0+4], %t; ld.local.u32 %r, [%d0+4];", func(t uint64) uint64 { return t }},
	{'p', "stacksave", "stacksave.u64 %d0; alloca.u64 %d1, 16; stackrestore.u64 %d0; stacksave.u64 %d2; setp.eq.u64 %p, %d0, %d2;", same(1)},
	{'p', "stackrestore", "stacksave.u64 %d0; alloca.u64 %d1, 32; stackrestore.u64 %d0; alloca.u64 %d2, 32; setp.eq.u64 %p, %d1, %d2;", same(1)},
	{'r', "nanosleep", "nanosleep.u32 1; mov.b32 %r, 8;", same(8)},
	{'r', "pmevent", "pmevent 1; mov.b32 %r, 9;", same(9)},
	{'r', "setmaxnreg", "setmaxnreg.inc.sync.aligned.u32 64; mov.b32 %r, 10;", same(10)},
}

// fillTile puts 0, 1, 2... into 8x8 elements of 16 bits; lanes 0 to 7 have in %d0 where
// a row begins.
const fillTile = "mul.wide.u32 %d0, %lane, 4; add.u64 %d0, %d0, %tile; shl.b32 %r0, %lane, 1; add.u32 %r1, %r0, 1; shl.b32 %r1, %r1, 16; or.b32 %r0, %r0, %r1; st.shared.u32 [%d0], %r0; bar.warp.sync -1; and.b32 %r0, %lane, 7; mul.wide.u32 %d0, %r0, 16; add.u64 %d0, %d0, %tile; "

// transposed is what a lane has of that matrix's columns.
func transposed(t uint64) uint64 {
	row, column := t%32/4, t%4*2
	return pair(8*column+row, 8*(column+1)+row)
}

const instructionThreads = 64

// instructionKernels has all instructions in one kernel, and what ends threads in
// another.
func instructionKernels() string {
	var s strings.Builder
	s.WriteString(`.version 8.8
.target sm_100a
.address_size 64
.func (.param .b32 b) triple(.param .b32 a) {
	.reg .b32 %x; .reg .pred %big;
	ld.param.b32 %x, [a];
	setp.ge.u32 %big, %x, 1000;
	@!%big bra SMALL;
	st.param.b32 [b], 1;
	ret;
SMALL:
	mul.lo.u32 %x, %x, 3;
	st.param.b32 [b], %x;
	ret;
}
.visible .entry k(.param .u64 in, .param .u64 out, .param .u64 places) {
	.reg .b64 %in, %out, %own, %tile, %place, %d, %d<6>;
	.reg .b32 %t, %lane, %r, %r<6>, %m<8>, %u<8>, %v<8>, %w<8>;
	.reg .b16 %h, %h<4>; .reg .pred %p, %p<4>;
	.shared .align 64 .b8 own[4096]; .shared .align 64 .b8 tile[4096];
	mov.u32 %t, %tid.x;
	mov.u32 %lane, %laneid;
	ld.param.u64 %in, [in];
	ld.param.u64 %out, [out];
	ld.param.u64 %place, [places];
	mad.wide.u32 %place, %t, 128, %place;
	mov.u64 %own, own;
	mad.wide.u32 %own, %t, 64, %own;
	mov.u64 %tile, tile;
	shr.u32 %r, %t, 5;
	mad.wide.u32 %tile, %r, 2048, %tile;
	mad.wide.u32 %out, %t, 8, %out;
`)
	for i, in := range instructions {
		fmt.Fprintf(&s, "\t{ %s }\n", in.text)
		switch in.result {
		case 'r', 'f':
			s.WriteString("\tcvt.u64.u32 %d, %r;\n")
		case 'h':
			s.WriteString("\tcvt.u64.u16 %d, %h;\n")
		case 'p':
			s.WriteString("\tselp.b64 %d, 1, 0, %p;\n")
		}
		fmt.Fprintf(&s, "\tst.global.u64 [%%out+%d], %%d;\n\tbar.sync 0;\n", 8*instructionThreads*i)
	}
	s.WriteString(`	ret;
}
.visible .entry ends(.param .u64 out) {
	.reg .b64 %out; .reg .b32 %t, %r; .reg .pred %p;
	ld.param.u64 %out, [out];
	mov.u32 %t, %tid.x;
	mad.wide.u32 %out, %t, 8, %out;
	and.b32 %r, %t, 1;
	setp.ne.u32 %p, %r, 0;
	@%p exit;
	st.global.u32 [%out], %t;
	ret;
}
.visible .entry traps() {
	trap;
}
`)
	return s.String()
}

// instructionCase has the kernels' buffers with what must be there.
func instructionCase() *corpus.Case {
	le := binary.LittleEndian
	in := &corpus.Buffer{Name: "in", Elem: corpus.U64}
	for i := range uint64(64) {
		in.Init = le.AppendUint64(in.Init, i*0x100000001)
	}
	in.Want = in.Init
	out := &corpus.Buffer{Name: "out", Elem: corpus.U64, Init: make([]byte, 8*instructionThreads*len(instructions))}
	for _, i := range instructions {
		for t := range uint64(instructionThreads) {
			out.Want = le.AppendUint64(out.Want, i.want(t))
		}
	}
	places := &corpus.Buffer{Name: "places", Elem: corpus.U64, Init: make([]byte, 128*instructionThreads)}
	ends := &corpus.Buffer{Name: "ends", Elem: corpus.U64, Init: make([]byte, 8*instructionThreads)}
	for t := range uint64(instructionThreads) {
		ends.Want = le.AppendUint64(ends.Want, t*(1-t%2))
	}
	block := [3]uint32{instructionThreads, 1, 1}
	grid := [3]uint32{1, 1, 1}
	return &corpus.Case{
		Name: "instructions", File: "instructions", Buffers: []*corpus.Buffer{in, out, places, ends},
		Launches: []corpus.Launch{
			{Kernel: "k", Grid: grid, Block: block, Args: []any{in, out, places}},
			{Kernel: "ends", Grid: grid, Block: block, Args: []any{ends}},
			{Kernel: "traps", Grid: grid, Block: block},
		},
	}
}

// checkInstructions compares what each instruction gave.
func checkInstructions(t *testing.T, p *Program) {
	t.Helper()
	got := map[string][]byte{}
	for _, b := range p.Case.Buffers {
		got[b.Name] = p.at(b.Addr, len(b.Init))
	}
	for i, in := range instructions {
		for n := range uint64(instructionThreads) {
			v := binary.LittleEndian.Uint64(got["out"][8*(uint64(i)*instructionThreads+n):])
			want := in.want(n)
			if in.result == 'f' {
				a, b := float64(math.Float32frombits(uint32(v))), float64(math.Float32frombits(uint32(want)))
				if math.Abs(a-b) > 1e-3*math.Abs(b) || math.IsNaN(a) {
					t.Errorf("%s: thread %d has %g, want %g", in.text, n, a, b)
					break
				}
			} else if v != want {
				t.Errorf("%s: thread %d has %#x, want %#x", in.text, n, v, want)
				break
			}
		}
	}
	for n := range instructionThreads {
		if v, want := got["ends"][8*n], byte(n*(1-n%2)); v != want {
			t.Errorf("exit: thread %d left %d, want %d", n, v, want)
		}
	}
}

// TestInstructions executes each opcode that is said to run everywhere, and wants of
// it what PTX's ISA says: by the interpreter, as it is written and behind the passes,
// as our PTX, and by PoCL.
func TestInstructions(t *testing.T) {
	text := instructionKernels()
	for name, make := range map[string]func(*testing.T) Device{
		"interpreter": func(*testing.T) Device { return Interpreter{} },
		"our PTX":     func(*testing.T) Device { return &Interpreted{} },
		"PoCL":        func(t *testing.T) Device { return pocl.take(t) },
	} {
		t.Run(name, func(t *testing.T) {
			p, err := Prepared(instructionCase(), text, base)
			if err != nil {
				t.Fatal(err)
			}
			d := make(t)
			for i, kernel := range p.Case.Launches {
				l, err := p.Launch(i)
				if err != nil {
					t.Fatal(err)
				}
				if err := d.Run(t.Context(), l, nil); (err != nil) != (kernel.Kernel == "traps") {
					t.Fatalf("%s: %v", kernel.Kernel, err)
				}
			}
			checkInstructions(t, p)
		})
	}
	t.Run("as it is written", func(t *testing.T) {
		m, err := Lower(text)
		if err != nil {
			t.Fatal(err)
		}
		p, _, err := New(instructionCase(), m, base+ProgramOffset)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 2 {
			l, err := p.Launch(i)
			if err != nil {
				t.Fatal(err)
			}
			if err := (Interpreter{}).Run(t.Context(), l, nil); err != nil {
				t.Fatal(err)
			}
		}
		checkInstructions(t, p)
	})
}

// TestEveryInstruction: no opcode that is said to run everywhere is missing there.
func TestEveryInstruction(t *testing.T) {
	tested := map[string]bool{"exit": true, "trap": true} // kernels of their own
	for _, in := range instructions {
		src, err := ptx.Parse(".version 8.8\n.target sm_100a\n.address_size 64\n.entry k() {" + in.text + "}")
		if err != nil {
			t.Fatalf("%s: %v", in.text, err)
		}
		used := in.opcode == "ret" // it is in the function that is called
		for _, s := range src.Decls[0].(*ptx.Func).Body.Stmts {
			if i, is := s.(*ptx.Instr); is {
				used = used || i.Op == in.opcode || strings.HasPrefix(i.Opcode()+".", in.opcode+".")
			}
		}
		if !used {
			t.Errorf("%s is not in %s", in.opcode, in.text)
		}
		tested[in.opcode] = true
	}
	for _, opcode := range ptx.Opcodes(ptx.Everywhere) {
		if !tested[opcode] {
			t.Errorf("nothing executes %s", opcode)
		}
	}
}
