// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/keeper"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/keeper/keepertest"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/config"
)

func TestKeptMemory(t *testing.T) {
	k := keepertest.Start(t)
	state := filepath.Dir(string(k.Home))
	h := &Host{Root: filepath.Dir(state), Config: config.Config{StateDir: "/" + filepath.Base(state)}}
	one := func(status Status, found, advice string) {
		t.Helper()
		r := keptMemory(t.Context(), h)
		if len(r) != 1 || r[0].Status != status || !strings.Contains(r[0].Found, found) || !strings.Contains(r[0].Advice, advice) {
			t.Errorf("%+v, want %s %q %q", r, status, found, advice)
		}
	}
	one(OK, "which is being made", "")
	if err := k.Owner.Give(t.Context(), keeper.Memory{Processes: 1, Pieces: []keeper.Piece{}}, nil); err != nil {
		t.Fatal(err)
	}
	if err := k.Owner.Confirm(t.Context()); err != nil {
		t.Fatal(err)
	}
	one(OK, "for the snapshot in "+keepertest.Label.Dir, "hetgpu drop --keeper "+k.ID)
	h.UID = 1000
	one(OK, "only root", "")
	h.UID = 0
	k.Stop()
	<-k.Over
	one(OK, "none", "")
}
