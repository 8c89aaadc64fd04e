// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package opencl

import (
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/pause"
)

// General mode: each thread runs until it comes to something that threads do
// together, says so in local memory, and waits. Between two barriers of the whole
// block all look who has come; between the second and the next those go on that
// have all they wait for. A round without anybody going on is a deadlock.
//
// Local memory: hg_pf has the books of the barriers (see hg_books) and the words
// below; hg_x has for each thread the kind of its operation, its mask, its words.
const (
	genExited    = 112 // how many threads have ended
	genProgress  = 113 // two: has anybody gone on, in even and in odd rounds
	genPause     = 115 // the flag, as it was when a barrier opened
	generalWords = 116
	header       = 2
)

// kindEnded is the kind of threads that have ended; the others count on from it.
const kindEnded = 1

// meeting is a place where a thread waits for others.
type meeting struct {
	in    *ir.Instr
	kind  int
	point int
}

// general writes a kernel as a loop around all threads' next steps. At resume, if
// it is not 0, a paused block goes on; with anyStatus each where it is.
func (e *emitter) general(resume int) {
	meetings := e.meetings()
	e.wide(header)
	body := e.capture(func() { e.steps(meetings) })
	// Behind the numbers of meetings are those of where points go on.
	switch resume {
	case 0:
		e.enter()
		e.line("uint hg_pc = 0, hg_bar = 16;")
	case anyStatus:
		e.restoreAny(len(meetings))
	default:
		e.restore(resume)
		e.line("uint hg_pc = %d, hg_bar = 16;", len(meetings)+resume)
	}
	e.line("bool hg_go = true, hg_stop = false, hg_over = false;")
	e.books()
	e.open("for (;;)")
	e.turn()
	e.line("switch (hg_go ? hg_pc : %du) {", waiting)
	if resume <= 0 {
		e.line("case 0: goto B0;")
	}
	for i, m := range meetings {
		e.line("case %d: goto P%d;", i+1, i+1)
		if m.point > 0 && (m.point == resume || resume == anyStatus) {
			e.line("case %d: goto Q%d;", len(meetings)+m.point, i+1)
		}
	}
	e.line("default: goto hg_next;")
	e.line("}")
	e.out.WriteString(body)
	e.label("hg_end")
	e.line("hg_over = true;")
	e.ended()
	e.line("goto hg_out;")
	e.savers("hg_out")
	e.label("hg_out")
	e.line("hg_pc = %du;", waiting)
	e.line("hg_x[hg_t * hg_w] = %d;", kindEnded)
	e.line("atomic_inc(hg_pf + %d);", genExited)
	e.label("hg_next")
	e.look(meetings)
	e.close()
	if e.backEdges() {
		e.line(barrier)
		e.threadStatus()
		return
	}
	e.open("if (hg_t == 0 && hg_over)")
	e.line("hg_status(hg, hg_b, %#xu);", pause.Done)
	e.close()
}

// steps writes the program, cut at the meetings.
func (e *emitter) steps(meetings []meeting) {
	at := 0
	for i, b := range e.f.Blocks {
		e.label("B%d", i)
		for _, in := range b.Instrs[:len(b.Instrs)-1] {
			if together(in) || yields(in) {
				at++
				e.arrive(at, meetings[at-1])
			} else {
				e.instr(in)
			}
		}
		e.terminator(b, i+1)
	}
	e.dispatcher(func(*ir.Block) bool { return true })
}

// waiting is a program counter that no meeting has.
const waiting = 0xffff

// yields tells of operations that a thread may repeat until another has done
// something: it must let the others run.
func yields(in *ir.Instr) bool {
	return in.Op == ir.MbarTest || in.Op == ir.MbarTry || in.Op == ir.Nanosleep
}

// meetings lists the places where threads wait, in the text's order. Operations
// that differ only in their registers are of one kind, wherever they stand.
func (e *emitter) meetings() []meeting {
	var all []meeting
	type class struct {
		op   ir.Op
		t    ir.Type
		mods ir.Mods
	}
	kinds := map[class]int{}
	for _, b := range e.f.Blocks {
		for j, in := range b.Instrs {
			if !together(in) && !yields(in) {
				continue
			}
			c := class{in.Op, in.Type, in.Mods}
			if in.Op == ir.Activemask {
				c.mods.Bytes = uint8(len(all)) // each is a kind of its own
			}
			if kinds[c] == 0 {
				kinds[c] = len(kinds) + kindEnded + 1
			}
			all = append(all, meeting{in: in, kind: kinds[c], point: e.pointAt(b, j)})
		}
	}
	return all
}

// books clears the words that the block shares.
func (e *emitter) books() {
	e.line("for (uint i = hg_t; i < %d; i += hg_n)", generalWords)
	e.line("\thg_pf[i] = i == %d;", genProgress)
	e.line("hg_x[hg_t * hg_w] = 0;")
}

// turn writes the beginning of a round, when all have looked. The barrier stands
// right before the switch, so that no compiler leads the first round past both:
// the program's blocks would have two ways in, which PoCL does not take.
func (e *emitter) turn() {
	e.line(barrier)
	e.open("if (hg_stop)")
	e.line("break;")
	e.close()
	e.open("if (!hg_pf[%d + (hg_ph & 1)])", genProgress)
	e.open("if (hg_t == 0)")
	e.line("hg_trap(hg->trap, %d, hg_b, hg_t);", trapDeadlock)
	e.close()
	e.line("break;")
	e.close()
	e.open("if (hg_bar < 16 && hg_pc != %du)", waiting)
	e.line("hg_go = hg_pf[64 + hg_bar];")
	e.close()
}

// arrive writes what a thread says at a meeting, and where it goes on.
func (e *emitter) arrive(at int, m meeting) {
	in := m.in
	if in.Guard != ir.NoReg {
		e.open("if (%s)", e.guard(in))
		defer func() { e.label("N%d", at) }()
	} else {
		e.open("")
	}
	e.line("hg_pc = %d;", at)
	switch {
	case in.Op == ir.Bar:
		e.arriveBar(in)
		if in.Mods.Bar == ir.BarArrive {
			e.line("hg_x[hg_t * hg_w] = 0;")
		}
	case yields(in):
		e.line("hg_bar = 16;")
		e.line("hg_x[hg_t * hg_w] = 0;")
	default:
		x := e.exchangeOf(in)
		if x == nil {
			return
		}
		e.wide(header + len(x.words))
		e.line("hg_bar = 16;")
		e.line("__local uint *w = hg_x + hg_t * hg_w;")
		e.line("w[0] = %d;", m.kind)
		mask := x.mask
		if mask == "" {
			mask = fullMask
		}
		e.line("w[1] = %s;", mask)
		for i, v := range x.words {
			e.line("w[%d] = %s;", header+i, v)
		}
	}
	e.line("goto hg_next;")
	e.close()
	if in.Guard != ir.NoReg {
		e.line("goto N%d;", at)
	}
	e.label("P%d", at)
	if in.Op == ir.Bar && in.Mods.Bar >= ir.BarRedPopc {
		e.reduced(in, "hg_pf[80 + hg_bar]", "hg_pf[96 + hg_bar]")
	}
	if m.point > 0 {
		e.saved[m.point] = true
		e.open("if (hg_pf[%d])", genPause)
		e.line("goto hg_save%d;", m.point)
		e.close()
		e.label("Q%d", at)
	}
	if yields(in) && in.Op != ir.Nanosleep {
		plain := *in
		plain.Guard = ir.NoReg
		e.instr(&plain)
	}
}

// arriveBar counts a thread at its barrier.
func (e *emitter) arriveBar(in *ir.Instr) {
	args := in.Args
	pred := ""
	if in.Mods.Bar >= ir.BarRedPopc {
		pred = e.bits(args[len(args)-1], ir.Pred)
		args = args[:len(args)-1]
	}
	e.line("hg_bar = %s & 15;", e.bits(args[0], ir.B32))
	if len(args) > 1 {
		e.line("hg_pf[16 + hg_bar] = %s;", e.bits(args[1], ir.B32))
	}
	if pred != "" {
		e.line("atomic_inc(hg_pf + (%s ? 32 : 48) + hg_bar);", pred)
	}
	e.line("atomic_inc(hg_pf + hg_bar);")
	if in.Mods.Bar == ir.BarArrive {
		e.line("hg_bar = 16;")
		return
	}
	e.line("hg_x[hg_t * hg_w] = 0;")
}

// look writes the end of a round: who has come, and who goes on.
func (e *emitter) look(meetings []meeting) {
	e.line(barrier)
	e.line("hg_ph++;")
	e.line("hg_go = false;")
	e.line("switch (hg_pc) {")
	for i, m := range meetings {
		e.line("case %d:", i+1)
		e.depth++
		e.lookAt(m)
		e.line("break;")
		e.depth--
	}
	e.line("default: break;")
	e.line("}")
	e.open("if (hg_go)")
	e.line("hg_pf[%d + (hg_ph & 1)] = 1;", genProgress)
	e.close()
	e.open("if (hg_t == 0)")
	e.line("hg_pf[%d + (~hg_ph & 1)] = 0;", genProgress)
	e.open("if (hg_books(hg_pf, hg_n, hg_pf[%d]))", genExited)
	e.line("hg_pf[%d + (hg_ph & 1)] = 1;", genProgress)
	if len(e.saved) > 0 {
		e.line("hg_pf[%d] = hg_flagged(hg);", genPause)
	}
	e.close()
	e.close()
	e.line("hg_stop = hg_pf[%d] == hg_n;", genExited)
}

// lookAt decides whether a thread at a meeting goes on, and gives it its results.
func (e *emitter) lookAt(m meeting) {
	in := m.in
	switch {
	case in.Op == ir.Bar && in.Mods.Bar != ir.BarArrive:
		return
	case in.Op == ir.Bar || yields(in):
		e.line("hg_go = true;")
		return
	}
	e.open("")
	e.line("__local uint *w = hg_x + (hg_t & ~31u) * hg_w;")
	if in.Op == ir.Activemask {
		e.line("uint m = hg_active(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));")
	} else {
		e.line("uint m = hg_meet(w, hg_w, hg_t & 31, hg_lanes(hg_t, hg_n));")
	}
	e.open("if (m != 0)")
	e.line("w += %d;", header)
	if x := e.exchangeOf(in); x != nil {
		x.result()
	}
	e.line("hg_go = true;")
	e.close()
	e.close()
}
