// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package hetcuda_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/hetcuda"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/hetcuda/hetcudatest"
)

var device = [16]byte{1, 2, 3}

// start is a process with so many chunks, and a connection to it.
func start(t *testing.T, chunks int) (*hetcudatest.Process, *hetcuda.Conn) {
	t.Helper()
	dir := t.TempDir()
	var all []hetcudatest.Chunk
	for i := range chunks {
		all = append(all, hetcudatest.NewChunk(t, uint64(i), uint64(i+1)<<21, device, bytes.Repeat([]byte{byte(i)}, 4096)))
	}
	p := hetcudatest.Start(t, dir, all...)
	return p, dial(t, dir)
}

func dial(t *testing.T, dir string) *hetcuda.Conn {
	t.Helper()
	conns, err := hetcuda.Connect(t.Context(), dir)
	if err != nil || len(conns) != 1 {
		t.Fatalf("%d connections, %v", len(conns), err)
	}
	t.Cleanup(conns[0].Close)
	return conns[0]
}

// openFDs are the descriptors of this process.
func openFDs(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

func TestCycle(t *testing.T) {
	for _, n := range []int{0, 1, 64, 65, 200} {
		p, c := start(t, n)
		if c.PID() != os.Getpid() {
			t.Errorf("PID %d", c.PID())
		}
		h, err := c.Hello(t.Context())
		want := hetcuda.Hello{NSPID: os.Getpid(), Driver: 13000, Chunks: n, Bytes: uint64(n) * 4096, Version: "1.0-test", Build: "0123456789abcdef", Protocol: 5}
		if err != nil || h != want {
			t.Errorf("hello %+v, %v", h, err)
		}
		if err := c.Hold(t.Context(), time.Second); err != nil {
			t.Fatal(err)
		}
		chunks, fds, err := c.Park(t.Context(), func(int) error { return nil })
		if err != nil || len(chunks) != n || len(fds) != n {
			t.Fatalf("%d chunks, %d descriptors, %v", len(chunks), len(fds), err)
		}
		p.SetTrimmed(uint32(n))
		if trimmed, err := c.Commit(t.Context()); err != nil || p.State() != hetcudatest.Parked || trimmed != uint64(n)<<20 {
			t.Fatalf("state %d, trimmed %d, %v", p.State(), trimmed, err)
		}
		slices.Reverse(chunks)
		slices.Reverse(fds)
		if missing, err := c.Unpark(t.Context(), chunks, fds); err != nil || missing != 0 || p.State() != hetcudatest.Held {
			t.Fatalf("state %d, %v", p.State(), err)
		}
		closeAll(fds)
		if err := c.Release(t.Context()); err != nil || p.State() != hetcudatest.Running {
			t.Fatalf("state %d, %v", p.State(), err)
		}
		for i := range n {
			if data := p.Read(uint64(i)); data[0] != byte(i) {
				t.Errorf("chunk %d begins with %d", i, data[0])
			}
		}
	}
}

func TestConnect(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 40))
	if _, err := hetcuda.Connect(t.Context(), dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a directory that is missing: %v", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if conns, err := hetcuda.Connect(t.Context(), dir); err != nil || len(conns) != 0 {
		t.Errorf("an empty one: %v, %v", conns, err)
	}
	// What nobody listens on any more, and what is no socket of ours.
	short := t.TempDir()
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Net: "unixpacket", Name: filepath.Join(short, "hetcuda.7")})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	if err := os.WriteFile(filepath.Join(short, "other"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if conns, err := hetcuda.Connect(t.Context(), short); err != nil || len(conns) != 0 {
		t.Errorf("a stale socket: %v, %v", conns, err)
	}
	hetcudatest.Start(t, short)
	open := dial(t, short)
	if _, err := open.Hello(t.Context()); err != nil { // so that it has been accepted
		t.Fatal(err)
	}
	if conns, err := hetcuda.Connect(t.Context(), short, open); err != nil || len(conns) != 0 {
		t.Errorf("one that is open already: %v, %v", conns, err)
	}
	before := openFDs(t)
	for name, plant := range map[string]func(path string) error{
		"a link": func(path string) error {
			return os.Symlink(filepath.Join(short, "hetcuda.7"), path)
		},
		"a file": func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"a stream": func(path string) error {
			l, err := net.Listen("unix", path)
			if err == nil {
				t.Cleanup(func() { _ = l.Close() })
				before++
			}
			return err
		},
	} {
		path := filepath.Join(short, "hetcuda.9")
		if err := plant(path); err != nil {
			t.Fatal(err)
		}
		if conns, err := hetcuda.Connect(t.Context(), short, open); err != nil || len(conns) != 0 {
			t.Errorf("%s: %v, %v", name, conns, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if after := openFDs(t); after > before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

// A directory whose path is longer than a socket's name may be.
// Who wants one process does not wait for another that is busy.
func TestConnectTo(t *testing.T) {
	dir := t.TempDir()
	hetcudatest.Start(t, dir)
	busy, err := net.ListenUnix("unixpacket", &net.UnixAddr{Net: "unixpacket", Name: filepath.Join(dir, "hetcuda.1")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = busy.Close() }()
	// Nor does it mind what else is there.
	if err := os.WriteFile(filepath.Join(dir, "hetcuda."+strconv.Itoa(os.Getpid())+".0"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := hetcuda.ConnectTo(t.Context(), dir, os.Getpid(), hetcuda.Socket{})
	if err != nil || c == nil || c.PID() != os.Getpid() {
		t.Fatal(c, err)
	}
	defer c.Close()
	if err := busy.SetDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if other, err := busy.Accept(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection to the other: %v, %v", other, err)
	}
	if again, err := hetcuda.ConnectTo(t.Context(), t.TempDir(), os.Getpid(), hetcuda.Socket{}); again != nil || err != nil {
		t.Errorf("where nobody listens: %v, %v", again, err)
	}
}

// Users of a container other than the process's can't keep it from being found.
func TestConnectToAmongOthers(t *testing.T) {
	dir := t.TempDir()
	hetcudatest.Start(t, dir)
	const nobody = 65534
	for i := range 10 {
		path := hetcudatest.Deaf(t, dir, fmt.Sprintf("hetcuda.%d.%d", os.Getpid(), i))
		if err := os.Lchown(path, nobody, nobody); err != nil {
			t.Skip("files of another user can't be made: ", err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second) // each would take 10 s
	defer cancel()
	c, err := hetcuda.ConnectTo(ctx, dir, os.Getpid(), hetcuda.Socket{})
	if err != nil || c == nil {
		t.Fatal(c, err)
	}
	known := c.Socket()
	c.Close()
	// Nor can its own, where it is known.
	hetcudatest.Deaf(t, dir, fmt.Sprintf("hetcuda.%d.11", os.Getpid()))
	c, err = hetcuda.ConnectTo(ctx, dir, os.Getpid(), known)
	if err != nil || c == nil {
		t.Fatal(c, err)
	}
	c.Close()
}

func TestConnectFar(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 40))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	here := t.TempDir()
	hetcudatest.Start(t, here)
	if err := os.Rename(filepath.Join(here, name(t, here)), filepath.Join(dir, name(t, here))); err != nil {
		t.Fatal(err)
	}
	if _, err := dial(t, dir).Hello(t.Context()); err != nil {
		t.Error(err)
	}
}

func name(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatal(entries, err)
	}
	return entries[0].Name()
}

// Whatever the other side does, the call ends with an error that says so, and no
// descriptor stays open.
func TestHostile(t *testing.T) {
	chunk := hetcudatest.Chunk{ID: 1, Address: 4096, Size: 4096, Device: device}
	answer := func(f func(c *net.UnixConn)) func(*net.UnixConn) bool {
		return func(c *net.UnixConn) bool {
			f(c)
			_, _ = c.Read(make([]byte, 1)) // until the other side has had enough
			return false
		}
	}
	reply := func(op uint32, count uint32, more ...func(c *net.UnixConn)) func(*net.UnixConn) bool {
		return answer(func(c *net.UnixConn) {
			hetcudatest.Reply(c, op, 0, count, "", nil)
			for _, f := range more {
				f(c)
			}
		})
	}
	send := func(chunks []hetcudatest.Chunk, fds ...int) func(c *net.UnixConn) {
		return func(c *net.UnixConn) { hetcudatest.SendChunks(c, chunks, fds...) }
	}
	many := slices.Repeat([]hetcudatest.Chunk{chunk}, 65)
	park := func(ctx context.Context, c *hetcuda.Conn) error {
		_, _, err := c.Park(ctx, func(int) error { return nil })
		return err
	}
	step := func(ctx context.Context, c *hetcuda.Conn) error {
		_, err := c.Step(ctx, 1)
		return err
	}
	hello := func(ctx context.Context, c *hetcuda.Conn) error {
		_, err := c.Hello(ctx)
		return err
	}
	tests := map[string]struct {
		op   uint32
		do   func(*net.UnixConn) bool
		call func(context.Context, *hetcuda.Conn) error
		text string
	}{
		"hello: dies":              {hetcudatest.Hello, func(*net.UnixConn) bool { return false }, hello, "EOF"},
		"hello: another operation": {hetcudatest.Hello, reply(hetcudatest.Park, 0), hello, "asked was HELLO"},
		"hello: nothing after it":  {hetcudatest.Hello, reply(hetcudatest.Hello, 0), hello, "a hello of 0 bytes"},
		"hello: short":             {hetcudatest.Hello, answer(func(c *net.UnixConn) { _, _ = c.Write([]byte("htc1")) }), hello, "a reply of 4 bytes"},
		"hello: wrong magic":       {hetcudatest.Hello, answer(func(c *net.UnixConn) { _, _ = c.Write(make([]byte, 240)) }), hello, "magic 0x0"},
		"hello: too long":          {hetcudatest.Hello, answer(func(c *net.UnixConn) { _, _ = c.Write(make([]byte, 2000)) }), hello, "longer than"},
		"step: no status":          {hetcudatest.Step, reply(hetcudatest.Step, 0), step, "a status of 0 bytes"},
		"step: what device?": {hetcudatest.Step, answer(func(c *net.UnixConn) {
			hetcudatest.Reply(c, hetcudatest.Step, 0, 0, "", bytes.Repeat([]byte{7}, 24))
		}), step, "a status with device"},
		"hello: descriptors":         {hetcudatest.Hello, answer(send([]hetcudatest.Chunk{chunk}, 0, 1, 2)), hello, "descriptors with the reply"},
		"park: dies":                 {hetcudatest.Park, func(*net.UnixConn) bool { return false }, park, "EOF"},
		"park: dies between":         {hetcudatest.Park, func(c *net.UnixConn) bool { hetcudatest.Reply(c, 3, 0, 2, "", nil); send(many[:1], 0)(c); return false }, park, "EOF"},
		"park: too many":             {hetcudatest.Park, reply(3, 1<<20+1), park, "1048577 chunks"},
		"park: the most":             {hetcudatest.Park, reply(3, 1<<32-1), park, "4294967295 chunks"},
		"park: no descriptor":        {hetcudatest.Park, reply(3, 1, send(many[:1])), park, "1 chunks with 0 descriptors"},
		"park: too few descriptors":  {hetcudatest.Park, reply(3, 2, send(many[:2], 0)), park, "2 chunks with 1 descriptors"},
		"park: too many descriptors": {hetcudatest.Park, reply(3, 1, send(many[:1], 0, 1)), park, "1 chunks with 2 descriptors"},
		"park: far too many":         {hetcudatest.Park, reply(3, 64, send(many[:64], make([]int, 200)...)), park, "more than 64 descriptors"},
		"park: more than said":       {hetcudatest.Park, reply(3, 1, send(many[:2], 0, 1)), park, "2 chunks, after 0 of 1"},
		"park: a packet too long":    {hetcudatest.Park, reply(3, 65, send(many, 0)), park, "longer than"},
		"park: half a chunk":         {hetcudatest.Park, reply(3, 1, func(c *net.UnixConn) { _, _ = c.Write(make([]byte, 24)) }), park, "a packet of 24 bytes"},
		"park: twice":                {hetcudatest.Park, reply(3, 2, send(many[:2], 0, 1)), park, "chunk 1 twice"},
		"park: no size":              {hetcudatest.Park, reply(3, 1, send([]hetcudatest.Chunk{{ID: 1}}, 0)), park, "chunk 1 of 0 bytes"},
		"park: odd size":             {hetcudatest.Park, reply(3, 1, send([]hetcudatest.Chunk{{ID: 1, Size: 4097}}, 0)), park, "of 4097 bytes"},
		"park: wraps":                {hetcudatest.Park, reply(3, 1, send([]hetcudatest.Chunk{{ID: 1, Size: 1 << 40, Address: 1<<64 - 4096}}, 0)), park, "at 0xfffffffffffff000"},
		"park: more than there is":   {hetcudatest.Park, reply(3, 2, send([]hetcudatest.Chunk{{ID: 1, Size: 1 << 48}, {ID: 2, Size: 4096}}, 0, 1)), park, "more than"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p, c := start(t, 0)
			if test.op != hetcudatest.Step {
				if err := c.Hold(t.Context(), time.Second); err != nil {
					t.Fatal(err)
				}
			}
			before := openFDs(t)
			p.Before(test.op, test.do)
			err := test.call(t.Context(), c)
			var lost *hetcuda.LostError
			if !errors.As(err, &lost) || !strings.Contains(err.Error(), test.text) {
				t.Errorf("err = %v, want %q", err, test.text)
			}
			if err := c.Release(t.Context()); !errors.As(err, &lost) {
				t.Errorf("afterwards: %v", err)
			}
			if after := openFDs(t); after > before {
				t.Errorf("%d descriptors before, %d after", before, after)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	refuse := func(op uint32, status int32) func(*net.UnixConn) bool {
		return func(c *net.UnixConn) bool {
			hetcudatest.Reply(c, op, status, 0, "so\tit is \xff", nil)
			return true
		}
	}
	p, c := start(t, 1)
	p.Before(hetcudatest.Hold, refuse(hetcudatest.Hold, -int32(unix.EAGAIN)))
	err := c.Hold(t.Context(), time.Millisecond)
	if !errors.Is(err, helperapi.ErrNotReady) || !strings.Contains(err.Error(), "libhetcuda HOLD: EAGAIN (-11): so?it is ?") {
		t.Errorf("err = %v", err)
	}
	p, c = start(t, 1)
	p.Before(hetcudatest.Commit, refuse(hetcudatest.Commit, 999))
	if _, err := c.Commit(t.Context()); errors.Is(err, helperapi.ErrNotReady) || !strings.Contains(err.Error(), "CUresult (999)") {
		t.Errorf("err = %v", err)
	}
	p, c = start(t, 1)
	p.SetState(hetcudatest.Parked)
	if _, err := c.Hello(t.Context()); err != nil { // it has accepted
		t.Fatal(err)
	}
	before := openFDs(t)
	_, err = c.Unpark(t.Context(), []hetcuda.Chunk{{ID: 5, Size: 4096, Device: device}}, []int{0})
	if err == nil || !strings.Contains(err.Error(), "another chunk") || p.State() != hetcudatest.Parked {
		t.Errorf("err = %v, state %d", err, p.State())
	}
	if after := openFDs(t); after > before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
	// The next one is answered.
	if h, err := c.Hello(t.Context()); err != nil || h.State != hetcuda.Parked {
		t.Errorf("%+v, %v", h, err)
	}
}

// A client copies what it took as it was when it is asked to, as far as there is room.
func TestOwn(t *testing.T) {
	p, c := start(t, 3)
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(c.Hold(t.Context(), time.Second))
	chunks, fds, err := c.Park(t.Context(), func(int) error { return nil })
	check(err)
	defer closeAll(fds)
	_, err = c.Commit(t.Context())
	check(err)
	chunks[0].Flags |= hetcuda.Later
	chunks[2].Flags |= hetcuda.AsIs
	_, err = c.Unpark(t.Context(), chunks, fds)
	check(err)
	if got := p.Borrowed(); len(got) != 2 {
		t.Errorf("borrowed: %v", got)
	}
	p.SetRoom(0)
	if left, why, err := c.Own(t.Context()); err != nil || left != 2<<20 || why != "no room" {
		t.Errorf("%d, %q, %v", left, why, err)
	}
	p.SetRoom(4096)
	if left, _, err := c.Own(t.Context()); err != nil || left != 0 || len(p.Borrowed()) != 0 {
		t.Errorf("%d, %v", left, err)
	}
	check(c.Release(t.Context()))
	if _, _, err := c.Own(t.Context()); err == nil {
		t.Error("it runs, and was not refused")
	}
}

// Steps are asked for and counted, and held at the end.
func TestSteps(t *testing.T) {
	p, c := start(t, 1)
	p.SetBusy(5)
	if s, err := c.Step(t.Context(), 0); err != nil || s != (hetcuda.Status{}) || p.State() != hetcudatest.Stepped {
		t.Fatalf("%+v, %v, state %d", s, err, p.State())
	}
	if h, err := c.Hello(t.Context()); err != nil || h.State != hetcuda.Stepped || !h.Steps() {
		t.Errorf("%+v, %v", h, err)
	}
	if s, err := c.Status(t.Context(), time.Millisecond); err != nil || s.Device != hetcuda.Busy {
		t.Errorf("%+v, %v", s, err)
	}
	if err := hetcuda.HoldTogether(t.Context(), []*hetcuda.Conn{c}, 10*time.Second); err != nil || p.State() != hetcudatest.Held {
		t.Errorf("state %d, %v", p.State(), err)
	}
	// One that is busy for longer than there is time goes on with the end of the
	// connection.
	p, c = start(t, 1)
	p.SetBusy(1 << 30)
	if err := hetcuda.HoldTogether(t.Context(), []*hetcuda.Conn{c}, 50*time.Millisecond); !errors.Is(err, helperapi.ErrNotReady) {
		t.Errorf("err = %v", err)
	}
	c.Close()
	if p.State() != hetcudatest.Running {
		t.Errorf("state %d", p.State())
	}
	// An older library says that it has none.
	p, c = start(t, 1)
	p.SetProtocol(1)
	if h, err := c.Hello(t.Context()); err != nil || h.Protocol != 1 || h.Steps() {
		t.Errorf("%+v, %v", h, err)
	}
}

// What is spoken by a client and not known here is refused by name, and nothing else is
// asked for; all that there ever was is served.
func TestProtocols(t *testing.T) {
	for _, protocol := range []uint32{0, 1, 2, 3, 4, 5, 6, 1 << 31} {
		p, c := start(t, 1)
		p.SetProtocol(protocol)
		h, err := c.Hello(t.Context())
		if protocol >= 1 && protocol <= 5 {
			if err != nil || h.Protocol != int(protocol) || h.Steps() != (protocol >= 2) || h.Owns() != (protocol >= 4) || h.Makes() != (protocol >= 5) {
				t.Errorf("%d: %+v, %v", protocol, h, err)
			}
			continue
		}
		if !errors.Is(err, gpuplugin.ErrUnsupported) || !strings.Contains(err.Error(), fmt.Sprintf("protocol %d of libhetcuda 1.0-test, and this device helper knows 1 to 5", protocol)) ||
			!strings.Contains(err.Error(), "Start the pod anew") {
			t.Errorf("%d: %v", protocol, err)
		}
	}
}

// A client makes what it is asked for, and anything else ends the conversation.
func TestMake(t *testing.T) {
	parked := func(t *testing.T) (*hetcudatest.Process, *hetcuda.Conn, hetcuda.Chunk) {
		t.Helper()
		p, c := start(t, 2)
		if err := c.Hold(t.Context(), time.Second); err != nil {
			t.Fatal(err)
		}
		chunks, fds, err := c.Park(t.Context(), func(int) error { return nil })
		hetcuda.Discard(fds)
		if err == nil {
			_, err = c.Commit(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		return p, c, chunks[1]
	}
	p, c, chunk := parked(t)
	for _, want := range []bool{false, true} {
		p.SetMoved(want)
		if moved, err := c.Moved(t.Context()); err != nil || moved != want {
			t.Errorf("moved %t, %v", moved, err)
		}
	}
	fd, err := c.Make(t.Context(), chunk)
	if err != nil {
		t.Fatal(err)
	}
	hetcuda.Discard([]int{fd})
	refused := chunk
	refused.ID = 1 << 40
	var said *helperapi.Error
	if _, err := c.Make(t.Context(), refused); !errors.As(err, &said) || !strings.Contains(err.Error(), "not a chunk that is parked") {
		t.Errorf("err = %v", err)
	}
	if moved, err := c.Moved(t.Context()); err != nil || !moved {
		t.Errorf("after a refusal: %t, %v", moved, err)
	}
	zero, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer zero.Close()
	other := func(f func(*hetcudatest.Chunk)) []hetcudatest.Chunk {
		c := hetcudatest.Chunk{ID: chunk.ID, Size: chunk.Size}
		f(&c)
		return []hetcudatest.Chunk{c}
	}
	for name, chunks := range map[string][]hetcudatest.Chunk{
		"none":         {},
		"two":          {{ID: chunk.ID, Size: chunk.Size}, {ID: chunk.ID + 1, Size: chunk.Size}},
		"another":      other(func(c *hetcudatest.Chunk) { c.ID++ }),
		"another size": other(func(c *hetcudatest.Chunk) { c.Size *= 2 }),
		"no memory":    other(func(c *hetcudatest.Chunk) { c.Flags = hetcuda.Imported }),
	} {
		t.Run(name, func(t *testing.T) {
			p, c, chunk := parked(t)
			p.Before(hetcudatest.Make, func(conn *net.UnixConn) bool {
				hetcudatest.Reply(conn, hetcudatest.Make, 0, uint32(len(chunks)), "", nil)
				if len(chunks) > 0 {
					hetcudatest.SendChunks(conn, chunks, slices.Repeat([]int{int(zero.Fd())}, len(chunks))...)
				}
				return false
			})
			var lost *hetcuda.LostError
			if _, err := c.Make(t.Context(), chunk); !errors.As(err, &lost) {
				t.Errorf("err = %v", err)
			}
		})
	}
}

// A peer that says nothing is left when the caller's time is over, and what it
// holds ends with the connection.
func TestSilence(t *testing.T) {
	p, c := start(t, 1)
	if err := c.Hold(t.Context(), time.Second); err != nil {
		t.Fatal(err)
	}
	asked, left := make(chan struct{}), make(chan struct{})
	p.Before(hetcudatest.Park, func(c *net.UnixConn) bool {
		close(asked)
		_, _ = c.Read(make([]byte, 1))
		close(left)
		return false
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	_, _, err := c.Park(ctx, func(int) error { return nil })
	var lost *hetcuda.LostError
	if !errors.As(err, &lost) || !errors.Is(err, context.Canceled) || errors.Is(err, helperapi.ErrGone) {
		t.Errorf("err = %v", err)
	}
	<-left
}
