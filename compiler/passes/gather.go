// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package passes

import (
	"slices"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// GatherSite is a barrier at which threads gather that stop in loops before it.
type GatherSite struct {
	// Barrier is where the threads of a block meet that come from the loops: a Bar
	// that is Sync, of the whole block, which becomes a reduction; or, if New, a place
	// for one more. With no Block that is the function's end.
	Block *ir.Block
	Index int
	New   bool
	// Before is a block, in no loop but those around the barrier, behind which all
	// ways to the barrier and to the loops lead.
	Before *ir.Block
	// Loops are entered at their headers only, and outer ones come before those in
	// them.
	Loops []GatherLoop
}

// GatherLoop is a loop that threads can leave, to gather.
type GatherLoop struct {
	Header  *ir.Block
	Latches []*ir.Block
	// Around are the places in GatherSite.Loops of those around it, outermost first.
	Around []int
	// Exit is where all ways out of the loop lead, from these blocks; nil if there are
	// several such places.
	Exit  *ir.Block
	Exits []*ir.Block
}

// Gather lets threads leave loops that have no barrier for the next barrier behind,
// when a pause is asked for, and go back to where they were. So a block can stop at
// that barrier while its threads are in the loops.
//
// A register, at, tells where a thread is: 0 on its way as ever, 1 at the barrier, 2
// and more in one of the loops. At the end of a round a thread asks (Poll), and with a
// yes goes to the barrier, which is a reduction now: is anybody in a loop? If so, all
// go back to a place from which each finds its way: to its loop, by the headers of the
// loops around it, or to the barrier. So no loop gets a second beginning:
//
//	before:  ...; at = 0
//	head:    @(at != 0) br ways, on        on: the program, as it was
//	latch:   @poll br leave, header        leave: at = 2; br out
//	out:     @(at > 1) br past, exit       past: br meet
//	meet:    any = bar.red.or at > 1; @any br back, behind
//	back:    at = max(at, 1); br head      ways: brx at, to meet or to headers
//
// At the loop's exit, out, a warp's threads come together, on whichever way they leave it.
//
// Blocks that begin with Gather are executed by threads of a block that stops only:
// Undisturbed is the flow without them. Gather 1 is on the way back.
func Gather(f *ir.Func, sites []GatherSite) {
	g := &gatherer{editor: edit(f), ends: map[*ir.Block]*ir.Block{}, behind: map[*ir.Block][]*ir.Block{}}
	all := make([]*gathering, len(sites))
	for i := range sites {
		all[i] = &gathering{
			gatherer: g, GatherSite: &sites[i],
			at: g.reg("at", ir.B32), on: g.reg("on", ir.Pred), in: g.reg("in", ir.Pred), any: g.reg("any", ir.Pred), stop: g.reg("stop", ir.Pred),
			meet: g.block("meet"), head: g.block("head"), ways: g.block("ways"),
		}
	}
	for _, s := range all { // first, while blocks are whole
		s.exits()
		s.leave()
	}
	for _, s := range all {
		s.pass()
		s.barrier()
	}
	for _, s := range all {
		s.begin()
	}
	var blocks []*ir.Block
	for _, b := range f.Blocks {
		blocks = append(blocks, g.with(b)...)
	}
	f.Blocks = append(blocks, g.last...)
}

// gatherer changes a function.
type gatherer struct {
	*editor
	// ends has, of a block that was cut, the one that has its end now.
	ends map[*ir.Block]*ir.Block
	// behind has the blocks to put behind others, and last those at the end.
	behind map[*ir.Block][]*ir.Block
	last   []*ir.Block
}

// with returns a block and what stands behind it.
func (g *gatherer) with(b *ir.Block) []*ir.Block {
	all := []*ir.Block{b}
	for _, next := range g.behind[b] {
		all = append(all, g.with(next)...)
	}
	return all
}

// cut moves the instructions from i on to a new block.
func (g *gatherer) cut(b *ir.Block, i int) *ir.Block {
	rest := g.block(b.Name)
	rest.Instrs = append(rest.Instrs, b.Instrs[i:]...)
	b.Instrs = slices.Clip(b.Instrs[:i])
	if g.ends[b] != nil {
		g.ends[rest] = g.ends[b]
	}
	g.ends[b] = rest
	g.behind[b] = append([]*ir.Block{rest}, g.behind[b]...)
	return rest
}

// gathering is the change for one site.
type gathering struct {
	*gatherer
	*GatherSite
	at                ir.Reg // where the thread is
	on, in, any, stop ir.Reg
	meet, head, ways  *ir.Block
	outs              []*ir.Block // of the loops
}

// On the way to the barrier, and back.
const (
	away = 0
	back = 1
)

// gathers makes a block, behind all others, that only threads execute which stop.
func (s *gathering) gathers(name string, way uint64) *ir.Block {
	b := s.block(name)
	emit(b, ir.Instr{Op: ir.Gather, Args: []ir.Operand{ir.Imm(way)}})
	s.last = append(s.last, b)
	return b
}

func (s *gathering) set(b *ir.Block, at int) {
	emit(b, ir.Instr{Op: ir.Mov, Type: ir.B32, Dst: []ir.Reg{s.at}, Args: []ir.Operand{ir.Imm(uint64(at))}})
}

// fork ends a block with a branch to one of two.
func (s *gathering) fork(b *ir.Block, p ir.Reg, yes, no *ir.Block) {
	b.Instrs = append(b.Instrs, &ir.Instr{Op: ir.Br, Guard: p, Targets: []*ir.Block{yes, no}})
}

// goesOn ends a block with a branch for threads that are on their way back.
func (s *gathering) goesOn(b, ways, on *ir.Block) {
	emit(b, ir.Instr{Op: ir.Setp, Type: ir.U32, Mods: ir.Mods{Cmp: ir.NE}, Dst: []ir.Reg{s.on}, Args: []ir.Operand{ir.R(s.at), ir.Imm(0)}})
	s.fork(b, s.on, ways, on)
}

// code is what at is for a loop.
func code(loop int) int { return loop + 2 }

// out is where threads go that leave a loop: to its exit, which sends them on.
func (s *gathering) out(i int) *ir.Block {
	if s.outs[i] != nil {
		return s.outs[i]
	}
	return s.past(i)
}

// past is where they go from there: to the next loop's exit, or to the barrier.
func (s *gathering) past(i int) *ir.Block {
	for _, around := range slices.Backward(s.Loops[i].Around) {
		if s.outs[around] != nil {
			return s.outs[around]
		}
	}
	return s.meet
}

// exits makes the loops' exits places where threads come together. There is no need if
// the barrier is there.
func (s *gathering) exits() {
	s.outs = make([]*ir.Block, len(s.Loops))
	for i, loop := range s.Loops {
		if loop.Exit == nil || loop.Exit == s.Block && s.Index == 0 {
			continue
		}
		out := s.block(loop.Header.Name + ".out")
		for _, from := range loop.Exits {
			last := from.Term()
			last.Targets = slices.Clone(last.Targets)
			for n, to := range last.Targets {
				if to == loop.Exit {
					last.Targets[n] = out
				}
			}
		}
		from := loop.Exits[len(loop.Exits)-1]
		s.behind[from] = append(s.behind[from], out)
		s.outs[i] = out
	}
	for i, out := range s.outs {
		if out == nil {
			continue
		}
		past := s.gathers(s.Loops[i].Header.Name+".past", away)
		branch(past, s.past(i), ir.Pos{})
		at := s.Loops[i].Exits[0].Term().Pos
		emit(out, ir.Instr{Op: ir.Setp, Type: ir.U32, Mods: ir.Mods{Cmp: ir.GT}, Dst: []ir.Reg{s.on}, Args: []ir.Operand{ir.R(s.at), ir.Imm(1)}, Pos: at})
		s.fork(out, s.on, past, s.Loops[i].Exit)
	}
}

// leave gives the loops' rounds their ends.
func (s *gathering) leave() {
	for i, loop := range s.Loops {
		latch := s.block(loop.Header.Name + ".round")
		for _, from := range loop.Latches {
			last := from.Term()
			last.Targets = slices.Clone(last.Targets)
			for n, to := range last.Targets {
				if to == loop.Header {
					last.Targets[n] = latch
				}
			}
		}
		from := loop.Latches[len(loop.Latches)-1]
		s.behind[from] = append(s.behind[from], latch)
		leave := s.gathers(loop.Header.Name+".leave", away)
		s.set(leave, code(i))
		branch(leave, s.out(i), ir.Pos{})
		at := from.Term().Pos
		emit(latch, ir.Instr{Op: ir.Poll, Dst: []ir.Reg{s.stop}, Pos: at})
		s.fork(latch, s.stop, leave, loop.Header)
	}
}

// pass lets threads on their way to inner loops through the outer ones' headers.
func (s *gathering) pass() {
	for i, loop := range s.Loops {
		var inner []int
		for j := range s.Loops {
			if n := len(s.Loops[j].Around); n > 0 && s.Loops[j].Around[n-1] == i {
				inner = append(inner, j)
			}
		}
		if len(inner) == 0 {
			continue
		}
		body := s.cut(loop.Header, 0)
		ways := s.gathers(loop.Header.Name+".ways", back)
		s.goesOn(loop.Header, ways, body)
		here := s.gathers(loop.Header.Name+".here", back)
		s.set(here, 0)
		branch(here, body, ir.Pos{})
		s.dispatch(ways, func(j int) *ir.Block {
			switch around := s.Loops[j].Around; {
			case j == i:
				return here
			case slices.Contains(around, i):
				if at := slices.Index(around, i) + 1; at < len(around) {
					return s.Loops[around[at]].Header
				}
				return s.entry(j)
			}
			return here // never: the way leads over another header
		})
	}
}

// entry is where a thread enters its loop: at the header, which sends it on if there
// are loops in it.
func (s *gathering) entry(loop int) *ir.Block {
	header := s.Loops[loop].Header
	for _, other := range s.Loops {
		if slices.Contains(other.Around, loop) {
			return header
		}
	}
	here := s.gathers(header.Name+".here", back)
	s.set(here, 0)
	branch(here, header, ir.Pos{})
	return here
}

// dispatch ends a block with a branch to where each loop's threads go.
func (s *gathering) dispatch(b *ir.Block, to func(loop int) *ir.Block) {
	targets := []*ir.Block{nil, nil}
	for j := range s.Loops {
		targets = append(targets, to(j))
	}
	targets[0], targets[1] = targets[2], targets[2]
	emit(b, ir.Instr{Op: ir.Brx, Args: []ir.Operand{ir.R(s.at)}, Targets: targets})
}

// barrier makes the place where threads meet.
func (s *gathering) barrier() {
	if s.Block == nil {
		s.end()
	}
	b, index := s.Block, s.Index
	for s.ends[b] != nil && index >= len(b.Instrs) { // it was cut before
		index -= len(b.Instrs)
		b = s.ends[b]
	}
	rest := s.cut(b, index)
	s.behind[b] = append([]*ir.Block{s.meet}, s.behind[b]...)
	at := rest.Instrs[0].Pos
	branch(b, s.meet, at)
	if !s.New {
		rest.Instrs = rest.Instrs[1:]
	}
	emit(s.meet, ir.Instr{Op: ir.Setp, Type: ir.U32, Mods: ir.Mods{Cmp: ir.GT}, Dst: []ir.Reg{s.in}, Args: []ir.Operand{ir.R(s.at), ir.Imm(1)}, Pos: at})
	emit(s.meet, ir.Instr{Op: ir.Bar, Mods: ir.Mods{Bar: ir.BarRedOr}, Dst: []ir.Reg{s.any}, Args: []ir.Operand{ir.Imm(0), ir.Imm(0), ir.R(s.in)}, Pos: at})
	again := s.gathers(s.meet.Name+".back", back)
	s.fork(s.meet, s.any, again, rest)
	emit(again, ir.Instr{Op: ir.Max, Type: ir.U32, Dst: []ir.Reg{s.at}, Args: []ir.Operand{ir.R(s.at), ir.Imm(1)}})
	branch(again, s.head, ir.Pos{})
}

// end leads all ways to the kernel's end over one block.
func (s *gathering) end() {
	s.Block = s.block("end")
	emit(s.Block, ir.Instr{Op: ir.Exit})
	for _, b := range s.f.Blocks {
		if last := b.Term(); last.Op == ir.Exit || last.Op == ir.Ret {
			b.Instrs = b.Instrs[:len(b.Instrs)-1]
			branch(b, s.Block, last.Pos)
			s.Block.Instrs[0].Pos = last.Pos
		}
	}
	last := s.f.Blocks[len(s.f.Blocks)-1]
	s.behind[last] = append(s.behind[last], s.Block)
}

// begin makes the place where all ways begin.
func (s *gathering) begin() {
	b := s.Before
	for s.ends[b] != nil {
		b = s.ends[b]
	}
	on := s.cut(b, len(b.Instrs)-1)
	s.set(b, 0)
	branch(b, s.head, ir.Pos{})
	s.behind[b] = append([]*ir.Block{s.head}, s.behind[b]...)
	s.goesOn(s.head, s.ways, on)
	emit(s.ways, ir.Instr{Op: ir.Gather, Args: []ir.Operand{ir.Imm(back)}})
	s.last = append(s.last, s.ways)
	s.dispatch(s.ways, func(j int) *ir.Block {
		if around := s.Loops[j].Around; len(around) > 0 {
			return s.Loops[around[0]].Header
		}
		return s.entry(j)
	})
	s.ways.Term().Targets[0], s.ways.Term().Targets[1] = s.meet, s.meet
	if s.Before != s.Block {
		return
	}
	// The barrier is met before, for the first time.
	first := s.f.Blocks[0]
	first.Instrs = append([]*ir.Instr{{
		Op: ir.Mov, Type: ir.B32, Guard: ir.NoReg, Dst: []ir.Reg{s.at}, Args: []ir.Operand{ir.Imm(0)},
	}}, first.Instrs...)
}
