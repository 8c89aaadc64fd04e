// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// The kernels of the toys: for a real GPU as PTX, for the stand-in by name
// (kernel.c). add gives each word to one thread; spin and meet run as one.
static const char toy_ptx[] =
	".version 7.0\n"
	".target sm_70\n"
	".address_size 64\n"
	".visible .entry add(.param .u64 p, .param .u64 n, .param .u32 d)\n"
	"{\n"
	".reg .pred %q; .reg .b32 %a, %b, %c, %v, %x; .reg .b64 %i, %m, %s, %o;\n"
	"ld.param.u64 %s, [p]; ld.param.u64 %m, [n]; ld.param.u32 %v, [d];\n"
	"mov.u32 %a, %ctaid.x; mov.u32 %b, %ntid.x; mov.u32 %c, %tid.x;\n"
	"mad.wide.u32 %i, %a, %b, 0; cvt.u64.u32 %o, %c; add.u64 %i, %i, %o;\n"
	"setp.ge.u64 %q, %i, %m; @%q bra DONE;\n"
	"shl.b64 %o, %i, 2; add.u64 %o, %o, %s; cvta.to.global.u64 %o, %o;\n"
	"ld.global.u32 %x, [%o]; add.u32 %x, %x, %v; st.global.u32 [%o], %x;\n"
	"DONE: ret;\n"
	"}\n"
	".visible .entry spin(.param .u64 ns)\n"
	"{\n"
	".reg .pred %q; .reg .b64 %n, %a, %b;\n"
	"ld.param.u64 %n, [ns]; mov.u64 %a, %globaltimer;\n"
	"LOOP: mov.u64 %b, %globaltimer; sub.u64 %b, %b, %a; setp.lt.u64 %q, %b, %n; @%q bra LOOP;\n"
	"ret;\n"
	"}\n"
	".visible .entry meet(.param .u64 p, .param .u32 n, .param .u32 me, .param .u32 k)\n"
	"{\n"
	".reg .pred %q; .reg .b32 %n, %m, %k, %i, %x; .reg .b64 %p, %o;\n"
	"ld.param.u64 %p, [p]; ld.param.u32 %n, [n]; ld.param.u32 %m, [me]; ld.param.u32 %k, [k];\n"
	"cvta.to.global.u64 %p, %p; mul.wide.u32 %o, %m, 4; add.u64 %o, %o, %p;\n"
	"st.volatile.global.u32 [%o], %k; membar.sys; mov.u32 %i, 0;\n"
	"NEXT: mul.wide.u32 %o, %i, 4; add.u64 %o, %o, %p;\n"
	"WAIT: ld.volatile.global.u32 %x, [%o]; setp.lt.u32 %q, %x, %k; @%q bra WAIT;\n"
	"add.u32 %i, %i, 1; setp.lt.u32 %q, %i, %n; @%q bra NEXT;\n"
	"ret;\n"
	"}\n";
