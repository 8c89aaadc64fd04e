// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"math/rand/v2"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/interp"
)

// Interpreter is the reference interpreter as a device.
type Interpreter struct {
	// First: what can be stopped is stopped at the first point that a block comes
	// to, so that each kernel is stopped that can be.
	First bool
	// Pause, where it is set, says where blocks stop (interp.Launch.Pause).
	Pause func(block uint32, point int) bool
}

// maxSteps bounds a launch: none of the corpus comes near it.
const maxSteps = 1 << 28

// Run runs a launch. Pauses are at random points: at one of the first that blocks
// come to, so that hardly a run goes without, then at each with the same chance.
func (d Interpreter) Run(ctx context.Context, l *Launch, stop *rand.Rand) error {
	var memory interp.Memory
	for _, r := range l.Program.Memory {
		if err := memory.Map(r.Addr, r.Bytes); err != nil {
			return err
		}
	}
	run := interp.Launch{
		Module: l.Program.Module, Kernel: l.Kernel, Grid: l.Grid, Block: l.Block, DynamicShared: l.Shared,
		Params: l.Params(), Vars: l.Program.Vars, Memory: &memory, Plan: l.Plan, State: l.State,
		Out: &l.Program.Printed, MaxSteps: maxSteps,
	}
	if d.Pause != nil {
		run.Pause = d.Pause
	} else if stop != nil {
		chance := []float64{0.5, 0.2, 0.05, 0.01}[stop.IntN(4)]
		first := stop.IntN(4)
		if d.First {
			first = 0
		}
		run.Pause = func(_ uint32, point int) bool {
			if point == 0 {
				return !d.First && stop.Float64() < chance
			}
			first--
			return first == -1 || stop.Float64() < chance
		}
	}
	return interp.Run(ctx, &run)
}
