// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package random

import (
	"fmt"
	"strings"
)

// statement is a kind of statement, for threads that are together as said.
type statement func(g *generator, t together)

// anything emits one of the statements that are possible here.
func (g *generator) anything(t together) {
	g.size++
	possible := []statement{
		func(g *generator, _ together) { g.compute() }, func(g *generator, _ together) { g.compute() },
		func(g *generator, _ together) { g.compute() }, func(g *generator, _ together) { g.compute() },
		carry, special, local, table,
	}
	if g.nest < maxNest && g.size < g.mostStatements() {
		possible = append(possible, branch, branch, ladder, jumpTable)
		if g.rounds < g.mostRounds() {
			possible = append(possible, loop, loop, twoEntries)
		}
	}
	if g.leave != "" && t >= g.leaveTogether {
		possible = append(possible, leave)
	}
	if g.callees > 0 && !g.called && g.rounds < 2 {
		possible = append(possible, call)
	}
	if !g.inside {
		possible = append(possible, reduction)
		if !g.free || g.global() {
			possible = append(possible, own, own, atomic)
		}
		if !g.free {
			possible = append(possible, generic, copyAsync)
		}
		if g.mayExit {
			possible = append(possible, exit)
		}
	}
	if t >= warp && !g.mayExit && !g.free {
		possible = append(possible, shuffle, shuffle, vote, perWarp)
	}
	if t == block && !g.free {
		possible = append(possible, exchange, exchange, exchange, exchange, exchange, exchange, barrierReduction, broadcast, counted)
		if g.whole() && g.threads >= 64 {
			possible = append(possible, pair)
		}
		if g.meetings > 0 && !g.small && g.rounds < 2 {
			possible = append(possible, callTogether, callTogether)
		}
	}
	pick(g, possible)(g, t)
}

const maxNest = 5

// mostStatements is behind how many nothing is begun that has others in it.
func (g *generator) mostStatements() int {
	switch {
	case g.inside:
		return 8
	case g.small:
		return 14
	}
	return 150
}

// mostRounds is how deep loops may be nested.
func (g *generator) mostRounds() int {
	if g.inside || g.small {
		return 1
	}
	return 3
}

// whole: barriers may count threads.
func (g *generator) whole() bool { return g.threads%32 == 0 && !g.mayExit }

// statements emits some.
func (g *generator) statements(t together) {
	g.nest++
	for n := 1 + g.n(6); n > 0; n-- {
		g.anything(t)
		if len(g.decisions) == 0 {
			break
		}
	}
	g.nest--
}

// carry is a chain of two or three with the condition code.
func carry(g *generator, _ together) {
	size := pick(g, []string{"u32", "s32", "u64", "s64"})
	dst, src := byte('r'), byte('i')
	if strings.HasSuffix(size, "64") {
		dst, src = 'd', 'j'
	}
	three := func(op string) {
		g.emit("%s.%s %s, %s, %s;", op, size, g.reg(dst), g.operand(src), g.operand(src))
	}
	four := func(op string) {
		g.emit("%s.%s %s, %s, %s, %s;", op, size, g.reg(dst), g.operand(src), g.operand(src), g.operand(src))
	}
	switch g.n(4) {
	case 0:
		three("add.cc")
		three("addc")
	case 1:
		three("sub.cc")
		three("subc.cc")
		three("subc")
	case 2:
		four("mad.lo.cc")
		four("madc.hi")
	case 3:
		three("add.cc")
		four("madc.lo.cc")
		three("addc")
	}
}

// special reads a special register.
func special(g *generator, t together) {
	if t == block && g.n(2) == 1 {
		g.emit("mov.u32 %%u%d, %s;", g.n(numU), pick(g, []string{"%ctaid.x", "%ntid.x", "%nctaid.x", "%ctaid.y", "%ntid.z", "%dynamic_smem_size"}))
		return
	}
	g.emit("mov.u32 %s, %s;", g.reg('r'), pick(g, []string{"%tid.x", "%laneid", "%lanemask_lt", "%lanemask_ge", "%tid.y", "%ctaid.x", "WARP_SZ"}))
}

// accesses are types of memory with what is loaded there.
var accesses = []string{
	"b32 r", "b64 d", "u8 r", "s8 r", "u16 h", "s16 r", "b16 h", "s8 h", "f32 r", "f64 d", "u32 d", "s32 d", "v2.b32 {r,r}", "v4.b32 {r,r,r,r}",
	"v2.b64 {d,d}", "v4.u8 {h,h,h,h}", "v2.u16 {h,h}", "v2.f32 {r,r}",
}

// access loads from memory, or stores there. store: it may.
func (g *generator) access(space, address string, store bool) {
	typ, value, _ := strings.Cut(pick(g, accesses), " ")
	guard, value := g.guard(), g.operands(value)
	if store && g.n(2) == 1 {
		g.emit("%sst%s.%s [%s], %s;", guard, space, typ, address, value)
		return
	}
	g.emit("%sld%s.%s %s, [%s];", guard, space, typ, value, address)
}

// indexed returns an address in what begins at base, a register or a name, and has
// size bytes, a power of two.
func (g *generator) indexed(base string, size int) string {
	if g.n(2) == 0 {
		return fmt.Sprintf("%s+%d", base, 16*g.n(size/16))
	}
	g.emit("and.b32 %%t0, %s, %d;", g.word(), size-16)
	g.emit("cvt.u64.u32 %%a0, %%t0;")
	if base[0] == '%' {
		g.emit("add.u64 %%a0, %%a0, %s;", base)
	} else {
		g.emit("mov.u64 %%a1, %s;", base)
		g.emit("add.u64 %%a0, %%a0, %%a1;")
	}
	return "%a0"
}

const localSize = 64

func local(g *generator, _ together) { g.access(".local", g.indexed("array", localSize), true) }

// table reads what nobody changes.
func table(g *generator, _ together) {
	space := pick(g, []string{".const", ".global.nc", ".global"})
	if space == ".const" || !g.global() || g.inside && g.quiet {
		g.access(".const", g.indexed("constants", 64), false)
	} else {
		g.access(space, g.indexed("globals", 64), false)
	}
}

// global: what is loaded from global memory may be used here.
func (g *generator) global() bool { return g.rounds == 0 && !g.small || !g.quiet }

// own is a place of the thread's.
func own(g *generator, _ together) {
	kind := g.n(3)
	switch {
	case g.free:
		kind = 0
	case kind == 0 && !g.global():
		kind = 1
	}
	switch kind {
	case 0:
		g.access(".global", g.indexed("%in", slot), true)
	case 1:
		g.access(pick(g, []string{".shared", ".volatile.shared"}), "%own", true)
	case 2:
		g.access(".shared", "%dyn", true)
	}
}

// atomics are operations with their result and operands.
var atomics = expand(
	"{add.u32,add.s32,min.u32,min.s32,max.u32,max.s32,inc.u32,dec.u32,and.b32,or.b32,xor.b32,exch.b32} r i", "{add.u64,min.u64,min.s64,max.u64,max.s64,and.b64,or.b64,xor.b64,exch.b64} d j",
	"{add.f32,exch.b32} r f", "cas.b32 r i,i", "cas.b64 d j,j", "cas.b16 h h,h", "add.noftz.{f16x2,bf16x2} r r", "add.noftz.{f16,bf16} h h",
)

// atomic works on a place of the thread's.
func atomic(g *generator, _ together) {
	op := strings.Fields(pick(g, atomics))
	space, address := ".global", g.indexed("%in", slot)
	if (g.n(2) == 1 || !g.global()) && !g.free {
		space, address = ".shared", "%own"
	}
	g.emit("%satom%s%s.%s %s, [%s], %s;", g.guard(), pick(g, []string{"", ".relaxed.gpu", ".acq_rel.sys"}), space, op[0], g.reg(op[1][0]), address, g.operands2(op[2]))
}

// operands2 is operands with a comma between them.
func (g *generator) operands2(pattern string) string {
	var list []string
	for kind := range strings.SplitSeq(pattern, ",") {
		list = append(list, g.operand(kind[0]))
	}
	return strings.Join(list, ", ")
}

// reductions are what several threads may do to one place; each has its own.
var reductions = []string{"add.u32", "and.b32", "or.b32", "xor.b32", "min.s32", "max.u32"}

func reduction(g *generator, _ together) {
	i := g.n(len(reductions))
	guard, value := g.guard(), g.operand('i')
	if g.n(2) == 0 || g.free {
		g.emit("%sred.global.%s [%%counts+%d], %s;", guard, reductions[i], 4*i, value)
	} else {
		g.emit("%sred.shared.%s [counters+%d], %s;", guard, reductions[i], 4*i, value)
	}
}

// counted reads what threads of the block have counted.
func counted(g *generator, _ together) {
	g.barrier()
	g.emit("ld.shared.u32 %%u%d, [counters+%d];", g.n(numU), 4*g.n(len(reductions)))
	g.barrier()
}

// generic is a place of the thread's, by an address that doesn't say where.
func generic(g *generator, _ together) {
	g.emit("cvta.shared.u64 %%a0, %%own;")
	where := g.n(3)
	if where == 0 && !g.global() {
		where = 1
	}
	switch where {
	case 0:
		g.emit("mov.u64 %%a1, %%in;")
	case 1:
		g.emit("mov.u64 %%a1, array;")
		g.emit("cvta.local.u64 %%a1, %%a1;")
	case 2:
		g.emit("mov.u64 %%a1, constants;")
		g.emit("cvta.const.u64 %%a1, %%a1;")
		g.emit("selp.b64 %%a0, %%a0, %%a1, %s;", g.reg('p'))
		g.emit("isspacep.shared %s, %%a0;", g.reg('p'))
		g.access("", "%a0", false)
		return
	}
	if g.n(2) == 1 {
		g.emit("selp.b64 %%a0, %%a0, %%a1, %s;", g.reg('p'))
	}
	g.access("", "%a0", true)
}

// copyAsync copies from the thread's place to another of its own.
func copyAsync(g *generator, _ together) {
	how := pick(g, []string{"ca 4", "ca 8", "ca 16", "cg 16"})
	g.emit("cp.async.%s.shared.global [%%own], [%%in+%d], %s;", how[:2], 16*g.n(slot/16), how[3:])
	if g.n(2) == 0 {
		g.emit("cp.async.wait_all;")
	} else {
		g.emit("cp.async.commit_group;")
		g.emit("cp.async.wait_group 0;")
	}
	g.access(".shared", "%own", false)
}

// call calls a function, or one of two.
func call(g *generator, _ together) {
	g.called = g.inside || g.small
	g.emit("{")
	g.emit(".param .b32 u; .param .b64 v; .param .b64 w;")
	g.emit("and.b32 %%t0, %s, 3;", g.word())
	g.emit("st.param.b32 [u], %%t0;")
	g.emit("st.param.b64 [v], %s;", g.reg('d'))
	f := g.n(g.callees)
	if g.n(3) == 2 {
		// Registers of their own: what has the address of a function has it always.
		g.emit(".reg .b64 f, e;")
		g.emit("mov.u64 f, f%d;", f)
		g.emit("mov.u64 e, f%d;", g.n(g.callees))
		g.emit("selp.b64 f, f, e, %s;", g.reg('p'))
		g.emit("proto: .callprototype (.param .b64 _) _ (.param .b32 _, .param .b64 _);")
		g.emit("call (w), f, (u, v), proto;")
	} else {
		g.emit("call (w), f%d, (u, v);", f)
	}
	g.emit("ld.param.b64 %s, [w];", g.reg('d'))
	g.emit("}")
}

// callTogether calls a function in which all threads of the block meet.
func callTogether(g *generator, _ together) {
	g.emit("{")
	g.emit(".param .b32 u; .param .b64 v; .param .b64 from; .param .b64 to; .param .b64 w;")
	g.emit("st.param.b32 [u], %s;", pick(g, g.uniform))
	g.emit("st.param.b64 [v], %s;", g.reg('d'))
	g.emit("st.param.b64 [from], %%in;")
	g.emit("st.param.b64 [to], %%counts;")
	g.emit("call (w), m%d, (u, v, from, to);", g.n(g.meetings))
	g.emit("ld.param.b64 %s, [w];", g.reg('d'))
	g.emit("}")
}
