// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package datapath_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/datapath"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/hetcuda/hetcudatest"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
)

var (
	uuid0 = memfile.UUID{0xaa, 1}
	uuid1 = memfile.UUID{0xbb, 2}
	uuid2 = memfile.UUID{0xcc, 3}
)

// bench is a process with memory on two devices, and a mover.
type bench struct {
	*datapath.Mover
	machine *machine
	process *hetcudatest.Process
	control string
	dir     string
	data    map[uint64][]byte
}

const mib = 1 << 20

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{
		machine: newMachine(t, uuid0.String(), uuid1.String(), uuid2.String()),
		control: t.TempDir(),
		dir:     t.TempDir(),
	}
	b.start(t)
	b.Mover = datapath.New(b.machine, datapath.Config{SlotSize: 4 * mib, Slots: 2, Lanes: 3, Spare: mib, Idle: time.Hour})
	return b
}

// start starts the process, which has memory.
func (b *bench) start(t *testing.T) {
	t.Helper()
	b.data = map[uint64][]byte{
		1: slices.Clone(contents()[:5*mib+8192]), // the last block is short
		2: slices.Concat(make([]byte, 4*mib), contents()[mib:3*mib], make([]byte, 2*mib)),
		3: make([]byte, 4096),
		4: slices.Clone(contents()[6*mib:]),
	}
	b.process = hetcudatest.Start(t, b.control,
		hetcudatest.NewChunk(t, 1, 0x700000000000, uuid0, b.data[1]),
		hetcudatest.NewChunk(t, 2, 0x700001000000, uuid1, b.data[2]),
		hetcudatest.NewChunk(t, 3, 0, uuid0, b.data[3]),
		hetcudatest.NewChunk(t, 4, 0x700004000000, uuid0, b.data[4]),
	)
}

// contents are random, and the same for all tests.
var contents = sync.OnceValue(func() []byte {
	b := make([]byte, 14*mib)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(b)
	return b
})

// request is to park the process as "p": the third device is not the container's.
func (b *bench) request() nvidia.ParkRequest {
	return nvidia.ParkRequest{
		Dir: b.control, PID: os.Getpid(), Parcel: "p",
		Devices: map[string]uint64{uuid0.String(): 16 * mib, uuid1.String(): 16 * mib},
	}
}

// take makes a parcel of a process's memory, which lets go of it.
func (b *bench) take(ctx context.Context, req nvidia.ParkRequest) (nvidia.Parked, error) {
	parked, err := b.Park(ctx, req)
	if err == nil {
		err = b.Commit(ctx, []string{req.Parcel})
	}
	return parked, err
}

// park makes the parcel "p" of the process's memory.
func (b *bench) park(t *testing.T) {
	t.Helper()
	check(t, b.Hold(t.Context(), b.control, os.Getpid(), time.Second))
	parked, err := b.take(t.Context(), b.request())
	check(t, err)
	want := map[string]uint64{uuid0.String(): 13*mib + 8192 + 4096, uuid1.String(): 8 * mib}
	if parked.Chunks != 4 || !maps.Equal(parked.Bytes, want) {
		t.Errorf("parked %+v", parked)
	}
	if b.process.State() != hetcudatest.Parked {
		t.Fatalf("state %d", b.process.State())
	}
}

// runs gives the parcel back, and checks that nothing has been lost.
func (b *bench) runs(t *testing.T, name string) {
	t.Helper()
	check(t, b.Unpark(t.Context(), b.control, os.Getpid(), name))
	if b.process.State() != hetcudatest.Held {
		t.Errorf("state %d after Unpark", b.process.State())
	}
	check(t, b.Release(t.Context(), b.control, os.Getpid()))
	for id, want := range b.data {
		if got := b.process.Read(id); !bytes.Equal(got, want) {
			t.Errorf("chunk %d has changed", id)
		}
	}
}

// clean checks that nothing is left on the devices, and no file if there is to
// be none.
func (b *bench) clean(t *testing.T, files bool) {
	t.Helper()
	for uuid, g := range b.machine.gpus {
		if left := g.left(); left != "0 handles, 0 ranges, 0 streams" {
			t.Errorf("left on %s: %s", uuid, left)
		}
	}
	entries, err := os.ReadDir(b.dir)
	if err != nil || !files && len(entries) > 0 {
		t.Errorf("files left: %v, %v", entries, err)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestClients(t *testing.T) {
	b := newBench(t)
	want := nvidia.Client{
		PID: os.Getpid(), State: nvidia.ClientRunning, Version: "1.0-test", Build: "0123456789abcdef",
		Driver: 13000, Chunks: 4, Bytes: 21*mib + 8192 + 4096, Steps: true,
	}
	for _, state := range []nvidia.ClientState{nvidia.ClientRunning, nvidia.ClientHeld} {
		if state == nvidia.ClientHeld {
			check(t, b.Hold(t.Context(), b.control, os.Getpid(), time.Second))
			check(t, b.Hold(t.Context(), b.control, os.Getpid(), time.Second)) // once more is nothing
		}
		want.State = state
		if got, err := b.Clients(t.Context(), b.control); err != nil || !slices.Equal(got, []nvidia.Client{want}) {
			t.Errorf("%v, %v", got, err)
		}
	}
	check(t, b.Release(t.Context(), b.control, os.Getpid()))
	check(t, b.Release(t.Context(), b.control, os.Getpid()))
	b.process.Before(hetcudatest.Hello, func(*net.UnixConn) bool { return false })
	if got, err := b.Clients(t.Context(), b.control); err == nil {
		t.Errorf("a client that says nothing: %v", got)
	}
	if got, err := b.Clients(t.Context(), t.TempDir()); err != nil || len(got) != 0 {
		t.Errorf("nobody: %v, %v", got, err)
	}
	if err := b.Hold(t.Context(), t.TempDir(), 1, time.Second); !errors.Is(err, helperapi.ErrNoState) {
		t.Errorf("hold of nobody: %v", err)
	}
}

// Processes are held together, or all run.
// A process is asked for nothing that its protocol doesn't have, and for nothing at all if
// that is not known.
func TestProtocols(t *testing.T) {
	for protocol := uint32(1); protocol <= 6; protocol++ {
		b := newBench(t)
		b.process.SetProtocol(protocol)
		a := b.whenAsked()
		if protocol <= 5 {
			b.park(t)
			b.runs(t, "p")
			if owns := a.times == 1; owns != (protocol >= 4) {
				t.Errorf("%d: asked %d times to make memory its own", protocol, a.times)
			}
			b.clean(t, false)
			continue
		}
		for op := uint32(hetcudatest.Hold); op <= hetcudatest.Make; op++ {
			b.process.Before(op, func(*net.UnixConn) bool {
				t.Errorf("asked for operation %d", op)
				return true
			})
		}
		if got, err := b.Clients(t.Context(), b.control); !errors.Is(err, gpuplugin.ErrUnsupported) || !strings.Contains(err.Error(), "protocol 6") {
			t.Errorf("%+v, %v", got, err)
		}
		if b.process.State() != hetcudatest.Running {
			t.Errorf("state %d", b.process.State())
		}
	}
}

func TestHoldTogether(t *testing.T) {
	b := newBench(t)
	pids := []int{os.Getpid()}
	b.process.SetBusy(1 << 30)
	if err := b.HoldTogether(t.Context(), b.control, pids, 50*time.Millisecond); !errors.Is(err, helperapi.ErrNotReady) {
		t.Errorf("err = %v", err)
	}
	if b.process.State() != hetcudatest.Running {
		t.Errorf("state %d", b.process.State())
	}
	b.process.SetBusy(3)
	check(t, b.HoldTogether(t.Context(), b.control, pids, 10*time.Second))
	check(t, b.HoldTogether(t.Context(), b.control, pids, 10*time.Second)) // once more is nothing
	if b.process.State() != hetcudatest.Held {
		t.Errorf("state %d", b.process.State())
	}
	check(t, b.Release(t.Context(), b.control, os.Getpid()))
	// One that is not there keeps no other one held.
	if err := b.HoldTogether(t.Context(), b.control, []int{os.Getpid(), 1}, time.Second); !errors.Is(err, helperapi.ErrNoState) {
		t.Errorf("err = %v", err)
	}
	if b.process.State() != hetcudatest.Running {
		t.Errorf("state %d", b.process.State())
	}
}

// Memory stays where it is, and no device is opened.
func TestParkInPlace(t *testing.T) {
	b := newBench(t)
	b.park(t)
	b.runs(t, "p")
	for uuid, g := range b.machine.gpus {
		if g.opens > 0 {
			t.Errorf("%s was opened", uuid)
		}
	}
	b.clean(t, false)
}

func TestSaveAndLoad(t *testing.T) {
	b := newBench(t)
	b.park(t)
	saved, err := b.Save(t.Context(), nvidia.SaveRequest{Dir: b.dir, Parcels: []string{"p"}})
	check(t, err)
	if saved.Bytes != 21*mib+8192+4096 || saved.Zero != 6*mib+4096 || saved.Stored != 15*mib+8192 || saved.Reused != 0 {
		t.Errorf("saved %+v", saved)
	}
	var names []string
	size := int64(0)
	for _, f := range saved.Files {
		info, err := os.Stat(filepath.Join(b.dir, f.Name))
		check(t, err)
		if info.Size() != f.Size || !memfile.IsName(f.Name) {
			t.Errorf("%s has %d bytes, and %d were said", f.Name, info.Size(), f.Size)
		}
		names, size = append(names, f.Name), size+f.Size
	}
	if names[len(names)-1] != memfile.IndexName || uint64(size-saved.Files[len(names)-1].Size) != saved.Stored {
		t.Errorf("%d bytes in %v", size, names)
	}
	if len(saved.Phases) != 4 {
		t.Errorf("phases %v", saved.Phases)
	}
	index, err := memfile.Verify(t.Context(), b.dir, nil)
	check(t, err)
	if s := index.Sizes(); s.Stored != saved.Stored {
		t.Errorf("sizes %+v", s)
	}
	// The process goes on with what it had, and another with what was saved, on
	// another device.
	b.runs(t, "p")
	devices := gpuplugin.DeviceMap{uuid0.String(): uuid2.String()}
	loaded, err := b.Load(t.Context(), nvidia.LoadRequest{Dir: b.dir, Parcels: []string{"q"}, Devices: devices})
	check(t, err)
	if loaded.Bytes != saved.Bytes || loaded.Read != saved.Stored || len(loaded.Phases) != 3 {
		t.Errorf("loaded %+v", loaded)
	}
	b.process.SetState(hetcudatest.Parked)
	b.runs(t, "q")
	b.clean(t, true)
}

func TestDuplicate(t *testing.T) {
	b := newBench(t)
	b.park(t)
	done, err := b.Duplicate(t.Context(), []string{"p"})
	if err != nil || !done {
		t.Fatal(done, err)
	}
	b.runs(t, "p")
	// What the process does now is not saved.
	b.process.Write(1, []byte("changed"), 4096)
	if _, err := b.Save(t.Context(), nvidia.SaveRequest{Dir: b.dir, Parcels: []string{"p"}}); err != nil {
		t.Fatal(err)
	}
	if err := b.Unpark(t.Context(), b.control, os.Getpid(), "p"); !errors.Is(err, helperapi.ErrIllegalState) {
		t.Errorf("a second Unpark: %v", err)
	}
	check(t, b.Drop(t.Context(), []string{"p", "unknown"}))
	_, err = b.Load(t.Context(), nvidia.LoadRequest{Dir: b.dir, Parcels: []string{"p"}})
	check(t, err)
	b.process.SetState(hetcudatest.Parked)
	b.runs(t, "p")
	b.clean(t, true)
}

// A process goes on while the copy of its memory is still being written.
func TestUnparkBesideSave(t *testing.T) {
	b := newBench(t)
	b.park(t)
	if done, err := b.Duplicate(t.Context(), []string{"p"}); err != nil || !done {
		t.Fatal(done, err)
	}
	g := b.machine.gpus[uuid0.String()]
	g.block = make(chan struct{})
	saved := make(chan error, 1)
	go func() {
		_, err := b.Save(t.Context(), nvidia.SaveRequest{Dir: b.dir, Parcels: []string{"p"}})
		saved <- err
	}()
	for {
		p, err := b.Progress(t.Context(), "p")
		check(t, err)
		if p.Phase == "mem-copy" && p.Total > 0 {
			break
		}
	}
	b.runs(t, "p")
	if err := b.Drop(t.Context(), []string{"p"}); !errors.Is(err, helperapi.ErrIllegalState) {
		t.Errorf("drop meanwhile: %v", err)
	}
	close(g.block)
	check(t, <-saved)
	_, err := memfile.Verify(t.Context(), b.dir, nil)
	check(t, err)
	check(t, b.Drop(t.Context(), []string{"p"}))
	b.clean(t, true)
}

// A copy is saved beside the giving back, whichever begins first: a container that
// its client had frozen is resumed when its dump is over, perhaps before the save
// has begun.
func TestSaveBesideUnpark(t *testing.T) {
	b := newBench(t)
	b.park(t)
	if done, err := b.Duplicate(t.Context(), []string{"p"}); err != nil || !done {
		t.Fatal(done, err)
	}
	asked, goOn := make(chan struct{}), make(chan struct{})
	b.process.Before(hetcudatest.Unpark, func(*net.UnixConn) bool {
		close(asked)
		<-goOn
		return true
	})
	unparked := make(chan error, 1)
	go func() { unparked <- b.Unpark(t.Context(), b.control, os.Getpid(), "p") }()
	<-asked
	for what, err := range map[string]error{
		"drop":   b.Drop(t.Context(), []string{"p"}),
		"unpark": b.Unpark(t.Context(), b.control, os.Getpid(), "p"),
	} {
		if !errors.Is(err, helperapi.ErrIllegalState) {
			t.Errorf("%s meanwhile: %v", what, err)
		}
	}
	_, err := b.Save(t.Context(), nvidia.SaveRequest{Dir: b.dir, Parcels: []string{"p"}})
	check(t, err)
	close(goOn)
	check(t, <-unparked)
	check(t, b.Release(t.Context(), b.control, os.Getpid()))
	_, err = memfile.Verify(t.Context(), b.dir, nil)
	check(t, err)
	check(t, b.Drop(t.Context(), []string{"p"}))
	b.clean(t, true)
}

// Both at once, for the race detector: memory that is shared is looked at.
func TestSaveWhileUnparking(t *testing.T) {
	s := newSharing(t)
	s.park(t, 0, 1, 2)
	if done, err := s.Duplicate(t.Context(), s.names); err != nil || !done {
		t.Fatal(done, err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := s.Save(t.Context(), nvidia.SaveRequest{Dir: s.dir, Parcels: s.names}); err != nil {
			t.Error(err)
		}
	})
	for i := range s.names {
		wg.Go(func() {
			err := helperapi.ErrNotReady
			for errors.Is(err, helperapi.ErrNotReady) {
				err = s.Unpark(t.Context(), s.dirs[i], os.Getpid(), s.names[i])
			}
			if err = errors.Join(err, s.Release(t.Context(), s.dirs[i], os.Getpid())); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	check(t, s.Drop(t.Context(), s.names))
	s.clean(t, true)
}

// What a process had kept for its next allocations is not for the copy of what it
// has.
func TestDuplicateLeavesWhatWasTrimmed(t *testing.T) {
	for _, over := range []uint64{0, 1} {
		b := newBench(t)
		b.process.SetTrimmed(7)
		b.park(t)
		b.machine.gpus[uuid1.String()].free = 8*mib + 8*mib + 7*mib - over // the largest chunk has to come back beside
		if done, err := b.Duplicate(t.Context(), []string{"p"}); done != (over == 0) || err != nil {
			t.Errorf("%v, %v", done, err)
		}
		b.runs(t, "p")
		check(t, b.Drop(t.Context(), []string{"p"}))
		b.clean(t, false)
	}
}

func TestDuplicateWithoutRoom(t *testing.T) {
	b := newBench(t)
	b.park(t)
	b.machine.gpus[uuid1.String()].free = 8*mib + 8*mib - 1
	if done, err := b.Duplicate(t.Context(), []string{"p"}); done || err != nil {
		t.Errorf("%v, %v", done, err)
	}
	b.machine.gpus[uuid1.String()].free = 1 << 30
	b.machine.gpus[uuid1.String()].set("Create", &helperapi.Error{Class: helperapi.Class_CLASS_NO_MEMORY})
	if done, err := b.Duplicate(t.Context(), []string{"p"}); done || err != nil {
		t.Errorf("%v, %v", done, err)
	}
	b.machine.gpus[uuid1.String()].set("Wait", errors.New("broken"))
	b.machine.gpus[uuid1.String()].set("Create", nil)
	if done, err := b.Duplicate(t.Context(), []string{"p"}); done || err == nil {
		t.Errorf("%v, %v", done, err)
	}
	b.runs(t, "p")
	b.clean(t, false)
}

// A second snapshot has only what has changed.
func TestIncremental(t *testing.T) {
	b := newBench(t)
	parent := t.TempDir()
	b.park(t)
	_, err := b.Save(t.Context(), nvidia.SaveRequest{Dir: parent, Parcels: []string{"p"}})
	check(t, err)
	b.runs(t, "p")
	b.process.Write(4, []byte("changed"), 5*mib)
	copy(b.data[4][5*mib:], "changed")
	check(t, os.Symlink(parent, filepath.Join(b.dir, memfile.ParentName)))
	b.park(t)
	saved, err := b.Save(t.Context(), nvidia.SaveRequest{Dir: b.dir, Parcels: []string{"p"}, Parent: parent})
	check(t, err)
	if saved.Stored != 2*mib || saved.Reused != 13*mib+8192 {
		t.Errorf("saved %+v", saved)
	}
	if _, err := memfile.Verify(t.Context(), b.dir, nil); err != nil {
		t.Error(err)
	}
	// Not from one of which files are gone.
	data := filepath.Join(parent, memfile.DataName(0))
	check(t, os.Rename(data, data+".away"))
	if _, err := b.Save(t.Context(), nvidia.SaveRequest{Dir: t.TempDir(), Parcels: []string{"p"}, Parent: b.dir}); !errors.Is(err, helperapi.ErrDamaged) || !strings.Contains(err.Error(), "the snapshot before") {
		t.Errorf("err = %v", err)
	}
	check(t, os.Rename(data+".away", data))
	// And a third, from the second.
	check(t, b.Drop(t.Context(), nil))
	third := t.TempDir()
	check(t, os.Symlink(b.dir, filepath.Join(third, memfile.ParentName)))
	saved, err = b.Save(t.Context(), nvidia.SaveRequest{Dir: third, Parcels: []string{"p"}, Parent: b.dir})
	check(t, err)
	if saved.Stored != 0 || saved.Reused != 15*mib+8192 || len(saved.Files) != 1 {
		t.Errorf("saved %+v", saved)
	}
	b.runs(t, "p")
	_, err = b.Load(t.Context(), nvidia.LoadRequest{Dir: third, Parcels: []string{"p"}})
	check(t, err)
	b.process.SetState(hetcudatest.Parked)
	b.runs(t, "p")
	b.clean(t, true)
}

// A save that fails leaves no file, and the process goes on.
func TestSaveFails(t *testing.T) {
	broken := errors.New("broken")
	tests := map[string]struct {
		prepare func(t *testing.T, b *bench)
		is      error
		text    string
	}{
		"import":         {func(_ *testing.T, b *bench) { b.machine.gpus[uuid1.String()].set("Import", broken) }, broken, "map parked memory (p)"},
		"no such device": {func(_ *testing.T, b *bench) { delete(b.machine.gpus, uuid1.String()) }, nil, "no device GPU-bb02"},
		"pinned memory":  {func(_ *testing.T, b *bench) { b.machine.gpus[uuid1.String()].set("HostAlloc", broken) }, broken, ""},
		"digest":         {func(_ *testing.T, b *bench) { b.machine.gpus[uuid0.String()].set("Digest", broken) }, broken, ""},
		"copy":           {func(_ *testing.T, b *bench) { b.machine.gpus[uuid0.String()].set("ToHost", broken) }, broken, ""},
		"wait":           {func(_ *testing.T, b *bench) { b.machine.gpus[uuid0.String()].set("Wait", broken) }, broken, ""},
		"no directory":   {func(t *testing.T, b *bench) { check(t, os.Remove(b.dir)); b.dir = filepath.Join(b.dir, "missing") }, os.ErrNotExist, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.park(t)
			dir := b.dir
			test.prepare(t, b)
			_, err := b.Save(t.Context(), nvidia.SaveRequest{Dir: b.dir, Parcels: []string{"p"}})
			if err == nil || test.is != nil && !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.text) {
				t.Errorf("err = %v", err)
			}
			for _, g := range b.machine.gpus {
				g.fail = map[string]error{}
			}
			b.runs(t, "p")
			if b.dir == dir {
				b.clean(t, false)
			}
		})
	}
}

func TestSaveWhereSomethingIs(t *testing.T) {
	b := newBench(t)
	b.park(t)
	for _, name := range []string{memfile.IndexName, memfile.DataName(1)} {
		path := filepath.Join(b.dir, name)
		check(t, os.WriteFile(path, []byte("mine"), 0o600))
		if _, err := b.Save(t.Context(), nvidia.SaveRequest{Dir: b.dir, Parcels: []string{"p"}}); !errors.Is(err, os.ErrExist) {
			t.Errorf("%s: %v", name, err)
		}
		if data, err := os.ReadFile(path); string(data) != "mine" {
			t.Errorf("%s: %q, %v", name, data, err)
		}
		check(t, os.Remove(path))
	}
	b.runs(t, "p")
	b.clean(t, false)
}

func TestSaveWithoutSpace(t *testing.T) {
	b := newBench(t)
	if err := unix.Mount("tmpfs", b.dir, "tmpfs", 0, "size=8m"); err != nil {
		t.Skip("a tmpfs of 8 MiB can't be mounted: ", err)
	}
	t.Cleanup(func() { check(t, unix.Unmount(b.dir, unix.MNT_DETACH)) })
	b.park(t)
	if _, err := b.Save(t.Context(), nvidia.SaveRequest{Dir: b.dir, Parcels: []string{"p"}}); !errors.Is(err, helperapi.ErrNoSpace) {
		t.Errorf("err = %v", err)
	}
	b.runs(t, "p")
	b.clean(t, false)
}

func TestSaveCanceled(t *testing.T) {
	b := newBench(t)
	b.park(t)
	g := b.machine.gpus[uuid0.String()]
	g.block = make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := b.Save(ctx, nvidia.SaveRequest{Dir: b.dir, Parcels: []string{"p"}})
		done <- err
	}()
	for {
		p, err := b.Progress(t.Context(), "p")
		check(t, err)
		if p.Phase == "mem-copy" && p.Total > 0 {
			break
		}
	}
	if err := b.Drop(t.Context(), []string{"p"}); !errors.Is(err, helperapi.ErrIllegalState) {
		t.Errorf("drop meanwhile: %v", err)
	}
	cancel()
	close(g.block)
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v", err)
	}
	b.runs(t, "p")
	b.clean(t, false)
}

// A load that fails leaves no parcel and nothing on the devices.
func TestLoadFails(t *testing.T) {
	broken := errors.New("broken")
	flip := func(t *testing.T, name string, at int64) {
		t.Helper()
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		check(t, err)
		defer f.Close()
		one := make([]byte, 1)
		_, err = f.ReadAt(one, at)
		check(t, err)
		one[0] ^= 4
		_, err = f.WriteAt(one, at)
		check(t, err)
	}
	tests := map[string]struct {
		prepare func(t *testing.T, b *bench)
		is      error
		text    string
	}{
		"one bit":          {func(t *testing.T, b *bench) { flip(t, filepath.Join(b.dir, memfile.DataName(0)), 5*mib+77) }, helperapi.ErrDamaged, "process 0, chunk 1, block 2 (hetgpu-mem-0.img at 4194304)"},
		"a bit of index":   {func(t *testing.T, b *bench) { flip(t, filepath.Join(b.dir, memfile.IndexName), 100) }, helperapi.ErrDamaged, "hetgpu-mem.img"},
		"a file too short": {func(t *testing.T, b *bench) { check(t, os.Truncate(filepath.Join(b.dir, memfile.DataName(1)), 4096)) }, helperapi.ErrDamaged, "has 4096 bytes"},
		"a file missing":   {func(t *testing.T, b *bench) { check(t, os.Remove(filepath.Join(b.dir, memfile.DataName(1)))) }, helperapi.ErrDamaged, ""},
		"no index":         {func(t *testing.T, b *bench) { check(t, os.Remove(filepath.Join(b.dir, memfile.IndexName))) }, os.ErrNotExist, ""},
		"no memory":        {func(_ *testing.T, b *bench) { b.machine.gpus[uuid0.String()].free = 6 * mib }, helperapi.ErrNoDeviceMemory, "chunk 4"},
		"export":           {func(_ *testing.T, b *bench) { b.machine.gpus[uuid0.String()].set("Export", broken) }, broken, ""},
		"copy":             {func(_ *testing.T, b *bench) { b.machine.gpus[uuid0.String()].set("FromHost", broken) }, broken, ""},
		"zero":             {func(_ *testing.T, b *bench) { b.machine.gpus[uuid1.String()].set("Zero", broken) }, broken, ""},
		"digest":           {func(_ *testing.T, b *bench) { b.machine.gpus[uuid1.String()].set("Digest", broken) }, broken, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.park(t)
			_, err := b.Save(t.Context(), nvidia.SaveRequest{Dir: b.dir, Parcels: []string{"p"}})
			check(t, err)
			b.runs(t, "p")
			test.prepare(t, b)
			_, err = b.Load(t.Context(), nvidia.LoadRequest{Dir: b.dir, Parcels: []string{"q"}})
			if err == nil || test.is != nil && !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.text) {
				t.Errorf("err = %v", err)
			}
			if _, err := b.Duplicate(t.Context(), []string{"q"}); !errors.Is(err, helperapi.ErrNoState) {
				t.Errorf("the parcel is there: %v", err)
			}
			b.clean(t, true)
		})
	}
	t.Run("other processes", func(t *testing.T) {
		b := newBench(t)
		b.park(t)
		_, err := b.Save(t.Context(), nvidia.SaveRequest{Dir: b.dir, Parcels: []string{"p"}})
		check(t, err)
		if _, err = b.Load(t.Context(), nvidia.LoadRequest{Dir: b.dir, Parcels: []string{"q", "r"}}); err == nil || !strings.Contains(err.Error(), "1 processes, and 2") {
			t.Errorf("err = %v", err)
		}
		if _, err = b.Load(t.Context(), nvidia.LoadRequest{Dir: b.dir, Parcels: []string{"p"}}); !errors.Is(err, helperapi.ErrIllegalState) {
			t.Errorf("err = %v", err)
		}
		b.runs(t, "p")
	})
}

// Whatever a process does while it is parked, its memory isn't lost to it.
func TestParkFails(t *testing.T) {
	refuse := func(op uint32) func(c *net.UnixConn) bool {
		return func(c *net.UnixConn) bool {
			hetcudatest.Reply(c, op, -int32(unix.EBUSY), 0, "a kernel runs", nil)
			_, _ = c.Read(make([]byte, 16))
			return false
		}
	}
	for name, op := range map[string]uint32{"park": hetcudatest.Park, "commit": hetcudatest.Commit} {
		t.Run(name+" refused", func(t *testing.T) {
			b := newBench(t)
			check(t, b.Hold(t.Context(), b.control, os.Getpid(), time.Second))
			b.process.Before(op, refuse(op))
			if _, err := b.take(t.Context(), b.request()); err == nil || !strings.Contains(err.Error(), "a kernel runs") {
				t.Errorf("err = %v", err)
			}
			b.process.Before(op, nil)
			check(t, b.Release(t.Context(), b.control, os.Getpid()))
			b.park(t)
			b.runs(t, "p")
			b.clean(t, false)
		})
		t.Run(name+" not answered", func(t *testing.T) {
			b := newBench(t)
			check(t, b.Hold(t.Context(), b.control, os.Getpid(), time.Second))
			b.process.Before(op, func(*net.UnixConn) bool { return false })
			if _, err := b.take(t.Context(), b.request()); err == nil {
				t.Error("no error")
			}
			b.process.Before(op, nil)
			b.park(t)
			b.runs(t, "p")
			b.clean(t, false)
		})
	}
	t.Run("committed and not answered", func(t *testing.T) {
		b := newBench(t)
		check(t, b.Hold(t.Context(), b.control, os.Getpid(), time.Second))
		b.process.Before(hetcudatest.Commit, func(*net.UnixConn) bool {
			b.process.SetState(hetcudatest.Parked)
			return false
		})
		if _, err := b.take(t.Context(), b.request()); err != nil {
			t.Error(err)
		}
		b.runs(t, "p")
	})
	t.Run("not committed", func(t *testing.T) {
		for _, back := range []func(b *bench) error{
			func(b *bench) error { return b.Unpark(t.Context(), b.control, os.Getpid(), "p") },
			func(b *bench) error { return b.Release(t.Context(), b.control, os.Getpid()) },
			func(b *bench) error { return b.Drop(t.Context(), []string{"p"}) },
		} {
			b := newBench(t)
			check(t, b.Hold(t.Context(), b.control, os.Getpid(), time.Second))
			_, err := b.Park(t.Context(), b.request())
			check(t, err)
			if b.process.State() != hetcudatest.Held {
				t.Errorf("state %d", b.process.State())
			}
			check(t, back(b))
			check(t, b.Release(t.Context(), b.control, os.Getpid()))
			b.park(t)
			b.runs(t, "p")
			b.clean(t, false)
		}
	})
	t.Run("not held", func(t *testing.T) {
		b := newBench(t)
		if _, err := b.take(t.Context(), b.request()); !errors.Is(err, helperapi.ErrIllegalState) {
			t.Errorf("err = %v", err)
		}
	})
}

func TestUnparkFails(t *testing.T) {
	b := newBench(t)
	b.park(t)
	b.process.Before(hetcudatest.Unpark, func(*net.UnixConn) bool { return false })
	// Nothing is lost by that, and the next try may do better.
	if err := b.Unpark(t.Context(), b.control, os.Getpid(), "p"); !errors.Is(err, helperapi.ErrNotReady) {
		t.Errorf("no answer: %v", err)
	}
	b.process.Before(hetcudatest.Unpark, nil)
	if err := b.Unpark(t.Context(), t.TempDir(), os.Getpid(), "p"); errors.Is(err, helperapi.ErrNotReady) || errors.Is(err, helperapi.ErrNoState) {
		t.Errorf("where nobody listens: %v", err)
	}
	if err := b.Unpark(t.Context(), b.control, os.Getpid(), "q"); !errors.Is(err, helperapi.ErrNoState) {
		t.Errorf("another parcel: %v", err)
	}
	b.runs(t, "p")
	b.clean(t, false)
}

// What others put into the control directory meanwhile is in nobody's way.
func TestUnparkAmongOthers(t *testing.T) {
	b := newBench(t)
	b.park(t)
	for i := range 10 {
		hetcudatest.Deaf(t, b.control, fmt.Sprintf("hetcuda.%d.%d", os.Getpid(), i))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second) // each would take 10 s
	defer cancel()
	check(t, b.Unpark(ctx, b.control, os.Getpid(), "p"))
	check(t, b.Release(ctx, b.control, os.Getpid()))
	b.clean(t, false)
}

// closes waits until nobody has a device open.
func closes(t *testing.T, g *gpu) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		g.mu.Lock()
		opens, hosts := g.opens, g.hosts
		g.mu.Unlock()
		if opens == 0 && hosts == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d opens, %d slots left", opens, hosts)
		}
	}
}

func TestPrepareAndIdle(t *testing.T) {
	m := newMachine(t, uuid0.String())
	mover := datapath.New(m, datapath.Config{SlotSize: 4 * mib, Slots: 3, Lanes: 3, Idle: time.Millisecond})
	check(t, mover.Prepare(t.Context(), []string{uuid0.String()}))
	closes(t, m.gpus[uuid0.String()])
	if err := mover.Prepare(t.Context(), []string{"GPU-unknown"}); err == nil {
		t.Error("no error")
	}
}

// What could not be pinned beforehand is pinned when it is needed.
func TestPrepareWithoutPinned(t *testing.T) {
	m := newMachine(t, uuid0.String())
	m.gpus[uuid0.String()].set("HostAlloc", errors.New("no"))
	mover := datapath.New(m, datapath.Config{SlotSize: 4 * mib, Slots: 3, Lanes: 3, Idle: time.Hour})
	check(t, mover.Prepare(t.Context(), []string{uuid0.String()}))
}

func TestDefaultConfig(t *testing.T) {
	c := datapath.DefaultConfig()
	if c.Lanes < 8 || c.Lanes > 16 || c.Slots != c.Lanes || c.SlotSize%memfile.BlockSize != 0 {
		t.Errorf("%+v", c)
	}
}
