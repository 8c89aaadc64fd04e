// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package datapath_test

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/datapath"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
)

// storage is a machine with a process whose memory a driver shows: between the
// completion of a checkpoint and that of a restore it is nowhere.
type storage struct {
	*machine
	*datapath.Mover
	tb testing.TB

	state  string
	memory map[string][]byte // by device
	gone   bool
	// failing is what calls fail with, by name; shrink is how much less a restore
	// shows.
	failing map[string]error
	shrink  uint64
	devices gpuplugin.DeviceMap
}

const (
	locked        = "locked"
	checkpointing = "checkpointing"
	checkpointed  = "checkpointed"
	restoring     = "restoring"
)

func newStorage(t *testing.T) *storage {
	t.Helper()
	s := &storage{
		machine: newMachine(t, uuid0.String(), uuid1.String(), uuid2.String()),
		tb:      t, state: locked, failing: map[string]error{},
		memory: map[string][]byte{
			uuid0.String(): mapped(t, contents()[:5*mib+8192]),
			uuid1.String(): mapped(t, slices.Concat(make([]byte, 4*mib), contents()[mib:3*mib], make([]byte, 2*mib))),
		},
	}
	s.Mover = datapath.New(s, datapath.Config{SlotSize: 4 * mib, Slots: 2, Lanes: 6, Spare: mib, Idle: time.Hour})
	return s
}

// mapped is memory that has an address as a device's has.
func mapped(tb testing.TB, data []byte) []byte {
	tb.Helper()
	mem, err := unix.Mmap(-1, 0, len(data), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = unix.Munmap(mem) })
	copy(mem, data)
	return mem
}

func (s *storage) BeginCheckpoint(int) (datapath.Operation, error) {
	if s.state != locked {
		return nil, &helperapi.Error{Class: helperapi.Class_CLASS_ILLEGAL_STATE}
	}
	if err := s.failing["BeginCheckpoint"]; err != nil {
		return nil, err
	}
	s.state = checkpointing
	return &shown{storage: s, done: checkpointed}, nil
}

func (s *storage) BeginRestore(_ int, devices gpuplugin.DeviceMap) (datapath.Operation, error) {
	if s.state != checkpointed {
		return nil, &helperapi.Error{Class: helperapi.Class_CLASS_ILLEGAL_STATE}
	}
	if err := s.failing["BeginRestore"]; err != nil {
		return nil, err
	}
	s.state, s.devices = restoring, devices
	return &shown{storage: s, done: locked}, nil
}

type shown struct {
	*storage
	done string
}

func (o *shown) Views() []datapath.View {
	if o.done == "" {
		o.tb.Error("views of an operation that is complete")
	}
	var views []datapath.View
	for _, uuid := range slices.Sorted(maps.Keys(o.memory)) {
		mem := o.memory[uuid]
		if to, ok := o.devices[uuid]; ok {
			uuid = to
		}
		views = append(views, datapath.View{UUID: uuid, Address: uint64(uintptrOf(mem)), Size: uint64(len(mem)) - o.shrink})
	}
	// In another order than that of the checkpoint.
	if o.done == locked {
		slices.Reverse(views)
	}
	return views
}

func (o *shown) Complete() error {
	if o.done == "" {
		o.tb.Error("an operation was completed twice")
	}
	done := o.done
	o.done = ""
	if err := o.failing["Complete"]; err != nil {
		return err
	}
	o.state = done
	if done == checkpointed {
		for _, mem := range o.memory {
			for i := range mem {
				mem[i] = 0xa5
			}
		}
	}
	return nil
}

func (o *shown) Gone() bool { return o.gone }

func (s *storage) show(t *testing.T) {
	t.Helper()
	parked, err := s.Map(t.Context(), nvidia.MapRequest{PID: 7, Parcel: "p", Devices: []string{uuid0.String(), uuid1.String()}})
	check(t, err)
	want := map[string]uint64{uuid0.String(): 5*mib + 8192, uuid1.String(): 8 * mib}
	if s.state != checkpointing || parked.Chunks != 2 || !maps.Equal(parked.Bytes, want) {
		t.Fatalf("%s, %+v", s.state, parked)
	}
}

func (s *storage) fill(t *testing.T) error {
	t.Helper()
	return s.Fill(t.Context(), nvidia.FillRequest{PID: 7, Parcel: "p"})
}

// whole checks that the process is locked and has all of its memory, and that
// nothing else is left.
func (s *storage) whole(t *testing.T) {
	t.Helper()
	if s.state != locked {
		t.Errorf("the process is %s", s.state)
	}
	fresh := newStorage(t)
	for uuid, mem := range s.memory {
		if !bytes.Equal(mem, fresh.memory[uuid]) {
			t.Errorf("the memory on %s has changed", uuid)
		}
	}
	check(t, s.Drop(t.Context(), []string{"p"}))
	for uuid, g := range s.gpus {
		if left := g.left(); left != "0 handles, 0 ranges, 0 streams" {
			t.Errorf("left on %s: %s", uuid, left)
		}
	}
}

// Wherever an operation ends, Fill brings the process back.
func TestStorageFill(t *testing.T) {
	full := func(s *storage) {
		for _, g := range s.gpus {
			g.free = mib
		}
	}
	for name, steps := range map[string]func(t *testing.T, s *storage){
		"copied and settled": func(t *testing.T, s *storage) {
			done, err := s.Duplicate(t.Context(), []string{"p"})
			if check(t, err); !done {
				t.Error("there was no room")
			}
			check(t, s.Settle(t.Context(), "p"))
		},
		"copied, settled and saved": func(t *testing.T, s *storage) {
			_, err := s.Duplicate(t.Context(), []string{"p"})
			check(t, err)
			check(t, s.Settle(t.Context(), "p"))
			_, err = s.Save(t.Context(), nvidia.SaveRequest{Dir: t.TempDir(), Parcels: []string{"p"}})
			check(t, err)
		},
		"saved and settled": func(t *testing.T, s *storage) {
			_, err := s.Save(t.Context(), nvidia.SaveRequest{Dir: t.TempDir(), Parcels: []string{"p"}})
			check(t, err)
			check(t, s.Settle(t.Context(), "p"))
		},
		"only shown":                        func(*testing.T, *storage) {},
		"only shown, no room on the device": func(_ *testing.T, s *storage) { full(s) },
		"saving has failed": func(t *testing.T, s *storage) {
			s.gpus[uuid1.String()].set("ToHost", errors.New("no"))
			if _, err := s.Save(t.Context(), nvidia.SaveRequest{Dir: t.TempDir(), Parcels: []string{"p"}}); err == nil {
				t.Error("saved")
			}
			s.gpus[uuid1.String()].set("ToHost", nil)
		},
		"the first try fails to restore": func(t *testing.T, s *storage) {
			s.failing["BeginRestore"] = errors.New("no")
			if s.fill(t) == nil {
				t.Error("filled")
			}
			delete(s.failing, "BeginRestore")
		},
		"the first try fails to copy": func(t *testing.T, s *storage) {
			full(s)
			s.gpus[uuid1.String()].set("FromHost", errors.New("no"))
			if s.fill(t) == nil {
				t.Error("filled")
			}
			if s.state != restoring {
				t.Errorf("%s, and it is not filled", s.state)
			}
			s.gpus[uuid1.String()].set("FromHost", nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStorage(t)
			s.show(t)
			steps(t, s)
			check(t, s.fill(t))
			s.whole(t)
		})
	}
}

// What isn't anywhere else is not settled.
func TestStorageSettleRefuses(t *testing.T) {
	s := newStorage(t)
	s.show(t)
	if err := s.Settle(t.Context(), "p"); !errors.Is(err, helperapi.ErrIllegalState) || s.state != checkpointing {
		t.Errorf("%v, %s", err, s.state)
	}
	if err := s.Settle(t.Context(), "q"); !errors.Is(err, helperapi.ErrNoState) {
		t.Error(err)
	}
	check(t, s.fill(t))
	s.whole(t)
}

// A process that can't be shown is as it was.
func TestStorageMapFails(t *testing.T) {
	s := newStorage(t)
	s.failing["BeginCheckpoint"] = &helperapi.Error{Class: helperapi.Class_CLASS_UNSUPPORTED}
	for range 2 { // the name is free again
		_, err := s.Map(t.Context(), nvidia.MapRequest{PID: 7, Parcel: "p", Devices: []string{uuid0.String()}})
		if !errors.Is(err, gpuplugin.ErrUnsupported) {
			t.Error(err)
		}
	}
	s.whole(t)
	_, err := s.Map(t.Context(), nvidia.MapRequest{PID: 7, Parcel: "p", Devices: []string{"GPU-none"}})
	if err == nil || s.state != locked {
		t.Errorf("%v, %s", err, s.state)
	}
	b := newBench(t) // a machine that has no such driver
	if _, err := b.Map(t.Context(), nvidia.MapRequest{PID: 7, Parcel: "p"}); !errors.Is(err, gpuplugin.ErrUnsupported) {
		t.Error(err)
	}
	if err := b.Fill(t.Context(), nvidia.FillRequest{PID: 7, Parcel: "p", Dir: b.dir}); !errors.Is(err, gpuplugin.ErrUnsupported) {
		t.Error(err)
	}
}

// Another helper, or another host, has the files only; and a driver that shows
// something else gets nothing.
func TestStorageFillFromFiles(t *testing.T) {
	saved := func(t *testing.T, s *storage) (dir string) {
		t.Helper()
		dir = t.TempDir()
		s.show(t)
		got, err := s.Save(t.Context(), nvidia.SaveRequest{Dir: dir, Parcels: []string{"p"}})
		check(t, err)
		if got.Bytes != 13*mib+8192 || got.Zero != 6*mib {
			t.Errorf("saved %+v", got)
		}
		check(t, s.Settle(t.Context(), "p"))
		s.Mover = datapath.New(s, datapath.Config{SlotSize: 4 * mib, Slots: 2, Lanes: 6, Spare: mib, Idle: time.Hour})
		return dir
	}
	for name, tc := range map[string]struct {
		change func(t *testing.T, s *storage, dir string, req *nvidia.FillRequest)
		want   error
		says   string
	}{
		"as it was": {},
		"on another device": {change: func(_ *testing.T, _ *storage, _ string, req *nvidia.FillRequest) {
			req.Map = gpuplugin.DeviceMap{uuid0.String(): uuid2.String(), uuid1.String(): uuid0.String()}
		}},
		"damaged": {change: func(t *testing.T, _ *storage, dir string, _ *nvidia.FillRequest) {
			t.Helper()
			f, err := os.OpenFile(filepath.Join(dir, memfile.DataName(0)), os.O_WRONLY, 0)
			check(t, err)
			_, err = f.WriteAt([]byte("x"), 5000)
			check(t, errors.Join(err, f.Close()))
		}, want: helperapi.ErrDamaged},
		"less memory": {change: func(_ *testing.T, s *storage, _ string, _ *nvidia.FillRequest) { s.shrink = 4096 }, says: "the driver shows no memory of"},
		"another process": {change: func(_ *testing.T, _ *storage, _ string, req *nvidia.FillRequest) {
			req.Process = 1
		}, want: helperapi.ErrDamaged},
		"no files":  {change: func(_ *testing.T, _ *storage, _ string, req *nvidia.FillRequest) { req.Dir = "/nonexistent" }, says: "no such file"},
		"no parcel": {change: func(_ *testing.T, _ *storage, _ string, req *nvidia.FillRequest) { req.Dir = "" }, want: helperapi.ErrNoState},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStorage(t)
			dir := saved(t, s)
			req := nvidia.FillRequest{PID: 7, Parcel: "p", Dir: dir, Devices: []string{uuid0.String(), uuid1.String(), uuid2.String()}}
			if tc.change != nil {
				tc.change(t, s, dir, &req)
			}
			err := s.Fill(t.Context(), req)
			if tc.want == nil && tc.says == "" {
				check(t, err)
				s.whole(t)
				return
			}
			if tc.want != nil && !errors.Is(err, tc.want) || err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%v, want %v %q", err, tc.want, tc.says)
			}
			if s.state == locked {
				t.Error("it could go on, without its memory")
			}
		})
	}
}

// A second checkpoint writes what has changed.
func TestStorageIncremental(t *testing.T) {
	s := newStorage(t)
	first := filepath.Join(t.TempDir(), "first")
	second := filepath.Join(t.TempDir(), "second")
	check(t, os.Mkdir(first, 0o700))
	check(t, os.Mkdir(second, 0o700))
	s.show(t)
	_, err := s.Save(t.Context(), nvidia.SaveRequest{Dir: first, Parcels: []string{"p"}})
	check(t, err)
	check(t, s.fill(t))
	s.memory[uuid0.String()][mib]++
	s.show(t)
	check(t, os.Symlink(first, filepath.Join(second, "parent")))
	saved, err := s.Save(t.Context(), nvidia.SaveRequest{Dir: second, Parcels: []string{"p"}, Parent: first})
	check(t, err)
	if saved.Stored != 2*mib {
		t.Errorf("saved %+v", saved)
	}
	check(t, s.fill(t))
	s.memory[uuid0.String()][mib]--
	s.whole(t)
}

// A parcel that its process waits for is kept until that has ended.
func TestStorageDrop(t *testing.T) {
	s := newStorage(t)
	s.show(t)
	if err := s.Drop(t.Context(), []string{"p"}); !errors.Is(err, helperapi.ErrIllegalState) || s.state != checkpointing {
		t.Errorf("%v, %s", err, s.state)
	}
	s.gone = true
	check(t, s.Drop(t.Context(), []string{"p"}))
	if s.state != checkpointed {
		t.Errorf("the operation is not ended: %s", s.state)
	}
	if _, err := s.Duplicate(t.Context(), []string{"p"}); !errors.Is(err, helperapi.ErrNoState) {
		t.Error(err)
	}
}
