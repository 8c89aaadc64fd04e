// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package datapath

import "context"

// Turns are turns by themselves.
type Turns struct{ turns }

// Take is take.
func (t *Turns) Take(ctx context.Context, devices []string, alone bool) (done func(), err error) {
	return t.take(ctx, devices, alone)
}

// Alone is how many turns alone are had or waited for.
func (m *Mover) Alone() (n int) {
	m.turns.mu.Lock()
	defer m.turns.mu.Unlock()
	for _, t := range m.turns.line {
		if t.alone {
			n++
		}
	}
	return n
}
