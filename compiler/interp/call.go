// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package interp

import (
	"fmt"
	"math/bits"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// Local memory of a thread is a stack of activations: the function's local
// variables (ir.Func.LocalLayout), then those of space Param, then what it
// allocates. A function's own parameters have addresses in space Param from
// frameParams on, so that they are not taken for those of the launch.
const (
	frameParams = uint64(1) << 32
	maxLocal    = 512 << 10 // bytes of a thread, as devices have
	maxDepth    = 1 << 13   // of calls
)

// enter makes room for a function's variables in local memory.
func (w *warp) enter(f *frame, mask uint32) bool {
	for m := mask; m != 0; m &= m - 1 {
		l := bits.TrailingZeros32(m)
		f.base[l] = w.top[l]
		if !w.grow(l, f.code.frameBytes) {
			return false
		}
	}
	return f.depth < maxDepth
}

// grow makes n more bytes of local memory, in steps of 16.
func (w *warp) grow(l int, n uint64) bool {
	if n > maxLocal || w.top[l]+n > maxLocal {
		return false
	}
	w.top[l] += (n + 15) &^ 15
	if have := uint64(len(w.local[l])); w.top[l] > have {
		w.local[l] = append(w.local[l], make([]byte, max(w.top[l]-have, have))...)
	}
	return true
}

// calling is Call: direct, or to where each thread's pointer points.
func calling(w *warp, s *split, i *inst, mask uint32) bool {
	if mask == 0 {
		s.pc++
		return true
	}
	if mask != s.mask {
		w.spawn(s, s.mask&^mask, s.pc+1)
	}
	callee := i.callee
	if callee == nil {
		target := i.args[0].get(w, s.frame)
		group := w.groupOf(target, mask, ^uint64(0))
		if group != mask {
			w.spawn(s, mask&^group, s.pc)
			mask = group
		}
		var err error
		callee, err = w.function(target[bits.TrailingZeros32(mask)])
		if err != nil {
			w.fail(BadCall, s.frame, i.in, mask, err.Error())
			return false
		}
	}
	if len(i.in.CallArgs) != len(callee.fn.Params) || len(i.in.CallResults) != len(callee.fn.Results) {
		w.fail(BadCall, s.frame, i.in, mask, "parameters don't match "+callee.fn.Name)
		return false
	}
	f := newFrame(callee)
	f.up, f.ret, f.call, f.depth = s.frame, s.pc+1, i.in, s.frame.depth+1
	if !w.enter(f, mask) {
		w.fail(StackOverflow, s.frame, i.in, mask, "")
		return false
	}
	for n, v := range i.in.CallArgs {
		w.copyParam(f, &callee.fn.Params[n].Var, s.frame, v, mask)
	}
	s.frame, s.pc = f, 0
	return len(w.splits) == 1
}

// copyParam copies between the variables of two activations.
func (w *warp) copyParam(to *frame, tv *ir.Var, from *frame, fv *ir.Var, mask uint32) {
	n := uint64(min(tv.Size, fv.Size))
	t, f := uint64(to.code.offsets[tv]), uint64(from.code.offsets[fv])
	for m := mask; m != 0; m &= m - 1 {
		l := bits.TrailingZeros32(m)
		copy(w.local[l][to.base[l]+t:][:n], w.local[l][from.base[l]+f:][:n])
	}
}

// function returns the code of the function that an address is of.
func (g *grid) function(address uint64) (*code, error) {
	if address == 0 || address > uint64(len(g.Module.Funcs)) {
		return nil, fmt.Errorf("no function has address %#x", address)
	}
	return g.decode(g.Module.Funcs[address-1])
}

// returning is Ret.
func returning(w *warp, s *split, i *inst, mask uint32) bool {
	f := s.frame
	if f.up == nil {
		return exit(w, s, i, mask)
	}
	if mask == 0 {
		s.pc++
		return true
	}
	if mask != s.mask {
		w.spawn(s, s.mask&^mask, s.pc+1)
	}
	for n, v := range f.call.CallResults {
		w.copyParam(f.up, v, f, &f.code.fn.Results[n].Var, mask)
	}
	for m := mask; m != 0; m &= m - 1 {
		l := bits.TrailingZeros32(m)
		w.top[l] = f.base[l]
	}
	s.frame, s.pc = f.up, f.ret
	return len(w.splits) == 1
}
