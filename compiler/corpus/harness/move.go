// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/pause"
)

// manyMoves is after how many moves a launch is left to go on to its end.
const manyMoves = 40

// Path is how a program went from device to device.
type Path struct {
	// Legs are the runs: the device's number and the blocks' statuses behind it.
	Legs []string
	// Inside are the kernels that were stopped after their beginning, and how often.
	Inside map[string]int
}

// Move runs a program, stopping it at random, on one device after the other.
func Move(ctx context.Context, p *Program, r *rand.Rand, on ...Device) (Path, error) {
	path := Path{Inside: map[string]int{}}
	for i := range p.Case.Launches {
		l, err := p.Launch(i)
		if err != nil {
			return path, err
		}
		for n := 0; !l.Done(); n++ {
			stop := r
			if n >= manyMoves {
				stop = nil
			}
			if n > manyMoves+len(on) {
				return path, fmt.Errorf("launch %d does not end", i)
			}
			if err := on[n%len(on)].Run(ctx, l, stop); err != nil {
				return path, fmt.Errorf("launch %d, %s: %w", i, l.Kernel.Name, err)
			}
			leg, inside := fmt.Sprint(n%len(on)), 0
			for b := range l.Blocks() {
				s := l.Status(b)
				if s != pause.NotStarted && s != pause.Done {
					inside = 1
				}
				leg += fmt.Sprintf(" %x", s)
			}
			path.Legs = append(path.Legs, leg)
			if inside > 0 {
				path.Inside[l.Kernel.Name]++
			}
		}
	}
	return path, nil
}
