// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/keeper"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// Device memory that is in no file is asked for, where somebody can be asked.
func TestKept(t *testing.T) {
	who := snapshot.Keeper{BootID: "01234567-89ab-cdef-0123-456789abcdef", ID: strings.Repeat("0f", 16), Digest: "sha256:" + strings.Repeat("0", 64)}
	dir := gpu(t, func(m *snapshot.Manifest) {
		m.Engine, m.Library = snapshot.EngineSplit, &snapshot.Library{BuildID: "00ff"}
		m.Processes[0].Memory, m.Processes[1].Memory = snapshot.MemorySplit, snapshot.MemoryDriver
		m.Memory = &snapshot.Memory{Bytes: 3 << 30, KeptBytes: 3 << 30, Keeper: &who}
	}).dir(t)
	for name, tc := range map[string]struct {
		ask     func(context.Context, *snapshot.Keeper) (keeper.Status, error)
		want    []string
		problem bool
	}{
		"nobody can be asked": {nil, []string{"3.0 GiB, not in files: keeper " + who.ID, "memory on the GPU"}, false},
		"it is there": {func(_ context.Context, k *snapshot.Keeper) (keeper.Status, error) {
			if *k != who {
				t.Errorf("asked for %+v", k)
			}
			return keeper.Status{PID: 4711, Devices: map[string]uint64{"GPU-a": 3 << 30}, By: "the restore of job-2"}, nil
		}, []string{"kept on the GPU by process 4711", "being taken by the restore of job-2"}, false},
		"it is gone": {func(context.Context, *snapshot.Keeper) (keeper.Status, error) {
			return keeper.Status{}, fmt.Errorf("container job-2 was restored with it: %w", gpuplugin.ErrNotKept)
		}, []string{"PROBLEM", "job-2 was restored with it", "not in files: keeper"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Inspect(t.Context(), dir, Options{Keeper: tc.ask})
			if errors.Is(err, ErrProblems) != tc.problem || r == nil || (r.Keeper != nil) != (tc.ask != nil && !tc.problem) {
				t.Fatalf("%+v, %v", r, err)
			}
			var b strings.Builder
			if err := r.Print(&b); err != nil {
				t.Fatal(err)
			}
			for _, want := range tc.want {
				if !strings.Contains(b.String(), want) {
					t.Errorf("%q is not in:\n%s", want, b.String())
				}
			}
		})
	}
}
