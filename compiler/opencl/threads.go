// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package opencl

import (
	"fmt"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// exchange is an operation for which the threads of a warp tell each other words:
// what each of them says, and what it makes of the others'. The result's code
// finds lane l's words at w[l * hg_w], and the lanes that take part in m.
type exchange struct {
	words  []string
	mask   string // of the lanes that take part; "": those that are there
	result func()
}

// together tells of operations that threads do together.
func together(in *ir.Instr) bool {
	switch in.Op {
	case ir.Bar, ir.WarpSync, ir.Shfl, ir.Vote, ir.Match, ir.Redux, ir.Activemask, ir.Elect,
		ir.Mma, ir.WmmaMma, ir.Ldmatrix, ir.Stmatrix, ir.Movmatrix:
		return true
	}
	return false
}

const fullMask = "0xffffffffu"

// exchangeOf describes a warp operation.
func (e *emitter) exchangeOf(in *ir.Instr) *exchange {
	word := func(i int) string { return e.bits(in.Args[i], ir.B32) }
	switch in.Op {
	case ir.WarpSync:
		return &exchange{mask: word(0), result: func() {}}
	case ir.Activemask:
		return &exchange{result: func() { e.set(in.Dst[0], ir.B32, "m") }}
	case ir.Elect:
		return &exchange{mask: word(0), result: func() {
			e.set(in.Dst[0], ir.B32, "31 - clz(m & (0 - m))")
			e.set(in.Dst[1], ir.Pred, "(m & (0 - m)) == 1u << (hg_t & 31)")
		}}
	case ir.Shfl:
		return &exchange{words: []string{word(0)}, mask: word(3), result: func() {
			e.line("bool p;")
			e.line("uint v = hg_shfl(w, hg_w, hg_t & 31, m, %d, %s, %s, &p);", in.Mods.Shfl, word(1), word(2))
			e.set(in.Dst[0], ir.B32, "v")
			if len(in.Dst) > 1 {
				e.set(in.Dst[1], ir.Pred, "p")
			}
		}}
	case ir.Vote:
		return &exchange{words: []string{e.bits(in.Args[0], ir.Pred)}, mask: word(1), result: func() { e.vote(in) }}
	case ir.Match:
		return e.match(in)
	case ir.Redux:
		return &exchange{words: []string{word(0)}, mask: word(1), result: func() { e.set(in.Dst[0], ir.B32, redux(in)) }}
	}
	return e.matrixExchange(in)
}

func (e *emitter) vote(in *ir.Instr) {
	e.line("uint v = hg_ballot(w, hg_w, m);")
	switch in.Mods.Vote {
	case ir.VoteBallot:
		e.set(in.Dst[0], ir.B32, "v")
	case ir.VoteAll:
		e.set(in.Dst[0], ir.Pred, "v == m")
	case ir.VoteAny:
		e.set(in.Dst[0], ir.Pred, "v != 0")
	default:
		e.set(in.Dst[0], ir.Pred, "v == m || v == 0")
	}
}

func (e *emitter) match(in *ir.Instr) *exchange {
	x := &exchange{words: []string{e.bits(in.Args[0], ir.B32)}, mask: e.bits(in.Args[1], ir.B32)}
	if in.Type.Size() == 8 {
		v := e.bits(in.Args[0], ir.B64)
		x.words = []string{"(uint)" + v, fmt.Sprintf("(uint)(%s >> 32)", v)}
	}
	x.result = func() {
		e.line("uint v = hg_match(w, hg_w, hg_t & 31, m, %d);", len(x.words))
		if !in.Mods.MatchAll {
			e.set(in.Dst[0], ir.B32, "v")
			return
		}
		e.set(in.Dst[0], ir.B32, "v == m ? m : 0")
		if len(in.Dst) > 1 {
			e.set(in.Dst[1], ir.Pred, "v == m")
		}
	}
	return x
}

// redux is the value over the lanes.
func redux(in *ir.Instr) string {
	if in.Type == ir.F32 {
		return fmt.Sprintf("hg_redux_f32(w, hg_w, m, %t, %t)", in.Mods.Atom == ir.AtomMax, in.Mods.NaN)
	}
	op := map[ir.AtomOp]int{ir.AtomAdd: 0, ir.AtomAnd: 1, ir.AtomOr: 2, ir.AtomXor: 3, ir.AtomMin: 4, ir.AtomMax: 5}[in.Mods.Atom]
	return fmt.Sprintf("hg_redux(w, hg_w, m, %d, %t)", op, in.Type.Signed())
}

// barrier makes all threads of the block wait, and see each other's memory.
const barrier = "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);"

// uniform writes, in natural mode, what all threads of the block do together.
// Words are in one of two buffers in turn, so that one barrier is enough: who
// writes again to a buffer has met all who read it at the barrier between.
func (e *emitter) uniform(b *ir.Block, index int, in *ir.Instr) {
	guard := ""
	if in.Guard != ir.NoReg {
		guard = fmt.Sprintf("if (%s)", e.guard(in))
	}
	e.open("%s", guard)
	defer e.close()
	if in.Op == ir.Bar {
		e.uniformBar(b, index, in)
		return
	}
	x := e.exchangeOf(in)
	if x == nil {
		return
	}
	e.wide(len(x.words))
	if len(x.words) > 0 {
		e.line("__local uint *w = hg_x + (hg_ph++ & 1) * hg_n * hg_w;")
		for i, v := range x.words {
			e.line("w[hg_t * hg_w + %d] = %s;", i, v)
		}
	}
	e.line(barrier)
	if len(x.words) > 0 {
		e.line("w += (hg_t & ~31u) * hg_w;")
	}
	mask := "hg_lanes(hg_t, hg_n)"
	if x.mask != "" && x.mask != fullMask {
		mask = fmt.Sprintf("(%s & %s)", x.mask, mask)
	}
	e.line("uint m = %s;", mask)
	x.result()
}

// uniformBar is a barrier of the whole block.
func (e *emitter) uniformBar(b *ir.Block, index int, in *ir.Instr) {
	if in.Mods.Bar == ir.BarSync {
		if k := e.pointAt(b, index); k > 0 {
			e.saved[k] = true
			e.line("__local uint *f = hg_pf + (hg_ph++ & 1);")
			e.open("if (hg_t == 0)")
			e.line("*f = hg_flagged(hg);")
			e.close()
			e.line(barrier)
			e.open("if (*f)")
			e.line("goto hg_save%d;", k)
			e.close()
			return
		}
		e.line(barrier)
		return
	}
	if k := e.pointAt(b, index); k > 0 && len(e.plan.Points[k-1].Polls) > 0 {
		e.meet(k, in)
		return
	}
	if in.Mods.Bar == ir.BarArrive {
		e.fail("bar.arrive that all threads reach")
		return
	}
	// A reduction: each thread tells its predicate, and counts those of the block.
	e.wide(1)
	e.line("__local uint *w = hg_x + (hg_ph++ & 1) * hg_n * hg_w;")
	e.line("w[hg_t * hg_w] = %s;", e.bits(in.Args[len(in.Args)-1], ir.Pred))
	e.line(barrier)
	e.line("uint v = 0;")
	e.line("for (uint i = 0; i < hg_n; i++)")
	e.line("\tv += w[i * hg_w];")
	e.reduced(in, "v", "hg_n - v")
}

// meet writes, in natural mode, a barrier to which threads come from loops, because
// somebody asks for a pause. One word of three in turn tells that some have: the
// leader clears the next one, which all have read who came to the last barrier.
func (e *emitter) meet(k int, in *ir.Instr) {
	e.saved[k] = true
	e.line("__local uint *f = hg_pf + (hg_ph++ & 1), *a = hg_pf + %d + hg_any;", meetWords)
	e.line("hg_any = hg_any < 2 ? hg_any + 1 : 0;")
	e.open("if (hg_t == 0)")
	e.line("*f = hg_flagged(hg);")
	e.line("hg_pf[%d + hg_any] = 0;", meetWords)
	e.close()
	e.line("if (%s) *a = 1;", e.bits(in.Args[len(in.Args)-1], ir.Pred))
	e.line(barrier)
	e.set(in.Dst[0], ir.Pred, "*a != 0")
	e.open("if (*f || *a)")
	e.line("goto hg_save%d;", k)
	e.close()
}

// reduced writes a barrier's reduction: yes and no are how many threads had a true
// and a false predicate.
func (e *emitter) reduced(in *ir.Instr, yes, no string) {
	switch in.Mods.Bar {
	case ir.BarRedPopc:
		e.set(in.Dst[0], ir.B32, yes)
	case ir.BarRedAnd:
		e.set(in.Dst[0], ir.Pred, paren(no)+" == 0")
	case ir.BarRedOr:
		e.set(in.Dst[0], ir.Pred, paren(yes)+" != 0")
	}
}

// wide notes how many words an operation exchanges.
func (e *emitter) wide(words int) {
	e.words = max(e.words, words)
}
