// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// The kernels of gpuload as PTX, which the driver compiles for any GPU:
//
//   fill(p, n, seed)  p[i] = mix(seed + i)          for each of n 64-bit words
//   step(p, n)        p[i] += 1
//   sum(p, n, out)    *out += sum of p[i] * (i | 1)
//   beat(p, ns)       waits ns nanoseconds, then *p += 1; one thread
//
// mix is splitmix64, so that no two pages are alike and none
// can be compressed.
static const char kernels_ptx[] =
	".version 7.0\n"
	".target sm_75\n"
	".address_size 64\n"
	// %i: first word of this thread, %d: number of threads.
#define FIRST                                                          \
	".reg .pred %q; .reg .b32 %a, %b, %c; .reg .b64 %p, %n, %i, %d, %o, %x, %y, %s;\n" \
	"mov.u32 %a, %ctaid.x; mov.u32 %b, %ntid.x; mov.u32 %c, %tid.x;\n" \
	"mul.wide.u32 %i, %a, %b; cvt.u64.u32 %o, %c; add.u64 %i, %i, %o;\n" \
	"mov.u32 %a, %nctaid.x; mul.wide.u32 %d, %a, %b;\n" \
	"ld.param.u64 %p, [p]; cvta.to.global.u64 %p, %p; ld.param.u64 %n, [n];\n"
	".visible .entry fill(.param .u64 p, .param .u64 n, .param .u64 seed)\n"
	"{\n" FIRST
	"ld.param.u64 %s, [seed];\n"
	"NEXT: setp.ge.u64 %q, %i, %n; @%q bra DONE;\n"
	"add.u64 %x, %s, %i; mul.lo.u64 %x, %x, 0x9E3779B97F4A7C15;\n"
	"shr.u64 %y, %x, 30; xor.b64 %x, %x, %y; mul.lo.u64 %x, %x, 0xBF58476D1CE4E5B9;\n"
	"shr.u64 %y, %x, 27; xor.b64 %x, %x, %y; mul.lo.u64 %x, %x, 0x94D049BB133111EB;\n"
	"shr.u64 %y, %x, 31; xor.b64 %x, %x, %y;\n"
	"shl.b64 %o, %i, 3; add.u64 %o, %o, %p; st.global.u64 [%o], %x;\n"
	"add.u64 %i, %i, %d; bra NEXT;\n"
	"DONE: ret;\n"
	"}\n"
	".visible .entry step(.param .u64 p, .param .u64 n)\n"
	"{\n" FIRST
	"NEXT: setp.ge.u64 %q, %i, %n; @%q bra DONE;\n"
	"shl.b64 %o, %i, 3; add.u64 %o, %o, %p;\n"
	"ld.global.u64 %x, [%o]; add.u64 %x, %x, 1; st.global.u64 [%o], %x;\n"
	"add.u64 %i, %i, %d; bra NEXT;\n"
	"DONE: ret;\n"
	"}\n"
	".visible .entry sum(.param .u64 p, .param .u64 n, .param .u64 out)\n"
	"{\n" FIRST
	"mov.u64 %s, 0;\n"
	"NEXT: setp.ge.u64 %q, %i, %n; @%q bra DONE;\n"
	"shl.b64 %o, %i, 3; add.u64 %o, %o, %p; ld.global.u64 %x, [%o];\n"
	"or.b64 %y, %i, 1; mul.lo.u64 %x, %x, %y; add.u64 %s, %s, %x;\n"
	"add.u64 %i, %i, %d; bra NEXT;\n"
	"DONE: ld.param.u64 %o, [out]; cvta.to.global.u64 %o, %o;\n"
	"red.global.add.u64 [%o], %s;\n"
	"ret;\n"
	"}\n"
	".visible .entry beat(.param .u64 p, .param .u64 ns)\n"
	"{\n"
	".reg .pred %q; .reg .b32 %v; .reg .b64 %p, %n, %s, %t;\n"
	"ld.param.u64 %p, [p]; cvta.to.global.u64 %p, %p; ld.param.u64 %n, [ns];\n"
	"mov.u64 %s, %globaltimer;\n"
	"WAIT: mov.u64 %t, %globaltimer; sub.u64 %t, %t, %s; setp.lt.u64 %q, %t, %n; @%q bra WAIT;\n"
	"ld.volatile.global.u32 %v, [%p]; add.u32 %v, %v, 1; st.volatile.global.u32 [%p], %v;\n"
	"membar.sys;\n"
	"ret;\n"
	"}\n";
#undef FIRST
