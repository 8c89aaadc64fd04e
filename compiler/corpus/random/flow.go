// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package random

import "slices"

// condition returns a predicate, and who decides alike by it.
func (g *generator) condition(least, t together) (string, together) {
	level := least + together(g.n(int(t-least)+1))
	var word string
	switch level {
	case alone:
		if g.n(2) == 0 {
			return g.reg('p'), alone
		}
		word = g.reg('r')
	case warp:
		word = pick(g, g.perWarp)
	case block:
		word = pick(g, g.uniform)
	}
	g.emit("setp.%s.u32 %%q0, %s, %d;", pick(g, []string{"lt", "eq", "ne", "gt"}), word, g.n(4))
	return "%q0", level
}

func not(g *generator) string { return pick(g, []string{"", "!"}) }

func branch(g *generator, t together) {
	p, t := g.condition(alone, t)
	other, end := g.label(), g.label()
	both := g.n(2) == 1
	g.emit("@%s%s bra %s;", not(g), p, other)
	g.statements(t)
	if both {
		g.emit("bra %s;", end)
	}
	g.place(other)
	if both {
		g.statements(t)
		g.place(end)
	}
}

// ladder has parts that are jumped over one by one, into what comes behind others.
func ladder(g *generator, t together) {
	p, t := g.condition(alone, t)
	middle, end := g.label(), g.label()
	g.emit("@%s%s bra %s;", not(g), p, middle)
	g.statements(t)
	p, second := g.condition(alone, t)
	g.emit("@%s%s bra %s;", not(g), p, end)
	g.place(middle)
	g.statements(min(t, second))
	g.place(end)
}

func jumpTable(g *generator, t together) {
	g.emit("and.b32 %%t0, %s, 3;", g.reg('r'))
	if t == block && g.n(2) == 1 {
		g.emit("and.b32 %%t0, %s, 3;", pick(g, g.uniform))
	} else {
		t = alone
	}
	list, first, second, end := g.label(), g.label(), g.label(), g.label()
	g.emit("%s: .branchtargets %s, %s, %s, %s;", list, first, second, end, first)
	g.emit("brx.idx %%t0, %s;", list)
	g.place(first)
	g.statements(t)
	if g.n(2) == 1 {
		g.emit("bra %s;", end)
	}
	g.place(second)
	g.statements(t)
	g.place(end)
}

// counter makes a register that counts a loop's rounds, 1 to 4, and tells whose count
// it is.
func (g *generator) counter(t together) (string, together) {
	c := "%i" + itoa(g.loops)
	g.loops++
	switch kind := together(g.n(4)); {
	case kind == warp && t >= warp:
		g.emit("and.b32 %s, %s, 3;", c, pick(g, g.perWarp))
		t = warp
	case kind == alone && g.n(2) == 1:
		g.emit("and.b32 %s, %s, 3;", c, g.reg('r'))
		t = alone
	case kind == block && t == block:
		g.emit("and.b32 %s, %s, 3;", c, pick(g, g.uniform))
	default:
		g.emit("mov.u32 %s, %d;", c, g.n(3))
	}
	g.emit("add.u32 %s, %s, 1;", c, c)
	return c, t
}

// loop counts down. Threads may leave it.
func loop(g *generator, t together) {
	c, t := g.counter(t)
	again, end := g.label(), g.label()
	leave, leaveTogether, uniform, perWarp := g.leave, g.leaveTogether, g.uniform, g.perWarp
	switch t {
	case block:
		g.uniform = append(slices.Clip(uniform), c)
	case warp:
		g.perWarp = append(slices.Clip(perWarp), c)
	}
	g.leave = ""
	if g.n(3) == 1 {
		t = together(g.n(int(t) + 1))
		g.leave, g.leaveTogether = end, t
	}
	g.rounds++
	g.place(again)
	early := g.n(2) == 1
	if early { // the loop's condition is at its beginning
		g.emit("setp.eq.u32 %%q0, %s, 0;", c)
		g.emit("@%%q0 bra %s;", end)
	}
	g.statements(t)
	g.emit("sub.u32 %s, %s, 1;", c, c)
	if early {
		g.emit("bra %s;", again)
	} else {
		g.emit("setp.ne.u32 %%q0, %s, 0;", c)
		g.emit("@%%q0 bra %s;", again)
	}
	g.place(end)
	g.rounds--
	g.leave, g.leaveTogether, g.uniform, g.perWarp = leave, leaveTogether, uniform, perWarp
}

// phases are rounds that all threads of a block go together, or one: in each, threads
// go round in loops of their own, tell another one what came of it, and some do so once more.
func (g *generator) phases() {
	g.size += 10
	rounds, again := "%i"+itoa(g.loops), g.label()
	g.loops++
	together := g.n(2) == 1
	if together {
		g.emit("and.b32 %s, %s, 3;", rounds, pick(g, g.uniform))
		g.place(again)
	}
	g.compute()
	if end := g.label(); g.n(2) == 1 { // not for all threads
		g.emit("@%s%s bra %s;", not(g), g.reg('p'), end)
		g.uneven()
		g.place(end)
	} else {
		g.uneven()
	}
	if g.n(4) > 0 {
		g.emit("st.shared.b64 [%%own], %s;", g.reg('d'))
		g.emit("bar.sync 0;")
		g.emit("xor.b32 %%t0, %%tid_, 1;")
		g.emit("min.u32 %%t0, %%t0, %d;", g.threads-1)
		g.emit("mad.wide.u32 %%a0, %%t0, 16, %%cells;")
		g.emit("ld.shared.b64 %s, [%%a0];", g.reg('d'))
		if g.n(2) == 1 {
			g.uneven()
		}
		g.emit("bar.sync 0;")
	}
	if together {
		g.emit("add.u32 %s, %s, -1;", rounds, rounds)
		g.emit("setp.gt.s32 %%q4, %s, 0;", rounds) // never a thread's own
		g.emit("@%%q4 bra %s;", again)
	}
}

// uneven is a loop, or two in one another, of which each thread has its own number of
// rounds, up to so many that a pause may come in between.
func (g *generator) uneven() {
	var again, counts []string
	for _, most := range []string{"127", "3"}[:1+g.n(2)] {
		c := "%i" + itoa(g.loops)
		g.loops++
		counts, again = append(counts, c), append(again, g.label())
		g.emit("and.b32 %s, %s, %s;", c, g.reg('r'), most)
		g.place(again[len(again)-1])
		for range 1 + g.n(4) {
			g.compute()
		}
	}
	for i, label := range slices.Backward(again) {
		g.emit("add.u32 %s, %s, -1;", counts[i], counts[i])
		g.emit("setp.gt.s32 %%q0, %s, 0;", counts[i])
		g.emit("@%%q0 bra %s;", label)
	}
}

// leave goes behind the loop.
func leave(g *generator, t together) {
	p, _ := g.condition(g.leaveTogether, t)
	g.emit("@%s%s bra %s;", not(g), p, g.leave)
}

// twoEntries is a loop that is also entered in its middle.
func twoEntries(g *generator, t together) {
	c, t := g.counter(t)
	again, middle := g.label(), g.label()
	p, by := g.condition(alone, t)
	t = min(t, by)
	leave := g.leave
	g.leave = ""
	g.rounds++
	g.emit("@%s%s bra %s;", not(g), p, middle)
	g.place(again)
	g.statements(t)
	g.place(middle)
	g.statements(t)
	g.emit("sub.u32 %s, %s, 1;", c, c)
	g.emit("setp.ne.u32 %%q0, %s, 0;", c)
	g.emit("@%%q0 bra %s;", again)
	g.rounds--
	g.leave = leave
}

// exit ends some threads.
func exit(g *generator, _ together) {
	how := pick(g, []string{"exit", "ret"})
	if g.small { // who only returns would miss barriers
		how = "exit"
	}
	g.emit("@%s%s %s;", not(g), g.reg('p'), how)
}
