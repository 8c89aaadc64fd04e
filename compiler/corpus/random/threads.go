// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package random

import "fmt"

// barrier emits one for the whole block.
func (g *generator) barrier() {
	list := []string{"bar.sync 0;", "barrier.sync 0;", "barrier.sync.aligned 0;", "bar.sync 1;", "bar.red.or.pred %q3, 0, %p0;", "barrier.cta.red.popc.aligned.u32 %t5, 2, !%p1;"}
	if g.whole() {
		list = append(list, fmt.Sprintf("bar.sync 0, %d;", g.threads), fmt.Sprintf("barrier.sync 3, %d;", g.threads))
	}
	g.emit("%s", pick(g, list))
}

// exchange: each thread writes its place and reads another's.
func exchange(g *generator, _ together) {
	mine, all := "%own", "%cells"
	if g.n(2) == 1 {
		mine, all = "%dyn", "%dyns"
	}
	g.access(".shared", mine, true)
	g.barrier()
	g.emit("add.u32 %%t0, %%tid_, %s;", g.word())
	g.emit("rem.u32 %%t0, %%t0, %d;", g.threads)
	g.emit("mul.wide.u32 %%a0, %%t0, 16;")
	g.emit("add.u64 %%a0, %%a0, %s;", all)
	g.access(".shared", "%a0", false)
	g.barrier()
}

// barrierReduction has a result that is the same for the block.
func barrierReduction(g *generator, _ together) {
	u := g.n(numU)
	switch g.n(3) {
	case 0:
		g.emit("bar.red.popc.u32 %%u%d, 0, %s%s;", u, not(g), g.reg('p'))
		return
	case 1:
		g.emit("bar.red.and.pred %%q1, 0, %s%s;", not(g), g.reg('p'))
	case 2:
		g.emit("barrier.red.or.pred %%q1, 0, %s%s;", not(g), g.reg('p'))
	}
	g.emit("selp.b32 %%u%d, %d, %d, %%q1;", u, g.n(8), g.n(8))
}

// broadcast gives one thread's value to the block.
func broadcast(g *generator, _ together) {
	g.emit("setp.eq.u32 %%q1, %%tid_, %d;", g.n(int(g.threads)))
	g.emit("@%%q1 st.shared.b32 [cell], %s;", g.word())
	g.barrier()
	g.emit("ld.shared.b32 %%u%d, [cell];", g.n(numU))
	g.barrier()
}

// pair: two warps meet, the others go on.
func pair(g *generator, _ together) {
	other, end := g.label(), g.label()
	arrive := pick(g, []string{"bar.arrive 4, 64;", "bar.sync 4, 64;", "barrier.sync 4, 64;"})
	g.emit("setp.ne.u32 %%q1, %%warp, 0;")
	g.emit("@%%q1 bra %s;", other)
	g.emit("st.shared.b32 [%%own], %s;", g.word())
	g.emit("%s", arrive)
	g.emit("bra %s;", end)
	g.place(other)
	g.emit("setp.ne.u32 %%q1, %%warp, 1;")
	g.emit("@%%q1 bra %s;", end)
	g.emit("bar.sync 4, 64;")
	g.emit("mul.wide.u32 %%a0, %%lane, 16;")
	g.emit("add.u64 %%a0, %%a0, %%cells;")
	g.emit("ld.shared.b32 %s, [%%a0];", g.reg('r'))
	g.place(end)
	g.barrier()
}

// shuffle reads another lane, which is there.
func shuffle(g *generator, _ together) {
	dst := g.reg('r')
	if g.n(2) == 1 {
		dst += "|" + g.reg('p')
	}
	if g.threads%32 != 0 {
		g.emit("shfl.sync.idx.b32 %s, %s, 0, 31, %%mask;", dst, g.word())
		return
	}
	mode := pick(g, []string{"idx", "up", "down", "bfly"})
	clamp := pick(g, []int{0, 16, 24, 28}) << 8
	if mode != "up" {
		clamp |= 31
	}
	from := fmt.Sprint(g.n(32))
	if g.n(3) == 2 {
		from = g.word()
	}
	g.emit("shfl.sync.%s.b32 %s, %s, %s, %d, %s;", mode, dst, g.word(), from, clamp, pick(g, []string{"-1", "%mask"}))
}

// vote is an operation over a warp.
func vote(g *generator, _ together) {
	switch g.n(8) {
	case 0, 1:
		g.emit("vote.sync.%s.pred %s, %s%s, %%mask;", pick(g, []string{"all", "any", "uni"}), g.reg('p'), not(g), g.reg('p'))
	case 2:
		g.emit("match.any.sync.b32 %s, %s, %%mask;", g.reg('r'), g.word())
	case 3:
		g.emit("match.any.sync.b64 %s, %s, %%mask;", g.reg('r'), g.reg('d'))
	case 4:
		g.emit("match.all.sync.b32 %s|%s, %s, %%mask;", g.reg('r'), g.reg('p'), g.word())
	case 5:
		g.emit("redux.sync.%s %s, %s, %%mask;", pick(g, []string{"add.u32", "add.s32", "min.s32", "max.u32", "and.b32", "or.b32", "xor.b32"}), g.reg('r'), g.word())
	case 6:
		g.emit("bar.warp.sync %%mask;")
	case 7:
		g.emit("vote.sync.ballot.b32 %s, %s%s, %%mask;", g.reg('r'), not(g), g.reg('p'))
	}
}

// perWarp has a result that is the same for a warp.
func perWarp(g *generator, _ together) {
	w := g.n(numU)
	switch g.n(3) {
	case 0:
		g.emit("vote.sync.ballot.b32 %%w%d, %s%s, %%mask;", w, not(g), g.reg('p'))
	case 1:
		g.emit("redux.sync.min.u32 %%w%d, %s, %%mask;", w, g.word())
	case 2:
		g.emit("shfl.sync.idx.b32 %%w%d, %s, 0, 31, %%mask;", w, g.word())
	}
}
