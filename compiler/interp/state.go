// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package interp

import (
	"fmt"
	"math/bits"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/pause"
)

// preparePausing finds where the points of the plan are.
func (g *grid) preparePausing() error {
	g.points, g.edges = map[*ir.Instr]int{}, map[[2]*ir.Block]int{}
	if g.State == nil {
		return nil
	}
	if g.Plan == nil || g.Plan.Func != g.Kernel {
		return fmt.Errorf("interp: a state needs the plan of kernel %s", g.Kernel.Name)
	}
	if want := g.Plan.StateBytes(int64(g.blocks), int64(g.threads), int64(g.DynamicShared)); int64(len(g.State)) != want {
		return fmt.Errorf("interp: the state of this launch of %s has %d bytes, not %d", g.Kernel.Name, want, len(g.State))
	}
	for n := range g.Plan.Points {
		p := &g.Plan.Points[n]
		for _, poll := range p.Polls {
			g.points[poll] = n + 1
		}
		if p.Kind == pause.BackEdge {
			g.edges[[2]*ir.Block{p.From, p.Block}] = n + 1
		} else {
			g.points[p.Block.Instrs[p.Index]] = n + 1
		}
	}
	return nil
}

// asksBlock tells whether a block is to stop at a point.
func (g *grid) asksBlock(id uint32, point int) bool {
	return g.State != nil && g.Pause != nil && g.Pause(id, point)
}

func (b *block) asks(point int) bool { return b.asksBlock(b.id, point) }

// poll makes ir.Poll ready: with a yes all threads of the block stop at the barrier
// that those which poll go to.
func (b *builder) poll() error {
	point, d := b.points[b.Instr], b.to(0, ir.Pred)
	b.i.run = func(w *warp, f *frame, mask uint32) {
		yes := point != 0 && w.asks(point)
		w.stopping = w.stopping || yes
		d.setPred(f, everywhere(yes), mask)
	}
	return nil
}

func (g *grid) status(id uint32) []byte { return g.State[4*int64(id):][:4] }

// area is a block's part of the state, in which the values begin at values and
// local memory at local.
type area struct {
	bytes         []byte
	values, local int64
}

func (g *grid) area(id uint32) area {
	threads, dynamic := int64(g.threads), int64(g.DynamicShared)
	n := g.Plan.AreaBytes(threads, dynamic)
	at := g.Plan.StatusBytes(int64(g.blocks)) + n*int64(id)
	return area{bytes: g.State[at : at+n], values: g.Plan.ValuesOffset(dynamic), local: g.Plan.LocalOffset(threads, dynamic)}
}

// value is where value v of thread t is.
func (a area) value(v pause.Value, t, threads int) []byte {
	size := int64(v.Type.Size())
	at := a.values + v.Offset*int64(threads) + size*int64(t)
	return a.bytes[at : at+size]
}

// point is where the number of thread t's own point is, in kernels with points at
// back-edges.
func (a area) point(t int) []byte { return a.bytes[a.values+4*int64(t):][:4] }

// begin makes a block ready to run: from its beginning, or from where it stopped.
// It returns nil if the block is done, or stays where it is.
func (g *grid) begin(id uint32) (*block, error) {
	if g.State == nil {
		return newBlock(g, id), nil
	}
	status := le.Uint32(g.status(id))
	switch status {
	case pause.Done:
		return nil, nil
	case pause.NotStarted:
		if g.asksBlock(id, 0) {
			return nil, nil
		}
		b := newBlock(g, id)
		if len(g.edges) > 0 {
			for t := range g.threads {
				le.PutUint32(g.area(id).point(t), pause.ThreadEnded)
			}
		}
		return b, nil
	}
	b := newBlock(g, id)
	copy(b.shared, g.area(id).bytes)
	for _, w := range b.warps {
		if err := w.restore(status); err != nil {
			return nil, err
		}
	}
	if b.live == 0 {
		return nil, g.end(b)
	}
	return b, nil
}

// end writes down where a block that has no thread left to run is.
func (g *grid) end(b *block) error {
	if g.State == nil {
		return nil
	}
	status := pause.Done
	switch {
	case b.paused != 0:
		status = uint32(b.paused)
	case b.ended < b.threads:
		status = pause.ThreadPoints
	}
	le.PutUint32(g.status(b.id), status)
	if status != pause.Done {
		copy(g.area(b.id).bytes, b.shared)
	}
	return nil
}

// pauseAll saves all threads of a block, which are behind the same barrier.
func (b *block) pauseAll(point int) {
	b.paused = point
	b.live = 0
	for _, w := range b.warps {
		for _, s := range w.splits {
			w.save(s.frame, s.mask, point)
		}
		w.splits, w.live = nil, 0
	}
}

// branchAtPoint is a branch of which an edge is a pause point: each group of
// threads may leave there.
func (w *warp) branchAtPoint(s *split, i *inst, mask uint32) bool {
	for n, group := range [2]uint32{mask, s.mask &^ mask} {
		point := i.points[n]
		if group == 0 || point == 0 || !w.asks(point) {
			continue
		}
		w.save(s.frame, group, point)
		for m := group; m != 0; m &= m - 1 {
			le.PutUint32(w.area(w.id).point(w.first+bits.TrailingZeros32(m)), uint32(point))
		}
		w.drop(s, group)
		w.block.live -= bits.OnesCount32(group)
		w.progress = true
		mask &^= group
	}
	if s.mask == 0 {
		return false
	}
	plain := *i
	plain.points = [2]int{}
	branch(w, s, &plain, mask)
	return false
}

// save writes the values and the local memory of threads into the state.
func (w *warp) save(f *frame, mask uint32, point int) {
	a := w.area(w.id)
	for _, v := range w.Plan.Points[point-1].Values {
		slot := f.code.slot[v.Reg]
		for m := mask; m != 0; m &= m - 1 {
			l := bits.TrailingZeros32(m)
			b := a.value(v, w.first+l, w.threads)
			switch v.Type {
			case ir.Pred:
				b[0] = byte(f.preds[slot] >> l & 1)
			case ir.B128:
				put(b[:8], f.regs[slot][l])
				put(b[8:], f.regs[slot+1][l])
			default:
				put(b, f.regs[slot][l])
			}
		}
	}
	w.eachLocal(f, mask, point, a, func(memory, state []byte) { copy(state, memory) })
}

// eachLocal hands out what is in use of local memory, and where the state has it.
func (w *warp) eachLocal(f *frame, mask uint32, point int, a area, do func(memory, state []byte)) {
	for _, part := range w.Plan.LocalParts(point) {
		for m := mask; m != 0; m &= m - 1 {
			l := bits.TrailingZeros32(m)
			top := uint64(0)
			if part.Stack != nil {
				top = f.regs[f.code.slot[part.Stack.Top]][l]
			}
			end := part.Offset + part.Used(top)
			do(w.local[l][part.Offset:end], w.saved(a, l)[part.Offset:end])
		}
	}
}

// saved is where local memory of lane l is saved.
func (w *warp) saved(a area, l int) []byte {
	n := w.Plan.LocalBytes
	at := a.local + n*int64(w.first+l)
	return a.bytes[at : at+n]
}

// restore puts threads where the state has them: all at one point, or each at
// its own.
func (w *warp) restore(status uint32) error {
	a := w.area(w.id)
	f := w.splits[0].frame
	all := w.live
	w.splits, w.live = nil, 0
	groups := map[uint32]uint32{}
	var numbers []uint32 // of the points, in the order of the threads
	for m := all; m != 0; m &= m - 1 {
		l := bits.TrailingZeros32(m)
		p := status
		if status == pause.ThreadPoints {
			own := a.point(w.first + l)
			p = le.Uint32(own)
			le.PutUint32(own, pause.ThreadEnded) // unless it stops again
		}
		if status == pause.ThreadPoints && p == pause.ThreadEnded {
			w.block.live--
			w.ended++
			continue
		}
		if groups[p] == 0 {
			numbers = append(numbers, p)
		}
		groups[p] |= 1 << l
	}
	for _, p := range numbers {
		if p == 0 || int64(p) > int64(len(w.Plan.Points)) {
			return fmt.Errorf("interp: block %d of kernel %s is at point %d, which it has not", w.id, w.Kernel.Name, p)
		}
		point := &w.Plan.Points[p-1]
		if (point.Kind == pause.BackEdge) != (status == pause.ThreadPoints) {
			return fmt.Errorf("interp: block %d of kernel %s is at point %d, which is of another kind", w.id, w.Kernel.Name, p)
		}
		w.load(f, groups[p], int(p), a)
		pc := f.code.begin[point.Block]
		if point.Kind == pause.Barrier {
			pc += int32(point.Index) + 1
		}
		w.splits = append(w.splits, &split{frame: f, pc: pc, mask: groups[p]})
		w.live |= groups[p]
	}
	return nil
}

// load is the inverse of save.
func (w *warp) load(f *frame, mask uint32, number int, a area) {
	for _, v := range w.Plan.Points[number-1].Values {
		slot := f.code.slot[v.Reg]
		for m := mask; m != 0; m &= m - 1 {
			l := bits.TrailingZeros32(m)
			b := a.value(v, w.first+l, w.threads)
			switch v.Type {
			case ir.Pred:
				f.preds[slot] = f.preds[slot]&^(1<<l) | uint32(b[0]&1)<<l
			case ir.B128:
				f.regs[slot][l], f.regs[slot+1][l] = get(b[:8]), get(b[8:])
			default:
				f.regs[slot][l] = get(b)
			}
		}
	}
	w.eachLocal(f, mask, number, a, func(memory, state []byte) { copy(memory, state) })
}
