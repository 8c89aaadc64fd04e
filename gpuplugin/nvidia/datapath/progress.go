// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia"
)

// progress is how far an operation is. It is read while the operation runs.
type progress struct {
	done, total atomic.Uint64

	mu      sync.Mutex
	phase   string
	started time.Time
	past    []nvidia.MovePhase
}

func newProgress() *progress { return &progress{} }

// enter begins a phase and ends the one before.
func (p *progress) enter(phase string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.phase != "" {
		p.past = append(p.past, nvidia.MovePhase{Name: p.phase, Duration: now.Sub(p.started)})
	}
	p.phase, p.started = phase, now
}

func (p *progress) phases() []nvidia.MovePhase {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.past
}

func (p *progress) read() nvidia.Progress {
	p.mu.Lock()
	defer p.mu.Unlock()
	return nvidia.Progress{Phase: p.phase, Done: p.done.Load(), Total: p.total.Load()}
}

// show makes the progress of an operation readable by its parcels' names, until
// it ends.
func (m *Mover) show(parcels []*parcel, p *progress) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, parcel := range parcels {
		parcel.progress = p
	}
}
