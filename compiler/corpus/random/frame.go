// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package random

import (
	"fmt"
	"strconv"
	"strings"
)

func itoa(n int) string { return strconv.Itoa(n) }

func (g *generator) write(format string, args ...any) { fmt.Fprintf(&g.text, format, args...) }

// bytes is an initializer.
func (g *generator) bytes(n int) string {
	var list []string
	for _, b := range g.input(n / 8) {
		list = append(list, itoa(int(b)))
	}
	return strings.Join(list, ", ")
}

// begin begins a function.
func (g *generator) begin() {
	g.body.Reset()
	g.loops, g.size, g.called = 0, 0, false
}

// end writes the function that was begun.
func (g *generator) end(head string) {
	g.write("%s\n{\n", head)
	g.write("\t.reg .pred %%p<%d>, %%q<5>;\n\t.reg .b16 %%h<%d>;\n\t.reg .b32 %%r<%d>, %%t<6>, %%i<%d>;\n\t.reg .b64 %%d<%d>, %%a<4>;\n",
		numP, numH, numR, max(1, g.loops), numD)
	g.write("\t.local .align 16 .b8 array[%d];\n", localSize)
	g.text.WriteString(g.body.String())
	g.write("\tret;\n}\n")
}

// fill gives registers and the local array values, of %d0 to %d3.
func (g *generator) fill() {
	for i := range numR {
		g.emit("cvt.u32.u64 %%r%d, %%d%d;", i, i%numD)
		g.emit("add.u32 %%r%d, %%r%d, %d;", i, i, i/numD*99)
	}
	for i := range numH {
		g.emit("cvt.u16.u64 %%h%d, %%d%d;", i, (i+1)%numD)
	}
	for i := range numP {
		g.emit("setp.gt.s32 %%p%d, %%r%d, %d;", i, i, 100*i-100)
	}
	for i := range localSize / 8 {
		g.emit("st.local.b64 [array+%d], %%d%d;", 8*i, i%numD)
	}
}

// functions have two parameters and a result. Each calls those before it, and some
// call themselves, as often as the first parameter says: 0 to 3 times.
func (g *generator) functions() {
	g.write(".version 8.8\n.target sm_100a\n.address_size 64\n")
	g.write(".const .align 16 .b8 constants[64] = {%s};\n.global .align 16 .b8 globals[64] = {%s};\n", g.bytes(64), g.bytes(64))
	if !g.free {
		g.write(".extern .shared .align 16 .b8 dynamic[];\n.shared .align 16 .b8 places[%d];\n.shared .align 4 .b32 counters[%d];\n.shared .b32 cell;\n",
			16*g.threads, len(reductions))
	}
	g.inside = true
	for range g.n(4) {
		g.begin()
		name := "f" + itoa(g.callees)
		g.emit("ld.param.b64 %%d0, [b];")
		g.emit("ld.param.b32 %%t0, [a];")
		g.emit("not.b64 %%d1, %%d0;")
		g.emit("shl.b64 %%d2, %%d0, 13;")
		g.emit("mul.wide.u32 %%d3, %%t0, 77;")
		g.fill()
		g.statements(alone)
		if g.n(3) == 2 {
			g.emit("ld.param.b32 %%t0, [a];")
			g.emit("setp.eq.u32 %%q0, %%t0, 0;")
			g.emit("@%%q0 bra done;")
			g.emit("sub.u32 %%t0, %%t0, 1;")
			g.emit("{")
			g.emit(".param .b32 x; .param .b64 y; .param .b64 z;")
			g.emit("st.param.b32 [x], %%t0;")
			g.emit("st.param.b64 [y], %%d1;")
			g.emit("call (z), %s, (x, y);", name)
			g.emit("ld.param.b64 %%d2, [z];")
			g.emit("}")
			g.statements(alone)
			g.place("done")
		}
		g.emit("xor.b64 %%d0, %%d%d, %%d%d;", 1+g.n(2), 2+g.n(2))
		g.emit("cvt.u64.u32 %%d1, %s;", g.reg('r'))
		g.emit("add.u64 %%d0, %%d0, %%d1;")
		g.emit("st.param.b64 [c], %%d0;")
		g.end(fmt.Sprintf(".func (.param .b64 c) %s(.param .b32 a, .param .b64 b)", name))
		g.callees++
	}
	g.inside = false
}

// thread declares and computes what a function with barriers knows of its thread.
func (g *generator) thread() {
	g.uniform, g.perWarp = nil, nil
	for i := range numU {
		g.uniform, g.perWarp = append(g.uniform, "%u"+itoa(i)), append(g.perWarp, "%w"+itoa(i))
	}
	g.emit(".reg .b32 %%u<%d>, %%w<%d>, %%tid_, %%lane, %%warp, %%mask;", numU, numU)
	g.emit(".reg .b64 %%in, %%out, %%counts, %%own, %%cells, %%dyn, %%dyns;")
	g.emit("activemask.b32 %%mask;")
	g.emit("mov.u32 %%tid_, %%tid.x;")
	g.emit("mov.u32 %%lane, %%laneid;")
	g.emit("shr.u32 %%warp, %%tid_, 5;")
}

// places are the thread's in shared memory.
func (g *generator) places() {
	g.emit("mov.u64 %%cells, places;")
	g.emit("mad.wide.u32 %%own, %%tid_, 16, %%cells;")
	g.emit("mov.u64 %%dyns, dynamic;")
	g.emit("mad.wide.u32 %%dyn, %%tid_, 16, %%dyns;")
}

// together writes functions that all threads of a block call together.
func (g *generator) together() {
	if g.free {
		return
	}
	g.small = true
	for range g.n(3) {
		g.begin()
		g.thread()
		g.emit("ld.param.u32 %%u0, [a];")
		g.emit("ld.param.b64 %%d0, [b];")
		g.emit("ld.param.b64 %%in, [in];")
		g.emit("ld.param.b64 %%counts, [counts];")
		g.emit("add.u32 %%u1, %%u0, 1;")
		g.emit("mov.u32 %%u2, %%ntid.x;")
		for i := range numU {
			g.emit("add.u32 %%w%d, %%warp, %%u%d;", i, i)
		}
		g.places()
		g.emit("not.b64 %%d1, %%d0;")
		g.emit("ld.shared.v2.b64 {%%d2, %%d3}, [%%own];")
		g.fill()
		g.statements(block)
		g.emit("st.param.b64 [c], %s;", g.reg('d'))
		g.end(fmt.Sprintf(".func (.param .b64 c) m%d(.param .b32 a, .param .b64 b, .param .b64 in, .param .b64 counts)", g.meetings))
		g.meetings++
	}
	g.small = false
}

// kernel writes the program's one kernel.
func (g *generator) kernel() {
	g.begin()
	g.thread()
	g.emit("ld.param.u32 %%u0, [n];")
	g.emit("mov.u32 %%u1, %%ctaid.x;")
	g.emit("mov.u32 %%u2, 3;")
	g.emit("mov.u32 %%w0, %%warp;")
	g.emit("add.u32 %%w1, %%warp, %%u0;")
	g.emit("mov.u32 %%w2, %%ctaid.x;")
	// Places of the thread.
	g.emit("mad.lo.u32 %%t0, %%u1, %d, %%tid_;", g.threads)
	for _, p := range []string{"in", "out", "counts"} {
		g.emit("ld.param.u64 %%%s, [%s];", p, p)
		if g.n(2) == 1 {
			g.emit("cvta.to.global.u64 %%%s, %%%s;", p, p)
		}
	}
	g.emit("mad.wide.u32 %%in, %%t0, %d, %%in;", slot)
	g.emit("mad.wide.u32 %%out, %%t0, %d, %%out;", 8*outputs)
	g.emit("ld.global.v2.b64 {%%d0, %%d1}, [%%in];")
	g.emit("ld.global.v2.b64 {%%d2, %%d3}, [%%in+16];")
	g.fill()
	if !g.free {
		g.shared()
	}
	for done := false; !done; done = len(g.decisions) == 0 || g.size > g.mostStatements() {
		if g.phased {
			g.phases()
		} else {
			g.statements(block)
		}
	}
	g.results()
	g.end(".visible .entry k(.param .u64 in, .param .u64 out, .param .u64 counts, .param .u32 n, .param .u64 m)")
}

// shared gives the block's memory its first values.
func (g *generator) shared() {
	g.places()
	g.emit("st.shared.v2.b64 [%%own], {%%d0, %%d1};")
	g.emit("st.shared.v2.b64 [%%dyn], {%%d2, %%d1};")
	g.emit("setp.ne.u32 %%q0, %%tid_, 0;")
	for i := range reductions {
		g.emit("@!%%q0 st.shared.u32 [counters+%d], %d;", 4*i, 0x5555*i)
	}
	g.emit("@!%%q0 st.shared.u32 [cell], 5;")
	g.emit("bar.sync 0;")
}

// results stores all registers.
func (g *generator) results() {
	at := 0
	store := func(typ, reg string) {
		g.emit("st.global.%s [%%out+%d], %s;", typ, 8*at, reg)
		at++
	}
	for i := range numD {
		store("b64", "%d"+itoa(i))
	}
	for i := range numR {
		store("b32", "%r"+itoa(i))
	}
	for i := range numH {
		store("b16", "%h"+itoa(i))
	}
	for i := range numP {
		g.emit("selp.b32 %%t0, 1, 2, %%p%d;", i)
		store("b32", "%t0")
	}
	for i := range numU {
		store("b32", "%u"+itoa(i))
		store("b32", "%w"+itoa(i))
	}
}
