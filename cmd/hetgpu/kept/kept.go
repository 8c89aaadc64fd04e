// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package kept is about snapshots whose device memory stays on the GPUs: `hetgpu
// drain` writes it to their files, `hetgpu drop` gives it up, and `hetgpu inspect`
// and `hetgpu doctor` ask who keeps it.
package kept

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/pkg/progress"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/keeper"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/config"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// bootID changes with each boot of the host (random(4)).
const bootID = "/proc/sys/kernel/random/boot_id"

// Host is where memory is kept.
type Host struct {
	home   keeper.Home
	helper nvidia.HelperConfig
	boot   string
}

// ThisHost reads the configuration.
func ThisHost() (*Host, error) {
	conf, err := config.Load()
	if err != nil {
		return nil, err
	}
	boot, err := os.ReadFile(bootID)
	if err != nil {
		return nil, err
	}
	return &Host{home: keeper.Home(conf.KeptDir()), helper: nvidia.HelperConfig{Binary: conf.Helper, KeyFile: conf.Encryption.KeyFile}, boot: strings.TrimSpace(string(boot))}, nil
}

// check fails for a snapshot whose memory can't be on this host.
func (h *Host) check(k *snapshot.Keeper) error {
	if k.BootID != h.boot {
		return fmt.Errorf("it was left on the GPUs of another host, or of this one before it was booted: %w", gpuplugin.ErrNotKept)
	}
	return nil
}

// Status asks who keeps the memory of a snapshot on this host.
func Status(ctx context.Context, k *snapshot.Keeper) (keeper.Status, error) {
	h, err := ThisHost()
	if err == nil {
		err = h.check(k)
	}
	if err != nil {
		return keeper.Status{}, err
	}
	return h.home.Status(ctx, k.ID)
}

// open reads the manifest of a snapshot whose memory is kept.
func open(dir string) (*snapshot.Snapshot, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	s, err := snapshot.Open(dir)
	if err == nil && s.Manifest.Kept() == nil {
		err = fmt.Errorf("%s: its device memory is in its files, or it has none", dir)
	}
	return s, err
}

// Drained is the result of a drain, as --json prints it (docs/formats.md).
type Drained struct {
	Directory string `json:"directory"`
	Container string `json:"container"`
	// Bytes is the memory, of which Stored is in files and Zero was empty.
	Bytes  uint64 `json:"bytes"`
	Stored uint64 `json:"stored_bytes"`
	Zero   uint64 `json:"zero_bytes"`
	// Reused is in the snapshots before.
	Reused  uint64  `json:"reused_bytes,omitempty"`
	Seconds float64 `json:"seconds"`
}

// Print writes it for people.
func (d *Drained) Print(w io.Writer) error {
	_, err := fmt.Fprintf(w, "%s: %s of device memory are in files now, %s of them in %s; %.1f s\n",
		d.Container, size(d.Bytes), size(d.Stored), d.Directory, d.Seconds)
	return err
}

// Drain writes the memory of a snapshot to its files, and frees it. Whatever
// fails, the memory is kept as it was, and the snapshot is as it was.
func (h *Host) Drain(ctx context.Context, dir string) (*Drained, error) {
	start := time.Now()
	s, err := open(dir)
	if err != nil {
		return nil, err
	}
	k := s.Manifest.Kept()
	if err := h.check(k); err != nil {
		return nil, err
	}
	keyID := ""
	if file := h.helper.KeyFile; file != "" {
		key, err := memfile.ReadKey(file)
		if err != nil {
			return nil, err
		}
		keyID = key.ID()
	}
	helper := nvidia.NewHelper(h.helper)
	defer func() { _ = helper.Close() }() // what it still holds goes back to the keeper
	names := make([]string, s.Manifest.Split())
	for i := range names {
		names[i] = strconv.Itoa(i)
	}
	_, err = helper.Fetch(ctx, nvidia.FetchRequest{
		KeepRequest: nvidia.KeepRequest{Home: string(h.home), Keeper: k.ID, Parcels: names}, Digest: k.Digest, By: "hetgpu drain",
	})
	if err != nil {
		return nil, err
	}
	if err := s.Drain(ctx, func(ctx context.Context) (snapshot.Memory, error) { return save(ctx, helper, s, names, keyID) }); err != nil {
		// In its own way: what it may have changed is put back.
		return nil, errors.Join(err, helper.Drop(context.WithoutCancel(ctx), names))
	}
	if err := helper.Spend(context.WithoutCancel(ctx), k.ID, "it was written to files in "+s.Dir); err != nil {
		return nil, fmt.Errorf("the snapshot is complete, but its memory stays on the GPU too (hetgpu drop --keeper %s): %w", k.ID, err)
	}
	m := s.Manifest.Memory
	return &Drained{
		Directory: s.Dir, Container: s.Manifest.Container.ID, Bytes: m.Bytes, Stored: m.StoredBytes, Zero: m.ZeroBytes, Reused: m.ReusedBytes,
		Seconds: time.Since(start).Seconds(),
	}, nil
}

func save(ctx context.Context, helper *nvidia.Helper, s *snapshot.Snapshot, names []string, keyID string) (snapshot.Memory, error) {
	saved, err := helper.Save(ctx, nvidia.SaveRequest{Dir: s.Dir, Parcels: names})
	if err == nil && saved.KeyID != keyID {
		err = fmt.Errorf("the device helper has used the key %q, and not %q", saved.KeyID, keyID)
	}
	return snapshot.Memory{Bytes: saved.Bytes, ZeroBytes: saved.Zero, StoredBytes: saved.Stored, ReusedBytes: saved.Reused, KeyID: saved.KeyID}, err
}

// Dropped is the result of a drop, as --json prints it (docs/formats.md).
type Dropped struct {
	Keeper    string `json:"keeper"`
	Container string `json:"container"`
	Directory string `json:"directory"`
	Bytes     uint64 `json:"bytes"`
}

// Print writes it for people.
func (d *Dropped) Print(w io.Writer) error {
	_, err := fmt.Fprintf(w, "%s of device memory of %s are free; the snapshot in %s can't be restored\n", size(d.Bytes), d.Container, d.Directory)
	return err
}

// Drop frees the memory of a snapshot, which can't be restored then.
func (h *Host) Drop(ctx context.Context, dir string) (*Dropped, error) {
	s, err := open(dir)
	if err != nil {
		return nil, err
	}
	k := s.Manifest.Kept()
	if err := h.check(k); err != nil {
		return nil, err
	}
	return h.DropKeeper(ctx, k.ID)
}

// DropKeeper frees what a keeper keeps, wherever its snapshot is.
func (h *Host) DropKeeper(ctx context.Context, id string) (*Dropped, error) {
	c, err := h.home.Connect(ctx, id)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }() // all was answered
	was, err := c.Status(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.Drop(ctx, "it was freed by hetgpu drop"); err != nil {
		return nil, err
	}
	return &Dropped{Keeper: id, Container: was.Container, Directory: was.Dir, Bytes: was.Bytes()}, nil
}

// size is a number of bytes for people.
func size(n uint64) string { return progress.Bytes(n).String() }
