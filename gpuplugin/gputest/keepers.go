// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package gputest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/keeper"
)

// The calls about keepers of a [Library].
const (
	OpKeep    Op = "keep"
	OpFetch   Op = "fetch"
	OpSpend   Op = "spend"
	OpConfirm Op = "confirm"
)

// Keepers are the keepers of a [Library]. Library.mu guards them.
type Keepers struct{ l *Library }

// kept is one keeper.
type kept struct {
	memory    []Memory
	confirmed bool
	// lent is who has fetched from it: parcels.
	lent []string
}

var _ nvidia.Keepers = Keepers{}

// Keepers returns the library's.
func (l *Library) Keepers() Keepers { return Keepers{l} }

// Names are those that there are.
func (k Keepers) Names() []string {
	k.l.mu.Lock()
	defer k.l.mu.Unlock()
	return slices.Sorted(maps.Keys(k.l.kept))
}

// Lent tells whether somebody has fetched from a keeper.
func (k Keepers) Lent(name string) bool {
	k.l.mu.Lock()
	defer k.l.mu.Unlock()
	return k.l.kept[name] != nil && k.l.kept[name].lent != nil
}

// Kill is the end of a keeper.
func (k Keepers) Kill(name string) {
	k.l.mu.Lock()
	defer k.l.mu.Unlock()
	delete(k.l.kept, name)
}

// Home implements nvidia.Keepers.
func (k Keepers) Home() string { return "/kept" }

// Start implements nvidia.Keepers.
func (k Keepers) Start(context.Context, keeper.Label) (nvidia.Keeper, error) {
	k.l.mu.Lock()
	defer k.l.mu.Unlock()
	k.l.keepers++
	name := strconv.Itoa(k.l.keepers)
	k.l.kept[name] = &kept{}
	return started{k, name}, nil
}

// started is the connection of who has started a keeper.
type started struct {
	Keepers
	name string
}

func (s started) ID() string { return s.name }

func (s started) Confirm(ctx context.Context) error {
	return s.l.serve(ctx, OpConfirm, 0, func() error {
		k := s.l.kept[s.name]
		if k == nil {
			return gpuplugin.ErrNotKept
		}
		k.confirmed = true
		return nil
	})
}

func (s started) Drop(context.Context, string) error {
	s.Kill(s.name)
	return nil
}

func (s started) Close() error {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	if k := s.l.kept[s.name]; k != nil && !k.confirmed {
		delete(s.l.kept, s.name)
	}
	return nil
}

// Keep implements nvidia.Keeping.
func (l *Library) Keep(ctx context.Context, req nvidia.KeepRequest) (answer nvidia.Kept, err error) {
	err = l.serve(ctx, OpKeep, 0, func() error {
		found, err := l.all(req.Parcels)
		k := l.kept[req.Keeper]
		if err != nil || k == nil || k.memory != nil {
			return driverError(OpKeep, helperapi.Class_CLASS_NOT_KEPT, 0, fmt.Sprint(req, err))
		}
		answer = nvidia.Kept{Digest: "digest of " + req.Keeper, Bytes: map[string]uint64{}}
		for _, p := range found {
			k.memory = append(k.memory, maps.Clone(p.memory))
			for uuid, bytes := range p.memory {
				answer.Bytes[uuid] += bytes
			}
		}
		return nil
	})
	return answer, err
}

// Fetch implements nvidia.Keeping.
func (l *Library) Fetch(ctx context.Context, req nvidia.FetchRequest) (answer nvidia.Kept, err error) {
	err = l.serve(ctx, OpFetch, 0, func() error {
		k := l.kept[req.Keeper]
		if k == nil || k.lent != nil || !k.confirmed || len(k.memory) != len(req.Parcels) || req.Digest != "digest of "+req.Keeper {
			return driverError(OpFetch, helperapi.Class_CLASS_NOT_KEPT, 0, fmt.Sprint(req))
		}
		k.lent = req.Parcels
		answer = nvidia.Kept{Digest: req.Digest, Bytes: map[string]uint64{}}
		for i, name := range req.Parcels {
			l.parcels[name] = &parcel{memory: maps.Clone(k.memory[i])}
			for uuid, bytes := range k.memory[i] {
				answer.Bytes[uuid] += bytes
			}
		}
		return nil
	})
	return answer, err
}

// Spend implements nvidia.Keeping. A process that runs by then could have changed
// what another restore would be given.
func (l *Library) Spend(ctx context.Context, name, _ string) error {
	return l.serve(ctx, OpSpend, 0, func() error {
		for pid, c := range l.clients {
			if k := l.kept[name]; k != nil && c.state == nvidia.ClientRunning {
				l.tb.Errorf("process %d runs with memory that is kept", pid)
			}
		}
		delete(l.kept, name)
		return nil
	})
}

// giveBack is what Drop does to keepers. Library.mu: held.
func (l *Library) giveBack(parcels []string) {
	for _, k := range l.kept {
		if slices.ContainsFunc(k.lent, func(name string) bool { return slices.Contains(parcels, name) }) {
			k.lent = nil
		}
	}
}
