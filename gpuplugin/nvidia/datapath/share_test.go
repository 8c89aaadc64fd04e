// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package datapath_test

import (
	"bytes"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/hetcuda"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/hetcuda/hetcudatest"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
)

// sharing is processes that share memory, each with a control directory of its
// own: in a test they all have one PID.
type sharing struct {
	*bench
	processes []*hetcudatest.Process
	dirs      []string
	names     []string
}

// newSharing is three processes: the first has exported 3 MiB and 2 MiB, which the
// others have imported in turn, and each has some of its own.
func newSharing(t *testing.T) *sharing {
	t.Helper()
	s := &sharing{bench: newBench(t)}
	a := hetcudatest.NewChunk(t, 1, 0x700000000000, uuid0, contents()[:3*mib])
	b := hetcudatest.NewChunk(t, 2, 0x700001000000, uuid0, contents()[3*mib:5*mib])
	a.Flags, b.Flags = hetcuda.Exported, hetcuda.Exported
	again := func(c hetcudatest.Chunk, id uint64) hetcudatest.Chunk {
		fd, err := unix.FcntlInt(uintptr(c.FD), unix.F_DUPFD_CLOEXEC, 0)
		check(t, err)
		c.ID, c.FD, c.Flags = id, fd, hetcuda.Imported
		return c
	}
	own := func(id uint64) hetcudatest.Chunk {
		return hetcudatest.NewChunk(t, id, 0x700008000000, uuid0, contents()[id*mib:(id+1)*mib])
	}
	for _, chunks := range [][]hetcudatest.Chunk{
		{own(6), again(a, 12), again(b, 11)}, // before the exporter
		{a, own(7), b},
		{again(b, 1), own(8), again(a, 3)},
	} {
		dir := t.TempDir()
		s.processes, s.dirs = append(s.processes, hetcudatest.Start(t, dir, chunks...)), append(s.dirs, dir)
		s.names = append(s.names, string(rune('a'+len(s.names))))
	}
	return s
}

// makeRing has the second process wait for the third, as that one does for it.
func (s *sharing) makeRing(t *testing.T) {
	t.Helper()
	third := hetcudatest.NewChunk(t, 20, 0x700002000000, uuid0, contents()[5*mib:6*mib])
	third.Flags = hetcuda.Exported
	fourth := third
	fd, err := unix.FcntlInt(uintptr(third.FD), unix.F_DUPFD_CLOEXEC, 0)
	check(t, err)
	fourth.ID, fourth.FD, fourth.Flags = 21, fd, hetcuda.Imported
	s.processes[2].Add(third)
	s.processes[1].Add(fourth)
}

// show finds out what processes have, who have it still.
func (s *sharing) show(t *testing.T, which ...int) {
	t.Helper()
	for _, i := range which {
		check(t, s.Hold(t.Context(), s.dirs[i], os.Getpid(), time.Second))
		_, err := s.Park(t.Context(), nvidia.ParkRequest{
			Dir: s.dirs[i], PID: os.Getpid(), Parcel: s.names[i], Devices: map[string]uint64{uuid0.String(): 8 * mib},
		})
		check(t, err)
	}
}

func (s *sharing) park(t *testing.T, which ...int) {
	t.Helper()
	s.show(t, which...)
	check(t, s.Commit(t.Context(), s.names))
}

// unpark gives the memory back in an order: those that wait for others come again.
func (s *sharing) unpark(t *testing.T, which ...int) {
	t.Helper()
	var again []int
	for _, i := range which {
		err := s.Unpark(t.Context(), s.dirs[i], os.Getpid(), s.names[i])
		if errors.Is(err, helperapi.ErrNotReady) && s.processes[i].State() == hetcudatest.Parked {
			again = append(again, i)
			continue
		}
		check(t, err)
	}
	for _, i := range again {
		check(t, s.Unpark(t.Context(), s.dirs[i], os.Getpid(), s.names[i]))
	}
}

// run gives the memory back, and checks that it is still shared.
func (s *sharing) run(t *testing.T, which ...int) {
	t.Helper()
	s.unpark(t, which...)
	for _, i := range which {
		check(t, s.Release(t.Context(), s.dirs[i], os.Getpid()))
	}
	if len(which) < 3 {
		return
	}
	ids := [][2]uint64{{12, 11}, {1, 2}, {3, 1}}
	for i, p := range s.processes {
		if got := p.Read(uint64(6 + i)); !bytes.Equal(got, contents()[(6+i)*mib:(7+i)*mib]) {
			t.Errorf("what process %d has alone has changed", i)
		}
		// The mark of the loop before is undone by it.
		if a, b := p.Read(ids[i][0]), p.Read(ids[i][1]); !bytes.Equal(a, contents()[:3*mib]) || !bytes.Equal(b, contents()[3*mib:5*mib]) {
			t.Errorf("what process %d shares has changed", i)
		}
	}
	for i, p := range s.processes {
		p.Write(ids[i][0], []byte{byte(i), 'x'}, 0)
		for j, q := range s.processes {
			if got := q.Read(ids[j][0])[:2]; !bytes.Equal(got, []byte{byte(i), 'x'}) {
				t.Errorf("process %d does not see what process %d writes", j, i)
			}
		}
		p.Write(ids[i][0], contents()[:2], 0)
	}
}

// Memory that several processes have is copied and saved once, and shared after
// all of it.
func TestShared(t *testing.T) {
	for _, duplicated := range []bool{false, true} {
		s := newSharing(t)
		s.park(t, 1, 2, 0)
		if duplicated {
			if done, err := s.Duplicate(t.Context(), s.names); err != nil || !done {
				t.Fatal(done, err)
			}
			s.run(t, 2, 0, 1)
		}
		saved, err := s.Save(t.Context(), nvidia.SaveRequest{Dir: s.dir, Parcels: s.names})
		check(t, err)
		if saved.Bytes != 8*mib || saved.Stored != 8*mib {
			t.Errorf("saved %+v", saved)
		}
		index, err := memfile.Verify(t.Context(), s.dir, nil)
		check(t, err)
		var shared []uint32
		for _, p := range index.Processes {
			for _, c := range p.Chunks {
				shared = append(shared, c.Shared)
			}
		}
		if !slices.Equal(shared, []uint32{0, 1, 2, 1, 0, 2, 2, 0, 1}) {
			t.Errorf("shared %v", shared)
		}
		if !duplicated {
			s.run(t, 0, 1, 2)
		}
		check(t, s.Drop(t.Context(), s.names))
		// Another snapshot beside it writes nothing again.
		s.park(t, 0, 1, 2)
		dir := t.TempDir()
		check(t, os.Symlink(s.dir, dir+"/parent"))
		saved, err = s.Save(t.Context(), nvidia.SaveRequest{Dir: dir, Parcels: s.names, Parent: s.dir})
		check(t, err)
		if saved.Bytes != 8*mib || saved.Reused != 8*mib {
			t.Errorf("saved %+v", saved)
		}
		check(t, s.Drop(t.Context(), s.names))
		for i, order := range [][]int{{0, 1, 2}, {2, 1, 0}} {
			loaded, err := s.Load(t.Context(), nvidia.LoadRequest{
				Dir: []string{s.dir, dir}[i], Parcels: s.names, Devices: gpuplugin.DeviceMap{uuid0.String(): uuid2.String()},
			})
			check(t, err)
			if loaded.Bytes != 8*mib || loaded.Read != 8*mib {
				t.Errorf("loaded %+v", loaded)
			}
			for _, p := range s.processes {
				p.SetState(hetcudatest.Parked)
			}
			s.run(t, order...)
		}
		s.clean(t, true)
	}
}

// Where the maker is not among them nothing is parked, and all is as it was.
func TestSharedWithAnother(t *testing.T) {
	s := newSharing(t)
	s.show(t, 0, 2)
	if err := s.Commit(t.Context(), s.names); err == nil || !strings.Contains(err.Error(), "a process that is not saved with it") {
		t.Errorf("err = %v", err)
	}
	s.check(t, hetcudatest.Held, 0, 2)
	s.run(t, 0, 2)
	s.park(t, 0, 1, 2)
	s.run(t, 2, 1, 0)
	s.clean(t, false)
}

func (s *sharing) check(t *testing.T, state uint32, which ...int) {
	t.Helper()
	for _, i := range which {
		if got := s.processes[i].State(); got != state {
			t.Errorf("process %d is in state %d, not %d", i, got, state)
		}
	}
}

// Whatever keeps it from being found out who shares what, nothing is parked.
func TestSharedFails(t *testing.T) {
	for _, call := range []string{"Import", "NewStream", "ToHost"} {
		s := newSharing(t)
		s.show(t, 0, 1, 2)
		s.machine.gpus[uuid0.String()].set(call, os.ErrInvalid)
		if err := s.Commit(t.Context(), s.names); err == nil {
			t.Errorf("%s failed, and Commit did not", call)
		}
		s.check(t, hetcudatest.Held, 0, 1, 2)
		s.machine.gpus[uuid0.String()].set(call, nil)
		s.run(t, 0, 1, 2)
		s.clean(t, false)
	}
}

// One that can't be given what it has made can be tried again while nobody else has
// some of it. Afterwards, if it hangs up, not any more: they would not share it.
func TestSharedComesApart(t *testing.T) {
	refuse := func(c *net.UnixConn) bool {
		hetcudatest.Reply(c, hetcudatest.Unpark, -int32(unix.EIO), 0, "no", nil)
		return false
	}
	s := newSharing(t)
	s.park(t, 0, 1, 2)
	s.processes[1].Before(hetcudatest.Unpark, refuse)
	if err := s.Unpark(t.Context(), s.dirs[1], os.Getpid(), "b"); err == nil {
		t.Error("no error")
	}
	for _, i := range []int{0, 2} {
		if err := s.Unpark(t.Context(), s.dirs[i], os.Getpid(), s.names[i]); !errors.Is(err, helperapi.ErrNotReady) {
			t.Errorf("%s: err = %v", s.names[i], err)
		}
	}
	s.check(t, hetcudatest.Parked, 0, 1, 2)
	s.processes[1].Before(hetcudatest.Unpark, nil)
	s.run(t, 0, 1, 2)

	s = newSharing(t)
	s.makeRing(t)
	s.park(t, 0, 1, 2)
	if err := s.Unpark(t.Context(), s.dirs[1], os.Getpid(), "b"); !errors.Is(err, helperapi.ErrNotReady) {
		t.Errorf("err = %v", err)
	}
	if err := s.Unpark(t.Context(), s.dirs[2], os.Getpid(), "c"); err != nil {
		t.Errorf("err = %v", err)
	}
	s.processes[1].Before(hetcudatest.Unpark, refuse)
	for range 2 {
		if err := s.Unpark(t.Context(), s.dirs[1], os.Getpid(), "b"); err == nil {
			t.Error("no error")
		}
		s.processes[1].Before(hetcudatest.Unpark, nil)
	}
	if err := s.Unpark(t.Context(), s.dirs[1], os.Getpid(), "b"); !errors.Is(err, helperapi.ErrDamaged) || !strings.Contains(err.Error(), "other processes have memory of it already") {
		t.Errorf("err = %v", err)
	}
	s.check(t, hetcudatest.Parked, 1)
	check(t, s.Release(t.Context(), s.dirs[2], os.Getpid()))
	check(t, s.Drop(t.Context(), s.names))
}

// shares writes through one process and looks at it through those that have the
// memory.
func (s *sharing) shares(t *testing.T, which ...int) {
	t.Helper()
	ids := []uint64{12, 1, 3}
	for _, i := range which {
		s.processes[i].Write(ids[i], []byte{'w', byte(i)}, 0)
		for _, j := range which {
			if got := s.processes[j].Read(ids[j])[:2]; !bytes.Equal(got, []byte{'w', byte(i)}) {
				t.Errorf("process %d sees %q of what process %d has written", j, got, i)
			}
		}
	}
}

// One of them keeps its memory while the others have let go of it: who has made it
// gets it back as it is, since a copy would be its own.
func TestSharedHalfCommitted(t *testing.T) {
	for i := range 4 {
		keeps, protocol := i%2, uint32(3+i/2)
		s := newSharing(t)
		for _, p := range s.processes {
			p.SetProtocol(protocol)
		}
		s.show(t, 0, 1, 2)
		s.processes[keeps].Before(hetcudatest.Commit, func(c *net.UnixConn) bool {
			hetcudatest.Reply(c, hetcudatest.Commit, -int32(unix.EIO), 0, "no", nil)
			return false
		})
		if err := s.Commit(t.Context(), s.names); err == nil {
			t.Error("no error")
		}
		for i, p := range s.processes {
			if parked := p.State() == hetcudatest.Parked; parked == (i == keeps) {
				t.Errorf("process %d is in state %d", i, p.State())
			}
		}
		var others []int
		for i := range s.processes {
			if i != keeps {
				others = append(others, i)
			}
		}
		s.unpark(t, others...)
		s.shares(t, 0, 1, 2)
		for _, i := range others {
			check(t, s.Release(t.Context(), s.dirs[i], os.Getpid()))
		}
		check(t, s.Drop(t.Context(), s.names))
	}
}

// Of a process that goes on without saying what others get of its memory, the others
// don't get what it has no more.
func TestSharedNotHandedOver(t *testing.T) {
	s := newSharing(t)
	s.park(t, 0, 1, 2)
	s.processes[1].Before(hetcudatest.Share, func(c *net.UnixConn) bool {
		hetcudatest.Reply(c, hetcudatest.Share, 0, 1<<19, "", nil)
		return true
	})
	// It has its memory, and runs: what it said ended the connection.
	check(t, s.Unpark(t.Context(), s.dirs[1], os.Getpid(), "b"))
	check(t, s.Release(t.Context(), s.dirs[1], os.Getpid()))
	for _, i := range []int{0, 2} {
		err := s.Unpark(t.Context(), s.dirs[i], os.Getpid(), s.names[i])
		if !errors.Is(err, helperapi.ErrDamaged) || !strings.Contains(err.Error(), "has gone on without saying") {
			t.Errorf("%s: err = %v", s.names[i], err)
		}
		if s.processes[i].State() != hetcudatest.Parked {
			t.Errorf("%s goes on", s.names[i])
		}
	}
	check(t, s.Drop(t.Context(), s.names))
}

// Those that wait for a process that has gone on with its memory, and whose answer came
// too late, are told.
func TestSharedAnswerTooLate(t *testing.T) {
	s := newSharing(t)
	s.park(t, 0, 1, 2)
	s.processes[1].Before(hetcudatest.Unpark, func(c *net.UnixConn) bool {
		if _, _, _, _, err := c.ReadMsgUnix(make([]byte, 4096), nil); err != nil { // its chunks
			t.Error(err)
		}
		s.processes[1].SetState(hetcudatest.Running)
		hetcudatest.Reply(c, hetcudatest.Unpark, -int32(unix.EINVAL), 0, "UNPARK of a program that is not parked", nil)
		return false
	})
	if err := s.Unpark(t.Context(), s.dirs[1], os.Getpid(), "b"); err == nil {
		t.Error("it was parked")
	}
	for _, i := range []int{0, 2} {
		if err := s.Unpark(t.Context(), s.dirs[i], os.Getpid(), s.names[i]); !errors.Is(err, helperapi.ErrDamaged) {
			t.Errorf("%s: err = %v", s.names[i], err)
		}
		s.check(t, hetcudatest.Parked, i)
	}
	check(t, s.Drop(t.Context(), s.names))
}

// Nobody runs while marks are in memory: what a process writes that is let go first
// stays.
func TestSharedReleasedFirst(t *testing.T) {
	s := newSharing(t)
	s.show(t, 0, 1, 2)
	if err := s.Commit(t.Context(), []string{"a", "c"}); err == nil { // without the maker
		t.Error("no error")
	}
	check(t, s.Release(t.Context(), s.dirs[1], os.Getpid()))
	if !bytes.Equal(s.processes[1].Read(1), contents()[:3*mib]) {
		t.Error("there is a mark")
	}
	s.processes[1].Write(1, bytes.Repeat([]byte{0xee}, 3*mib), 0)
	for _, i := range []int{0, 2} {
		check(t, s.Release(t.Context(), s.dirs[i], os.Getpid()))
	}
	if !bytes.Equal(s.processes[1].Read(1), bytes.Repeat([]byte{0xee}, 3*mib)) {
		t.Error("what it has written was overwritten")
	}
	check(t, s.Drop(t.Context(), s.names))
}
