// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package interp

import (
	"fmt"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// nanosecondsPerStep makes %globaltimer of the number of instructions: time
// passes, and is the same in each run.
const nanosecondsPerStep = 4

// sreg makes a special register ready.
func (g *grid) sreg(s ir.Sreg) (operand, error) {
	if s >= ir.TidX && s <= ir.TidZ {
		return operand{slot: -1, special: func(w *warp, _ *frame) *lanes { return &w.tid[s-ir.TidX] }}, nil
	}
	byLane := map[ir.Sreg]func(l int) uint32{
		ir.LaneID:     func(l int) uint32 { return uint32(l) },
		ir.LanemaskEQ: func(l int) uint32 { return 1 << l },
		ir.LanemaskLE: func(l int) uint32 { return 2<<l - 1 },
		ir.LanemaskLT: func(l int) uint32 { return 1<<l - 1 },
		ir.LanemaskGE: func(l int) uint32 { return ^uint32(1<<l - 1) },
		ir.LanemaskGT: func(l int) uint32 { return ^uint32(2<<l - 1) },
	}
	if of := byLane[s]; of != nil {
		v := &lanes{}
		for l := range v {
			v[l] = uint64(of(l))
		}
		return operand{slot: -1, values: v}, nil
	}
	of := g.uniform(s)
	if of == nil {
		return none, fmt.Errorf("special register %s is not known", s)
	}
	scratch := &lanes{}
	return operand{slot: -1, special: func(w *warp, _ *frame) *lanes {
		x := of(w)
		for l := range scratch {
			scratch[l] = x
		}
		return scratch
	}}, nil
}

// uniform registers are the same for all threads of a warp.
func (g *grid) uniform(s ir.Sreg) func(w *warp) uint64 {
	constant := func(x uint64) func(*warp) uint64 { return func(*warp) uint64 { return x } }
	switch s {
	case ir.NtidX, ir.NtidY, ir.NtidZ:
		return constant(uint64(g.ntid[s-ir.NtidX]))
	case ir.NctaidX, ir.NctaidY, ir.NctaidZ:
		return constant(uint64(g.dim[s-ir.NctaidX]))
	case ir.CtaidX, ir.CtaidY, ir.CtaidZ:
		return func(w *warp) uint64 { return uint64(w.index[s-ir.CtaidX]) }
	case ir.WarpID:
		return func(w *warp) uint64 { return uint64(w.first / ir.WarpSize) }
	case ir.NWarpID:
		return constant(uint64((g.threads + ir.WarpSize - 1) / ir.WarpSize))
	case ir.SMID, ir.GridID:
		return constant(0)
	case ir.NSMID:
		return constant(1)
	case ir.Clock:
		return func(w *warp) uint64 { return w.steps & 0xffffffff }
	case ir.ClockHi:
		return func(w *warp) uint64 { return w.steps >> 32 }
	case ir.Clock64:
		return func(w *warp) uint64 { return w.steps }
	case ir.GlobalTimer:
		return func(w *warp) uint64 { return w.steps * nanosecondsPerStep }
	case ir.GlobalTimerLo:
		return func(w *warp) uint64 { return w.steps * nanosecondsPerStep & 0xffffffff }
	case ir.GlobalTimerHi:
		return func(w *warp) uint64 { return w.steps * nanosecondsPerStep >> 32 }
	case ir.TotalSmemSize:
		return constant(uint64(g.sharedBytes))
	case ir.DynamicSmemSize:
		return constant(uint64(g.DynamicShared))
	case ir.WarpSz:
		return constant(ir.WarpSize)
	}
	return nil
}
