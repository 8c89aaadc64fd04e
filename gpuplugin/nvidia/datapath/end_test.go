// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package datapath_test

import (
	"bufio"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/datapath"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/hetcuda/hetcudatest"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
)

// mortal is a process as a bench has it, but parked, and not the test's own.
type mortal struct {
	cmd *exec.Cmd
	dir string
	pid int
}

// controlOfMortal names where a mortal listens.
const controlOfMortal = "HETGPU_TEST_CONTROL"

func newMortal(t *testing.T) *mortal {
	t.Helper()
	p := &mortal{dir: t.TempDir()}
	p.cmd = exec.Command(os.Args[0], "-test.run=^TestMortal$")
	p.cmd.Env = append(os.Environ(), controlOfMortal+"="+p.dir)
	in, err := p.cmd.StdinPipe()
	check(t, err)
	out, err := p.cmd.StdoutPipe()
	check(t, err)
	check(t, p.cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		p.kill()
	})
	p.pid = p.cmd.Process.Pid
	_, err = bufio.NewReader(out).ReadString('\n')
	check(t, err)
	return p
}

// kill ends it, and returns when it has ended.
func (p *mortal) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait() // that it was killed
}

// TestMortal is the process of a mortal, for as long as its input lasts.
func TestMortal(t *testing.T) {
	dir := os.Getenv(controlOfMortal)
	if dir == "" {
		t.Skip("another test's process")
	}
	b := &bench{control: dir}
	b.start(t)
	b.process.SetState(hetcudatest.Parked)
	_, _ = os.Stdout.WriteString("ready\n")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// A process that dies before it was let go has not changed what a keeper lends: the
// keeper has it again, and nothing is left of the process.
func TestFetchedForOneThatDies(t *testing.T) {
	for name, seen := range map[string]func(t *testing.T, b *bench, p *mortal){
		"nobody asks it": func(*testing.T, *bench, *mortal) {},
		"asked who it is": func(t *testing.T, b *bench, p *mortal) {
			t.Helper()
			if all, err := b.Clients(t.Context(), p.dir); err != nil || len(all) > 0 {
				t.Errorf("there are %v, %v", all, err)
			}
		},
		"to be held": func(t *testing.T, b *bench, p *mortal) {
			t.Helper()
			if err := b.Hold(t.Context(), p.dir, p.pid, time.Second); err == nil {
				t.Error("it is held")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.park(t)
			k, req := leave(t, b, "p")
			_, err := b.Fetch(t.Context(), req)
			check(t, err)
			p := newMortal(t)
			check(t, b.Unpark(t.Context(), p.dir, p.pid, "p"))
			p.kill()
			seen(t, b, p)
			check(t, b.Drop(t.Context(), []string{"p"}))
			untilBack(t, k)
			_, err = b.Fetch(t.Context(), req)
			check(t, err)
			b.runs(t, "p")
		})
	}
}

// A process that waits for what others have made can't have changed anything, whatever
// becomes of its connection.
func TestFetchedForOneThatWaits(t *testing.T) {
	s := newSharing(t)
	s.park(t, 0, 1, 2)
	k, req := leave(t, s.bench, s.names...)
	_, err := s.Fetch(t.Context(), req)
	check(t, err)
	if err := s.Unpark(t.Context(), s.dirs[0], os.Getpid(), s.names[0]); err == nil {
		t.Error("it did not wait")
	}
	var once sync.Once
	s.processes[0].Before(hetcudatest.Hello, func(*net.UnixConn) bool {
		goes := true
		once.Do(func() { goes = false })
		return goes
	})
	if _, err := s.Clients(t.Context(), s.dirs[0]); err == nil {
		t.Error("the connection is whole")
	}
	s.check(t, hetcudatest.Parked, 0)
	check(t, s.Drop(t.Context(), s.names))
	untilBack(t, k)
	_, err = s.Fetch(t.Context(), req)
	check(t, err)
	s.run(t, 0, 1, 2)
	s.shares(t, 0, 1, 2)
}

// Connections to processes that have died while they were held do not keep the devices
// open.
func TestDropEndsWhatDied(t *testing.T) {
	b := newBench(t)
	b.Mover = datapath.New(b.machine, datapath.Config{SlotSize: 4 * mib, Slots: 2, Lanes: 2, Idle: time.Millisecond})
	b.park(t)
	_, err := b.Save(t.Context(), nvidia.SaveRequest{Dir: b.dir, Parcels: []string{"p"}})
	check(t, err)
	p := newMortal(t)
	check(t, b.Unpark(t.Context(), p.dir, p.pid, "p"))
	p.kill()
	check(t, b.Drop(t.Context(), []string{"p"}))
	for _, uuid := range []memfile.UUID{uuid0, uuid1} {
		closes(t, b.machine.gpus[uuid.String()])
	}
}
