// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package gpuengine_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
)

// stepTimeout is for processes that share two processors with other tests.
const stepTimeout = 60 * time.Second

// holdEach holds each rank by itself, for as long as a try of the engine takes,
// and tells whether that was all of them.
func (b *moverBench) holdEach(t *testing.T, pids []int) bool {
	t.Helper()
	errs := make([]error, len(pids))
	var wg sync.WaitGroup
	for i, pid := range pids {
		wg.Go(func() { errs[i] = b.mover.Hold(t.Context(), b.control, pid, 25*time.Millisecond) })
	}
	wg.Wait()
	all := true
	for _, err := range errs {
		all = all && err == nil
		if err != nil && !errors.Is(err, helperapi.ErrNotReady) {
			t.Fatal(err)
		}
	}
	return all
}

// locked tells whether the driver locks all ranks, as it does when their GPUs are
// idle, and unlocks them.
func (b *moverBench) locked(t *testing.T, pids []int) bool {
	t.Helper()
	errs := make([]error, len(pids))
	var wg sync.WaitGroup
	for i, pid := range pids {
		wg.Go(func() { errs[i] = b.helper.Lock(t.Context(), pid, 25*time.Millisecond) })
	}
	wg.Wait()
	all := true
	for i, pid := range pids {
		if errs[i] != nil {
			all = false
			continue
		}
		if err := b.helper.Unlock(t.Context(), pid); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func (b *moverBench) release(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		if err := b.mover.Release(t.Context(), b.control, pid); err != nil {
			t.Fatal(err)
		}
	}
}

// Ranks whose kernels wait for one another are stopped together, each time, with
// their GPUs idle, and go on with the right sums. One by one they mostly are not.
func TestRanks(t *testing.T) {
	for _, tc := range []struct {
		name  string
		ranks int
		args  []string
	}{
		{"two", 2, nil},
		{"four", 4, nil},
		{"proxies and barrier", 3, []string{"-p", "-b"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newMoverBench(t)
			y := b.startProgram(t, "ranks", tc.ranks, append([]string{"-i", "10", "-s", "3"}, tc.args...)...)
			pids := y.pids[1:]
			const stops = 10
			byChance, longest := 0, time.Duration(0)
			for range stops {
				if b.holdEach(t, pids) && b.locked(t, pids) {
					byChance++
				}
				b.release(t, pids)
				y.goesOn(t)

				start := time.Now()
				if err := b.mover.HoldTogether(t.Context(), b.control, pids, stepTimeout); err != nil {
					t.Fatal(err)
				}
				longest = max(longest, time.Since(start))
				b.clients(t, y, nvidia.ClientHeld)
				if !b.locked(t, pids) {
					t.Error("all are held, and the driver finds work")
				}
				b.release(t, pids)
				y.goesOn(t)
			}
			t.Logf("%d stops, the longest took %v; by chance %d", stops, longest, byChance)
			if byChance == stops {
				t.Error("each try without steps succeeded too: the program shows nothing")
			}
			// And what they share is taken out of them and given back.
			if err := b.mover.HoldTogether(t.Context(), b.control, pids, stepTimeout); err != nil {
				t.Fatal(err)
			}
			b.park(t, y)
			b.unpark(t, y)
		})
	}
}

// A rank that does not come keeps the others busy: that is said, and all run on.
func TestRanksThatDoNotCome(t *testing.T) {
	for name, kill := range map[string]bool{"blocked": false, "dead": true} {
		t.Run(name, func(t *testing.T) {
			b := newMoverBench(t)
			y := b.startProgram(t, "ranks", 3, "-i", "2", "-d", "5")
			y.reaches(t, 0, 5)
			y.reaches(t, 2, 5)
			pids := y.pids[1:]
			if kill {
				if err := syscall.Kill(pids[1], syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				pids = []int{pids[0], pids[2]}
			}
			start := time.Now()
			err := b.mover.HoldTogether(t.Context(), b.control, pids, time.Second)
			if !errors.Is(err, helperapi.ErrNotReady) || time.Since(start) > timeout {
				t.Fatalf("after %v: %v", time.Since(start), err)
			}
			for _, pid := range []int{pids[0], pids[len(pids)-1]} {
				if want := fmt.Sprintf("the GPU of process %d was busy", pid); !strings.Contains(err.Error(), want) {
					t.Errorf("error is %q, without %q", err, want)
				}
			}
			if !kill && !strings.Contains(err.Error(), fmt.Sprintf("the GPU of process %d was at rest after 0 steps", pids[1])) {
				t.Errorf("error is %q", err)
			}
			clients, err := b.mover.Clients(t.Context(), b.control)
			if err != nil || len(clients) != len(pids) {
				t.Fatal(clients, err)
			}
			for _, c := range clients {
				if c.State != nvidia.ClientRunning {
					t.Errorf("client %+v", c)
				}
			}
		})
	}
}
