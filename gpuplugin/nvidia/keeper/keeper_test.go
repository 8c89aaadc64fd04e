// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package keeper_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/hetcuda"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/keeper"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/keeper/keepertest"
)

// kept is a keeper.
type kept struct {
	*keepertest.Keeper
	t *testing.T
}

func start(t *testing.T) *kept {
	t.Helper()
	return &kept{keepertest.Start(t), t}
}

// connect makes a connection, which ends with the test.
func (k *kept) connect() *keeper.Conn {
	k.t.Helper()
	c, err := k.Home.Connect(k.t.Context(), k.ID)
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { _ = c.Close() })
	return c
}

// memory is made of files, more than go into one packet.
func memory(t *testing.T, n int) (keeper.Memory, []int) {
	t.Helper()
	m := keeper.Memory{Processes: 3, Pieces: []keeper.Piece{}}
	var fds []int
	for i := range n {
		p := keeper.Piece{Process: 2 * i / n, ID: uint64(i), Address: uint64(i) << 21, Size: 2 << 20, Device: "GPU-a"}
		if i%2 == 1 {
			p.Device = "GPU-b"
		}
		if i == n-1 {
			p.Flags = hetcuda.Imported
		}
		fd, err := unix.MemfdCreate("memory", unix.MFD_CLOEXEC)
		if err == nil {
			_, err = unix.Write(fd, []byte{byte(i)})
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		m.Pieces, fds = append(m.Pieces, p), append(fds, fd)
	}
	return m, fds
}

// filled is a keeper that keeps memory of a snapshot which is complete.
func filled(t *testing.T, n int) (*kept, string) {
	t.Helper()
	k := start(t)
	m, fds := memory(t, n)
	if err := k.connect().Give(t.Context(), m, fds); err != nil {
		t.Fatal(err)
	}
	if err := k.Owner.Confirm(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := k.Owner.Close(); err != nil {
		t.Fatal(err)
	}
	digest, err := m.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return k, digest
}

// wantEnded waits for the end, and checks what is said of it.
func (k *kept) wantEnded(why string) {
	k.t.Helper()
	<-k.Over
	_, err := k.Home.Status(k.t.Context(), k.ID)
	if !errors.Is(err, gpuplugin.ErrNotKept) || !strings.Contains(err.Error(), why) {
		k.t.Errorf("error is %v, want one with %q", err, why)
	}
	if all, err := k.Home.List(k.t.Context()); err != nil || len(all) > 0 {
		k.t.Errorf("listed %v, %v", all, err)
	}
}

// take takes the memory and checks that it is all there.
func take(t *testing.T, c *keeper.Conn, digest string, n int) {
	t.Helper()
	m, fds, err := c.Take(t.Context(), digest, "the restore of job-2")
	if err != nil {
		t.Fatal(err)
	}
	want, _ := memory(t, n)
	if len(m.Pieces) != n || len(fds) != n || m.Processes != want.Processes {
		t.Fatalf("%d chunks of %d processes, %d descriptors", len(m.Pieces), m.Processes, len(fds))
	}
	for i, fd := range fds {
		b := make([]byte, 2)
		if n, err := unix.Pread(fd, b, 0); err != nil || n != 1 || b[0] != byte(i) || m.Pieces[i] != want.Pieces[i] {
			t.Errorf("chunk %d: %+v, %v %v", i, m.Pieces[i], b, err)
		}
		_ = unix.Close(fd)
	}
}

// What was given outlives who gave it, and is taken once.
func TestKeeps(t *testing.T) {
	for _, n := range []int{0, 1, 64, 65, 200} {
		k, digest := filled(t, n)
		s, err := k.Home.Status(t.Context(), k.ID)
		if err != nil || s.Label != keepertest.Label || s.Chunks != n || !s.Confirmed || s.By != "" || s.PID != os.Getpid() || s.ID != k.ID {
			t.Fatalf("%+v, %v", s, err)
		}
		if want := uint64(max(n-1, 0)) * 2 << 20; s.Bytes() != want { // one is imported
			t.Errorf("%d bytes, want %d", s.Bytes(), want)
		}
		first := k.connect()
		take(t, first, digest, n)
		if _, _, err := k.connect().Take(t.Context(), digest, "x"); !errors.Is(err, keeper.ErrLent) || !strings.Contains(err.Error(), "job-2") {
			t.Errorf("taken twice: %v", err)
		}
		if err := k.connect().Drop(t.Context(), "x"); !errors.Is(err, keeper.ErrLent) {
			t.Errorf("dropped meanwhile: %v", err)
		}
		if err := k.connect().Spend(t.Context(), "x"); err == nil {
			t.Error("spent by another")
		}
		if err := errors.Join(first.Use(t.Context(), true), first.Spend(t.Context(), "job-2 has it")); err != nil {
			t.Fatal(err)
		}
		k.wantEnded("job-2 has it (")
	}
}

// Whoever has spent the memory can count on its room: the keeper has let go of it.
func TestSpentIsFree(t *testing.T) {
	var note string
	// Does not wait for who writes; and who writes waits for it no longer, whatever comes.
	reader := sync.OnceValues(func() (*os.File, error) { return os.OpenFile(note, os.O_RDONLY|unix.O_NONBLOCK, 0) })
	t.Cleanup(func() {
		if r, err := reader(); err == nil {
			_ = r.Close()
		}
	})
	k := start(t)
	m, fds := memory(t, 1)
	m.Pieces[0].Flags = 0
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	fds[0] = pipe[1] // which ends with the last descriptor of it
	err := errors.Join(k.connect().Give(t.Context(), m, fds), unix.Close(pipe[1]), k.Owner.Confirm(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	digest, err := m.Digest()
	if err != nil {
		t.Fatal(err)
	}
	c := k.connect()
	_, fds, err = c.Take(t.Context(), digest, "job-2")
	if err != nil {
		t.Fatal(err)
	}
	hetcuda.Discard(fds)
	keeper.SetLetGoTimeout(t, time.Minute)
	note = filepath.Join(string(k.Home), k.ID+".ended")
	if err := unix.Mkfifo(note, 0o600); err != nil { // which takes as long to write as we like
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = reader() })
	spent := make(chan error, 1)
	go func() { spent <- c.Spend(t.Context(), "job-2 has it") }()
	select {
	case err := <-spent:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	r, err := reader()
	if err != nil {
		t.Fatal(err)
	}
	var text []byte
	for over := false; len(text) == 0 && !over; {
		select {
		case err = <-spent:
			over = true
			spent <- err
		default:
		}
		if text, err = io.ReadAll(r); err != nil { // nothing, while nobody writes
			t.Fatal(err)
		}
	}
	if !strings.Contains(string(text), "job-2 has it (") {
		t.Errorf("noted %q", text)
	}
	if err := <-spent; err != nil {
		t.Error(err)
	}
	if n, err := unix.Read(pipe[0], make([]byte, 1)); n != 0 || err != nil {
		t.Errorf("somebody has it still: %d, %v", n, err)
	}
	<-k.Over
}

// It lives on when a restore gives up, but not when that may have changed what it
// keeps.
func TestTakenInVain(t *testing.T) {
	for name, tc := range map[string]struct {
		do   func(c *keeper.Conn) error
		ends string
	}{
		"never used": {(*keeper.Conn).Close, ""},
		"used, and given back": {func(c *keeper.Conn) error {
			return errors.Join(c.Use(t.Context(), true), c.Use(t.Context(), false), c.Close())
		}, ""},
		"used": {func(c *keeper.Conn) error { return errors.Join(c.Use(t.Context(), true), c.Close()) }, "the restore of job-2 was cut short, and may have changed it"},
	} {
		t.Run(name, func(t *testing.T) {
			k, digest := filled(t, 3)
			c := k.connect()
			take(t, c, digest, 3)
			if err := tc.do(c); err != nil {
				t.Fatal(err)
			}
			if tc.ends != "" {
				k.wantEnded(tc.ends)
				return
			}
			k.wantFree()
			take(t, k.connect(), digest, 3)
		})
	}
}

// wantFree waits until nobody has taken it.
func (k *kept) wantFree() {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), time.Minute)
	defer cancel()
	for {
		s, err := k.Home.Status(ctx, k.ID)
		if err != nil {
			k.t.Fatal(err)
		}
		if s.By == "" {
			return
		}
	}
}

// One that was not confirmed ends with who started it, and says nothing.
func TestOrphan(t *testing.T) {
	k := start(t)
	m, fds := memory(t, 3)
	if err := k.Owner.Confirm(t.Context()); err == nil {
		t.Error("confirmed with nothing")
	}
	if err := k.connect().Give(t.Context(), m, fds); err != nil {
		t.Fatal(err)
	}
	if err := k.connect().Give(t.Context(), m, fds); err == nil {
		t.Error("given twice")
	}
	if err := k.connect().Confirm(t.Context()); err == nil {
		t.Error("confirmed by another")
	}
	digest, _ := m.Digest()
	if _, _, err := k.connect().Take(t.Context(), digest, "x"); err == nil {
		t.Error("taken before its snapshot was complete")
	}
	if err := k.Owner.Close(); err != nil {
		t.Fatal(err)
	}
	k.wantEnded("was killed")
}

// The memory is there as long as its keeper, and gone with it.
func TestHolds(t *testing.T) {
	for name, end := range map[string]struct {
		do  func(k *kept) error
		why string
	}{
		"drop":   {func(k *kept) error { return k.connect().Drop(t.Context(), "not wanted") }, "not wanted ("},
		"signal": {func(k *kept) error { k.Stop(); return nil }, "ended by a signal ("},
	} {
		t.Run(name, func(t *testing.T) {
			k, _ := filled(t, 1)
			// The read end of a pipe sees the last descriptor of the other end go.
			var pipe [2]int
			if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
				t.Fatal(err)
			}
			defer unix.Close(pipe[0])
			k2 := start(t)
			m, _ := memory(t, 1)
			if err := k2.connect().Give(t.Context(), m, pipe[1:]); err != nil {
				t.Fatal(err)
			}
			_ = unix.Close(pipe[1])
			if err := k2.Owner.Confirm(t.Context()); err != nil {
				t.Fatal(err)
			}
			b := make([]byte, 1)
			if _, err := unix.Read(pipe[0], b); !errors.Is(err, unix.EAGAIN) {
				t.Errorf("it is not held: %v", err)
			}
			if err := errors.Join(end.do(k), end.do(k2)); err != nil {
				t.Fatal(err)
			}
			k.wantEnded(end.why)
			k2.wantEnded(end.why)
			if n, err := unix.Read(pipe[0], b); n != 0 || err != nil {
				t.Errorf("it is held still: %d, %v", n, err)
			}
		})
	}
}

func TestWrongMemory(t *testing.T) {
	k, digest := filled(t, 2)
	if _, _, err := k.connect().Take(t.Context(), strings.Replace(digest, ":", ":0", 1), "x"); err == nil || !strings.Contains(err.Error(), "other memory") {
		t.Errorf("error is %v", err)
	}
	take(t, k.connect(), digest, 2)
}

// A directory that others can use is not used.
func TestHomeOfOthers(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	ours, theirs := keepertest.Pair(t)
	done := make(chan error, 1)
	go func() { done <- keeper.Serve(t.Context(), keeper.Home(dir), keeper.NewID(), keepertest.Label, theirs) }()
	if _, err := keeper.Started(t.Context(), ours, "x"); err == nil || !strings.Contains(err.Error(), "only user") {
		t.Errorf("error is %v", err)
	}
	if err := <-done; err == nil {
		t.Error("it serves")
	}
}

// A socket that is left of one that was killed is none, and no other file is.
func TestListsNoOthers(t *testing.T) {
	home := keeper.Home(t.TempDir())
	if all, err := (home + "/missing").List(t.Context()); err != nil || all != nil {
		t.Errorf("%v, %v", all, err)
	}
	id := keeper.NewID()
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(string(home), id+".sock"), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	for _, name := range []string{"x.sock", keeper.NewID() + ".ended", keeper.NewID()} {
		if err := os.WriteFile(filepath.Join(string(home), name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := home.List(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("%v, %v", all, err)
	}
	if _, err := home.Connect(t.Context(), "../x"); err == nil {
		t.Error("connected outside")
	}
	if _, err := home.Connect(t.Context(), id); !errors.Is(err, gpuplugin.ErrNotKept) {
		t.Errorf("error is %v", err)
	}
}

// What is not the protocol ends a connection, and nothing else.
func TestHostile(t *testing.T) {
	k, digest := filled(t, 2)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	for name, tc := range map[string]struct {
		data string
		fds  []int
	}{
		"no JSON":           {"x", nil},
		"another operation": {`{"op":"x"}`, nil},
		"a descriptor":      {`{"op":"status"}`, []int{int(r.Fd())}},
		"second gift":       {`{"op":"give","processes":1,"pieces":1}`, nil},
		"negative":          {`{"op":"give","processes":-1,"pieces":-1}`, nil},
		"much":              {`{"op":"give","processes":1,"pieces":99999999}`, nil},
		"long":              {`{"op":"` + strings.Repeat("x", 70000) + `"}`, nil},
		"empty":             {"", nil},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("unixpacket", filepath.Join(string(k.Home), k.ID+".sock"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			var oob []byte
			if tc.fds != nil {
				oob = unix.UnixRights(tc.fds...)
			}
			if _, _, err := conn.(*net.UnixConn).WriteMsgUnix([]byte(tc.data), oob, nil); err != nil {
				t.Fatal(err)
			}
			b := make([]byte, 4096)
			if n, err := conn.Read(b); err == nil && n > 0 && !bytes.Contains(b[:n], []byte("error")) {
				t.Errorf("it says %s", b[:n])
			}
		})
	}
	take(t, k.connect(), digest, 2)
}
