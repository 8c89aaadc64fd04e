// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package gpuengine_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
	"github.com/hetgpu/containerd-shim-hetgpu/integration/standin"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
)

// moverBench is a bench whose programs have libhetcuda in front of the driver,
// and a second helper that moves their memory.
type moverBench struct {
	*bench
	mover   *nvidia.Helper
	control string
}

func newMoverBench(t *testing.T) *moverBench {
	t.Helper()
	library := filepath.Join(bin, "hetcuda")
	out, err := exec.CommandContext(t.Context(), "make", "-s", "-j2", "-C", "../../libhetcuda", "OUT="+library).CombinedOutput()
	if err != nil {
		t.Fatalf("build libhetcuda: %v\n%s", err, out)
	}
	control := filepath.Join(t.TempDir(), "c")
	if err := os.Mkdir(control, 0o700); err != nil {
		t.Fatal(err)
	}
	spec := standin.H200s(2, 3)
	for i := range spec.GPUs {
		spec.GPUs[i].Memory = 1 << 30 // so that there is room for a copy
	}
	b := newBench(t, spec)
	mover := nvidia.NewHelper(nvidia.HelperConfig{Binary: filepath.Join(bin, "hetgpu-gpu"), Env: helperEnv(b.Machine)})
	t.Cleanup(func() {
		if err := mover.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Setenv("LD_LIBRARY_PATH", library)
	t.Setenv("HETCUDA_REAL", filepath.Join(bin, "libcuda.so.1"))
	t.Setenv("HETCUDA_CONTROL", control)
	return &moverBench{bench: b, mover: mover, control: control}
}

// clients are the ranks, in the order of the toy's.
func (b *moverBench) clients(t *testing.T, y *toy, want nvidia.ClientState) {
	t.Helper()
	clients, err := b.mover.Clients(t.Context(), b.control)
	if err != nil || len(clients) != len(y.pids)-1 {
		t.Fatalf("clients %+v, %v", clients, err)
	}
	for _, c := range clients {
		if c.State != want || c.Chunks == 0 || c.Bytes == 0 {
			t.Errorf("client %+v, want it %s", c, want)
		}
	}
}

// parcels are the names of the ranks' memory.
func parcels(y *toy) []string {
	var names []string
	for i := range y.pids[1:] {
		names = append(names, fmt.Sprintf("toy/%d", i))
	}
	return names
}

// request is to park a process, of which each may have all devices.
func (b *moverBench) request(t *testing.T, pid int, parcel string) nvidia.ParkRequest {
	t.Helper()
	inventory, err := b.Inventory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	req := nvidia.ParkRequest{Dir: b.control, PID: pid, Parcel: parcel, Devices: map[string]uint64{}}
	for _, d := range inventory.Devices {
		req.Devices[d.UUID] = d.MemoryBytes
	}
	return req
}

// park holds all and takes the memory of all.
func (b *moverBench) park(t *testing.T, y *toy) {
	t.Helper()
	for _, pid := range y.pids[1:] {
		if err := b.mover.Hold(t.Context(), b.control, pid, timeout); err != nil {
			t.Fatal(err)
		}
	}
	for i, pid := range y.pids[1:] {
		parked, err := b.mover.Park(t.Context(), b.request(t, pid, parcels(y)[i]))
		if err != nil || parked.Chunks == 0 || len(parked.Bytes) != 1 {
			t.Fatalf("parked %+v, %v", parked, err)
		}
	}
	if err := b.mover.Commit(t.Context(), parcels(y)); err != nil {
		t.Fatal(err)
	}
	b.clients(t, y, nvidia.ClientParked)
}

// unpark gives it back, and sees each go on with the right sums.
func (b *moverBench) unpark(t *testing.T, y *toy) {
	t.Helper()
	waiting := map[int]string{}
	for i, pid := range y.pids[1:] {
		name := parcels(y)[i]
		switch err := b.mover.Unpark(t.Context(), b.control, pid, name); {
		case errors.Is(err, helperapi.ErrNotReady):
			waiting[pid] = name
		case err != nil:
			t.Fatal(err)
		}
	}
	for pid, name := range waiting {
		if err := b.mover.Unpark(t.Context(), b.control, pid, name); err != nil {
			t.Fatal(err)
		}
	}
	b.clients(t, y, nvidia.ClientHeld)
	for _, pid := range y.pids[1:] {
		if err := b.mover.Release(t.Context(), b.control, pid); err != nil {
			t.Fatal(err)
		}
	}
	y.goesOn(t)
	b.clients(t, y, nvidia.ClientRunning)
}

func (b *moverBench) save(t *testing.T, y *toy, dir string) {
	t.Helper()
	saved, err := b.mover.Save(t.Context(), nvidia.SaveRequest{Dir: dir, Parcels: parcels(y)})
	if err != nil {
		t.Fatal(err)
	}
	x, err := memfile.Verify(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if s := x.Sizes(); s.Memory != saved.Bytes || s.Stored != saved.Stored || saved.Stored == 0 || len(x.Processes) != len(y.pids)-1 {
		t.Errorf("saved %+v, and the index says %+v", saved, s)
	}
}

// The memory stays with the helper while the driver checkpoints what is left.
func TestMoverParksAcrossACheckpoint(t *testing.T) {
	b := newMoverBench(t)
	y := b.start(t, 2, "-b", "3000000")
	procs := b.find(t, y)
	b.clients(t, y, nvidia.ClientRunning)
	b.park(t, y)
	if err := b.Suspend(t.Context(), procs); err != nil {
		t.Fatal(err)
	}
	b.states(t, procs, gpuplugin.StateCheckpointed)
	b.clients(t, y, nvidia.ClientParked)
	if err := b.Resume(t.Context(), procs, nil); err != nil {
		t.Fatal(err)
	}
	b.unpark(t, y)
}

// The ranks go on while a copy of their memory is saved.
func TestMoverDuplicates(t *testing.T) {
	b := newMoverBench(t)
	y := b.start(t, 2, "-b", "3000000")
	b.park(t, y)
	if done, err := b.mover.Duplicate(t.Context(), parcels(y)); err != nil || !done {
		t.Fatal(done, err)
	}
	b.unpark(t, y)
	b.save(t, y, t.TempDir())
	y.goesOn(t)
	if err := b.mover.Drop(t.Context(), parcels(y)); err != nil {
		t.Fatal(err)
	}
}

// The ranks go on with memory that was nowhere but in files.
func TestMoverSavesAndLoads(t *testing.T) {
	b := newMoverBench(t)
	y := b.start(t, 3, "-b", "9000000")
	b.park(t, y)
	dir := t.TempDir()
	b.save(t, y, dir)
	if err := b.mover.Drop(t.Context(), parcels(y)); err != nil {
		t.Fatal(err)
	}
	load := nvidia.LoadRequest{Dir: dir, Parcels: parcels(y)}
	damaged := filepath.Join(dir, memfile.DataName(0))
	data, err := os.ReadFile(damaged)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(damaged, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := b.mover.Load(t.Context(), load); !errors.Is(err, helperapi.ErrDamaged) {
		t.Errorf("one bit: %v", err)
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(damaged, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := b.mover.Load(t.Context(), load); err != nil {
		t.Fatal(err)
	}
	b.unpark(t, y)
}

// A helper that dies takes its holds with it, and the call says so.
func TestMoverDies(t *testing.T) {
	b := newMoverBench(t)
	y := b.start(t, 2)
	for _, pid := range y.pids[1:] {
		if err := b.mover.Hold(t.Context(), b.control, pid, timeout); err != nil {
			t.Fatal(err)
		}
	}
	b.clients(t, y, nvidia.ClientHeld)
	if err := b.mover.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.mover.Park(t.Context(), nvidia.ParkRequest{Dir: b.control, PID: y.pids[1], Parcel: "p"}); !errors.Is(err, gpuplugin.ErrUnavailable) {
		t.Errorf("err = %v", err)
	}
	y.goesOn(t)
}

func TestMoverRefusesWhatIsCanceled(t *testing.T) {
	b := newMoverBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.mover.Clients(ctx, b.control); !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v", err)
	}
	// And is there afterwards.
	if clients, err := b.mover.Clients(t.Context(), b.control); err != nil || len(clients) != 0 {
		t.Errorf("%v, %v", clients, err)
	}
}
