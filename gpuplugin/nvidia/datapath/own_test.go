// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package datapath_test

import (
	"bytes"
	"errors"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/hetcuda/hetcudatest"
)

// asked notes what of a process is not its own when it is asked to make it so, and what
// there is on the devices then.
type asked struct {
	times    int
	borrowed []uint64
	left     map[string]string
}

func (b *bench) whenAsked() *asked {
	a := &asked{left: map[string]string{}}
	b.process.Before(hetcudatest.Own, func(*net.UnixConn) bool {
		a.times++
		a.borrowed = b.process.Borrowed()
		for uuid, g := range b.machine.gpus {
			a.left[uuid] = g.left()
		}
		return true
	})
	return a
}

// Where there is no room for two of everything, a process gets its memory as it was, and
// copies it when nobody else has it any more.
func TestOwn(t *testing.T) {
	all := []uint64{1, 2, 3, 4}
	for name, tc := range map[string]struct {
		// free is what there is on the first device, and unopened says that no device was used.
		free     uint64
		unopened bool
		borrowed []uint64
	}{
		"room for two":  {free: 13*mib + 8192 + 4096},
		"one byte less": {free: 13*mib + 8192 + 4095, borrowed: all},
		"not known":     {free: 1 << 30, unopened: true, borrowed: all},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			a := b.whenAsked()
			b.park(t)
			if !tc.unopened {
				_, err := b.Save(t.Context(), nvidia.SaveRequest{Dir: b.dir, Parcels: []string{"p"}})
				check(t, err)
			}
			b.machine.gpus[uuid0.String()].free = tc.free
			b.runs(t, "p")
			if a.times != 1 || !slices.Equal(a.borrowed, tc.borrowed) || len(b.process.Borrowed()) > 0 {
				t.Errorf("asked %d times, with %v as they were; then %v", a.times, a.borrowed, b.process.Borrowed())
			}
			for uuid, left := range a.left {
				if left != "0 handles, 0 ranges, 0 streams" {
					t.Errorf("when it was asked there were on %s %s", uuid, left)
				}
			}
			b.clean(t, true)
		})
	}
}

// What there is no room for is used as it is, and that is no error.
func TestOwnWithoutRoom(t *testing.T) {
	b := newBench(t)
	b.process.SetRoom(6 * mib)
	b.park(t)
	b.runs(t, "p")
	if got := b.process.Borrowed(); !slices.Equal(got, []uint64{2, 4}) {
		t.Errorf("left as they were: %v", got)
	}
	b.clean(t, false)
}

// A process whose memory is not where its program looks for it is not let on, and is as
// soon as it is there.
func TestOwnLeavesHole(t *testing.T) {
	b := newBench(t)
	b.park(t)
	b.process.SetHole(true)
	check(t, b.Unpark(t.Context(), b.control, os.Getpid(), "p"))
	for range 2 {
		err := b.Release(t.Context(), b.control, os.Getpid())
		if !errors.Is(err, helperapi.ErrDamaged) || !strings.Contains(err.Error(), "not where its program looks for it: libhetcuda RELEASE: CUresult (1): cuMemMap of chunk 1") {
			t.Errorf("err = %v", err)
		}
		if b.process.State() != hetcudatest.Held {
			t.Fatalf("state %d", b.process.State())
		}
	}
	b.process.SetHole(false)
	check(t, b.Release(t.Context(), b.control, os.Getpid()))
	if b.process.State() != hetcudatest.Running {
		t.Errorf("state %d", b.process.State())
	}
	b.clean(t, false)
}

// That a process is not heard is an error, and it goes on with what it has.
func TestOwnUnheard(t *testing.T) {
	b := newBench(t)
	b.park(t)
	b.process.Before(hetcudatest.Own, func(*net.UnixConn) bool { return false })
	err := b.Unpark(t.Context(), b.control, os.Getpid(), "p")
	if err == nil || errors.Is(err, helperapi.ErrNotReady) || !strings.Contains(err.Error(), "has its memory back and goes on, but it did not say") {
		t.Errorf("err = %v", err)
	}
	all, err := b.Clients(t.Context(), b.control)
	if err != nil || len(all) != 1 || all[0].State != nvidia.ClientRunning {
		t.Errorf("%+v, %v", all, err)
	}
	check(t, b.Release(t.Context(), b.control, os.Getpid()))
	for id, want := range b.data {
		if !bytes.Equal(b.process.Read(id), want) {
			t.Errorf("chunk %d has changed", id)
		}
	}
	b.clean(t, false)
}

// Processes on one device make memory their own one after the other: each takes for a
// moment what another would need.
func TestOwnInTurn(t *testing.T) {
	s := newSharing(t)
	s.park(t, 0, 1, 2)
	check(t, s.Unpark(t.Context(), s.dirs[1], os.Getpid(), s.names[1]))
	under := make(chan int, 2)
	goes := make(chan struct{})
	for _, i := range []int{0, 2} {
		s.processes[i].Before(hetcudatest.Own, func(*net.UnixConn) bool {
			under <- i
			<-goes
			return true
		})
	}
	done := make(chan error, 2)
	for _, i := range []int{0, 2} {
		go func() { done <- s.Unpark(t.Context(), s.dirs[i], os.Getpid(), s.names[i]) }()
	}
	<-under
	for s.Alone() < 2 && len(under) == 0 {
		runtime.Gosched()
	}
	if n := len(under); n > 0 {
		t.Errorf("%d more at once", n)
	}
	close(goes)
	check(t, <-done)
	check(t, <-done)
	for i := range s.processes {
		check(t, s.Release(t.Context(), s.dirs[i], os.Getpid()))
	}
	s.clean(t, false)
}

// A process that has no room for the copy with which a park begins is asked once more, when
// the others on its devices have got theirs.
func TestParkAlone(t *testing.T) {
	for _, times := range []int{1, 2} {
		s := newSharing(t)
		for i := range s.processes {
			check(t, s.Hold(t.Context(), s.dirs[i], os.Getpid(), time.Second))
		}
		park := func(i int) error {
			_, err := s.Park(t.Context(), nvidia.ParkRequest{
				Dir: s.dirs[i], PID: os.Getpid(), Parcel: s.names[i], Devices: map[string]uint64{uuid0.String(): 8 * mib},
			})
			return err
		}
		// The third has the room until the first has come again, or will not.
		var tries atomic.Int32
		has, over, done := make(chan struct{}), make(chan struct{}), make(chan error)
		s.processes[2].Before(hetcudatest.Park, func(*net.UnixConn) bool {
			close(has)
			for s.Alone() == 0 && tries.Load() < 2 && !closed(over) {
				runtime.Gosched()
			}
			if tries.Load() > 1 {
				t.Error("asked again while another has its turn")
			}
			return true
		})
		s.processes[0].RefuseParks(times)
		s.processes[0].Before(hetcudatest.Park, func(*net.UnixConn) bool { tries.Add(1); return true })
		go func() { done <- park(2) }()
		<-has
		err := park(0)
		close(over)
		check(t, <-done)
		if n := tries.Load(); n != 2 || times == 1 && err != nil || times == 2 && !errors.Is(err, helperapi.ErrNoDeviceMemory) {
			t.Errorf("asked %d times, err = %v", n, err)
		}
		for i := range s.processes {
			check(t, s.Release(t.Context(), s.dirs[i], os.Getpid()))
		}
		s.check(t, hetcudatest.Running, 0, 1, 2)
		s.clean(t, false)
	}
}

func closed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Memory of all processes that is still here counts, not only of the one that gets its.
func TestOwnWithOthers(t *testing.T) {
	s := newSharing(t)
	s.park(t, 0, 1, 2)
	_, err := s.Save(t.Context(), nvidia.SaveRequest{Dir: s.dir, Parcels: s.names})
	check(t, err)
	s.machine.gpus[uuid0.String()].free = 8*mib - 1
	borrowed := make([][]uint64, len(s.processes))
	for i, p := range s.processes {
		p.Before(hetcudatest.Own, func(*net.UnixConn) bool { borrowed[i] = p.Borrowed(); return true })
	}
	s.run(t, 1, 0, 2)
	// What the first has exported it had to copy at once: the others got it from there.
	if !slices.Equal(borrowed[1], []uint64{7}) {
		t.Errorf("the maker had %v as they were", borrowed[1])
	}
	// By then there was room for the rest.
	if len(borrowed[0])+len(borrowed[2]) > 0 {
		t.Errorf("the others had %v and %v", borrowed[0], borrowed[2])
	}
	s.clean(t, true)
}

// A process that refuses what others have made, once, is not without what it has made
// itself, which others may have by then.
func TestSharedRefusedOnce(t *testing.T) {
	s := newSharing(t)
	s.makeRing(t)
	s.park(t, 0, 1, 2)
	for _, i := range []int{1, 2} { // each has what the other waits for
		if err := s.Unpark(t.Context(), s.dirs[i], os.Getpid(), s.names[i]); i == 1 && err == nil {
			t.Error("the first did not wait")
		} else if i == 2 {
			check(t, err)
		}
	}
	s.processes[1].Refuse(2)
	for range 2 {
		err := s.Unpark(t.Context(), s.dirs[1], os.Getpid(), "b")
		if err == nil || errors.Is(err, helperapi.ErrDamaged) {
			t.Errorf("err = %v", err)
		}
		s.check(t, hetcudatest.Parked, 1)
	}
	conns := s.processes[1].Connections()
	check(t, s.Unpark(t.Context(), s.dirs[1], os.Getpid(), "b"))
	if s.processes[1].Connections() != conns {
		t.Error("it was connected to anew")
	}
	s.run(t, 0)
	s.shares(t, 0, 1, 2)
	for _, i := range []int{1, 2} {
		check(t, s.Release(t.Context(), s.dirs[i], os.Getpid()))
	}
	s.clean(t, false)
}
