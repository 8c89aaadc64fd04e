// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package hetcuda speaks with libhetcuda inside of a container's processes: it
// has them hold their CUDA calls, let go of their device memory, and take it
// back. libhetcuda/include/hetcuda_control.h describes the protocol.
//
// The other side is a container's process and taken for hostile: every packet is
// checked, every wait ends, and no descriptor is left open (that of a file which
// the client keeps from being closed stays until it can be). What a descriptor is
// of shows only when a driver imports it. The package must not know of
// containers, and loads nothing.
package hetcuda

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
)

const (
	// maxSockets bounds what is tried in one directory.
	maxSockets = 4096
	// answerTimeout is for what a client answers from its own tables, and is
	// added to what it was allowed to take.
	answerTimeout = 10 * time.Second
	// searchTimeout bounds the search for one process among all that listen.
	searchTimeout = 30 * time.Second
	// parkTimeout is how long GPU work may take to come to its end.
	parkTimeout = 30 * time.Second
	// moveTimeout is for the mapping and unmapping of all memory: 12 ms for 32
	// chunks, so a minute would do for the most.
	moveTimeout = 2 * time.Minute
)

// Conn is a connection to one process. What it holds ends with the connection.
// Its methods may be called by any number of goroutines, and wait for one
// another.
type Conn struct {
	pid    int
	socket Socket
	sock   *net.UnixConn

	mu     sync.Mutex
	broken error // after which nothing more can be asked
}

// Socket is where a process listens, as long as it lives, whatever the name. The
// zero value is none.
type Socket struct{ dev, ino uint64 }

// closeTimeout is how long a client may take to notice that a connection has
// ended.
const closeTimeout = time.Second

// Connect connects to all that listen in a directory of the host, but for those
// to which there are open connections: they serve one at a time, and another one
// would wait there, also through a dump by CRIU, which refuses that. A socket
// that nobody listens on is left out. An error means that it can't be told who
// there is; then no connection is left open.
func Connect(ctx context.Context, dir string, open ...*Conn) (conns []*Conn, err error) {
	d, places, err := sockets(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	for _, p := range places {
		c, err := connect(ctx, d, p.name, open)
		if err != nil {
			for _, c := range conns {
				c.Close()
			}
			return nil, err
		}
		if c != nil {
			conns = append(conns, c)
		}
	}
	return conns, nil
}

// ConnectTo connects to one process, and returns nil if it does not listen. The
// directory belongs to all users of the container, so what is most likely the
// process's own comes first: the socket that is known, then what its user has
// made, under its name. Others would have to be waited for, while their process
// is busy or for as long as it likes; an error is of none of them if the process
// was found.
func ConnectTo(ctx context.Context, dir string, pid int, known Socket, open ...*Conn) (*Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, searchTimeout, fmt.Errorf("process %d was not found among them within %v", pid, searchTimeout))
	defer cancel()
	d, places, err := sockets(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	who := identify(pid)
	slices.SortStableFunc(places, func(a, b place) int { return cmp.Compare(who.rank(a, known), who.rank(b, known)) })
	var errs []error
	for _, p := range places {
		c, err := connect(ctx, d, p.name, open)
		switch {
		case err != nil:
			errs = append(errs, err)
		case c != nil && c.pid == pid:
			return c, nil
		case c != nil:
			c.Close()
		}
		if ctx.Err() != nil {
			errs = append(errs, context.Cause(ctx))
			break
		}
	}
	return nil, errors.Join(errs...)
}

// identity is how a process's own socket is told from others: by the PID that it
// has for itself, and by who makes its files. 0 and -1 are of nobody.
type identity struct{ pid, uid int }

// rank is smaller for a socket that is more likely the process's. It is called by
// its PID, with or without the number that it adds where the name is taken.
func (who identity) rank(p place, known Socket) int {
	rest, ok := strings.CutPrefix(p.name, socketPrefix+strconv.Itoa(who.pid))
	named := ok && (rest == "" || rest[0] == '.')
	switch own := int(p.uid) == who.uid; {
	case p.socket == known:
		return 0
	case own && named:
		return 1
	case own:
		return 2
	case named:
		return 3
	}
	return 4
}

// identify reads the identity of a process, as far as it can be told.
func identify(pid int) identity {
	who := identity{uid: -1}
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return who
	}
	// The last of the PIDs is of the innermost namespace, and the last of the user
	// IDs that of the file system (proc_pid_status(5)).
	for line := range strings.Lines(string(status)) {
		name, list, _ := strings.Cut(line, ":")
		fields := strings.Fields(list)
		if len(fields) == 0 {
			continue
		}
		n, err := strconv.Atoi(fields[len(fields)-1])
		if err != nil {
			continue
		}
		switch name {
		case "NSpid":
			who.pid = n
		case "Uid":
			who.uid = n
		}
	}
	return who
}

// place is a socket in a directory.
type place struct {
	name   string
	socket Socket
	uid    uint32
}

// sockets opens a control directory and lists the sockets in it.
func sockets(dir string) (d *os.File, places []place, err error) {
	if d, err = os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY, 0); err != nil {
		return nil, nil, fmt.Errorf("control directory of libhetcuda: %w", err)
	}
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("control directory of libhetcuda: %w", err), d.Close())
	}
	for _, name := range names {
		var st unix.Stat_t
		// Whatever else somebody has put there, and what is gone by now, is no
		// process that listens.
		if !strings.HasPrefix(name, socketPrefix) ||
			unix.Fstatat(int(d.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
			continue
		}
		places = append(places, place{name, Socket{st.Dev, st.Ino}, st.Uid})
	}
	if len(places) > maxSockets {
		return nil, nil, errors.Join(fmt.Errorf("control directory of libhetcuda: more than %d sockets in %s", maxSockets, dir), d.Close())
	}
	return d, places, nil
}

// connect returns nil if nobody listens, or there is a connection.
func connect(ctx context.Context, dir *os.File, name string, open []*Conn) (*Conn, error) {
	// By the descriptor of this one file: a name could become a link to a socket
	// outside of the container meanwhile, and may be too long for connect(2).
	fail := func(err error) (*Conn, error) {
		return nil, fmt.Errorf("libhetcuda at %s: %w", filepath.Join(dir.Name(), name), err)
	}
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return fail(fmt.Errorf("open: %w", err))
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fail(fmt.Errorf("stat: %w", err))
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return nil, nil // any more
	}
	id := Socket{st.Dev, st.Ino}
	if slices.ContainsFunc(open, func(c *Conn) bool { return c.socket == id }) {
		return nil, nil
	}
	sock, err := dial(ctx, "/proc/self/fd/"+strconv.Itoa(fd))
	// Nobody listens any more, or it is of another type than libhetcuda's.
	if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.EPROTOTYPE) {
		return nil, nil
	}
	if err != nil {
		return fail(err)
	}
	pid, err := peer(sock)
	if err != nil {
		return fail(errors.Join(err, sock.Close()))
	}
	return &Conn{pid: pid, socket: id, sock: sock}, nil
}

// dial waits a little for a client whose queue of connections is full.
func dial(ctx context.Context, path string) (*net.UnixConn, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unixpacket", path)
		if err == nil {
			return conn.(*net.UnixConn), nil
		}
		if !errors.Is(err, unix.EAGAIN) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(err, context.Cause(ctx))
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// peer is the process that listens.
func peer(sock *net.UnixConn) (pid int, err error) {
	raw, err := sock.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	ctlErr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(ctlErr, err); err != nil {
		return 0, fmt.Errorf("who is behind the socket: %w", err)
	}
	if cred.Pid <= 0 {
		return 0, errors.New("the process behind the socket is in no PID namespace below this one")
	}
	return int(cred.Pid), nil
}

// PID is the process on the host.
func (c *Conn) PID() int { return c.pid }

// Socket is where it listens.
func (c *Conn) Socket() Socket { return c.socket }

// Close ends the connection, and what is held by it, and returns when the client
// has closed it too: one that it has still to close is in the way of CRIU.
func (c *Conn) Close() {
	defer func() { _ = c.sock.Close() }()
	if c.sock.CloseWrite() != nil || c.sock.SetReadDeadline(time.Now().Add(closeTimeout)) != nil {
		return
	}
	// Whatever comes still is an answer that nobody waits for.
	for buf := make([]byte, 1024); ; {
		if n, err := c.sock.Read(buf); err != nil || n == 0 {
			return
		}
	}
}

// Hello asks the client who it is. gpuplugin.ErrUnsupported means that it speaks a
// protocol which is not known here.
func (c *Conn) Hello(ctx context.Context) (h Hello, err error) {
	err = c.exchange(ctx, answerTimeout, func() error {
		var buf [1024]byte
		r, rest, err := c.ask(opHello, 0, 0, buf[:])
		if err != nil {
			return err
		}
		if h, err = parseHello(rest); err != nil {
			return err
		}
		h.Detail = r.text
		return h.known(c.pid)
	})
	return h, err
}

// Hold has the client hold all CUDA calls. helperapi.ErrNotReady means that
// those under way took longer than the time-out, and that none is held.
func (c *Conn) Hold(ctx context.Context, timeout time.Duration) error {
	return c.simple(ctx, opHold, timeout, timeout+answerTimeout)
}

// Step lets so many calls begin that give a device work, instead of those that
// were left, and all others.
func (c *Conn) Step(ctx context.Context, count uint32) (Status, error) {
	return c.status(ctx, opStep, 0, count)
}

// Status waits until the client's devices have come to rest and nothing may be
// given to them, but not longer than that.
func (c *Conn) Status(ctx context.Context, wait time.Duration) (Status, error) {
	return c.status(ctx, opStatus, wait, 0)
}

func (c *Conn) status(ctx context.Context, o op, wait time.Duration, count uint32) (s Status, err error) {
	err = c.exchange(ctx, wait+answerTimeout, func() error {
		var buf [1024]byte
		r, rest, err := c.ask(o, millis(wait), count, buf[:])
		if err == nil {
			s, err = parseStatus(rest)
			s.Detail = r.text
		}
		return err
	})
	return s, err
}

// Release lets the calls go on.
func (c *Conn) Release(ctx context.Context) error { return c.simple(ctx, opRelease, 0, answerTimeout) }

// Commit has the client let go of the memory whose descriptors Park returned. A
// [LostError] means that it can't be told whether it has. trimmed is what it gave
// back to the devices beside, in bytes: memory that it had kept to be used again.
func (c *Conn) Commit(ctx context.Context) (trimmed uint64, err error) {
	err = c.exchange(ctx, moveTimeout, func() error {
		var buf [replyLen]byte
		r, _, err := c.ask(opCommit, 0, 0, buf[:])
		trimmed = uint64(r.count) << 20
		return err
	})
	return trimmed, err
}

func (c *Conn) simple(ctx context.Context, o op, timeout, limit time.Duration) error {
	return c.exchange(ctx, limit, func() error {
		var buf [replyLen]byte
		_, _, err := c.ask(o, millis(timeout), 0, buf[:])
		return err
	})
}

// Mark has a client whose memory Park returned mark what it has imported; with 0 it
// puts back what was there.
func (c *Conn) Mark(ctx context.Context, nonce Nonce) error {
	return c.exchange(ctx, moveTimeout, func() error {
		var buf [replyLen]byte
		_, _, err := c.ask(opMark, uint32(nonce), uint32(nonce>>32), buf[:])
		return err
	})
}

// Park asks a client that is held for its memory: the caller discards fds, one for
// each chunk, -1 for one that is imported. The client has it still, until Commit.
// admit is asked whether so many can be taken, before any is.
func (c *Conn) Park(ctx context.Context, admit func(chunks int) error) (chunks []Chunk, fds []int, err error) {
	return c.chunks(ctx, opPark, uint64(millis(parkTimeout)), parkTimeout, admit, checkChunks)
}

// Share asks a client that has memory again, be it not all of it yet, for what
// others may have, at most so many chunks. The caller discards fds.
func (c *Conn) Share(ctx context.Context, most int) (chunks []Chunk, fds []int, err error) {
	return c.chunks(ctx, opShare, 0, answerTimeout, func(n int) error {
		if n > most {
			return fmt.Errorf("%w: %d chunks are shared, of %d", errProtocol, n, most)
		}
		return nil
	}, checkChunks)
}

// Moved tells whether a client that is parked has to make its memory itself ([Conn.Make]):
// the driver has restored it to other devices than it began on.
func (c *Conn) Moved(ctx context.Context) (moved bool, err error) {
	err = c.exchange(ctx, answerTimeout, func() error {
		var buf [replyLen]byte
		r, _, err := c.ask(opMake, 0, 0, buf[:])
		moved = r.count != 0
		return err
	})
	return moved, err
}

// Make has a client that is parked make memory for one of its chunks, which the caller
// fills before it gives it back by Unpark. The caller discards fd.
func (c *Conn) Make(ctx context.Context, chunk Chunk) (fd int, err error) {
	one := func(n int) error {
		if n != 1 {
			return fmt.Errorf("%w: %d chunks were made for one", errProtocol, n)
		}
		return nil
	}
	_, fds, err := c.chunks(ctx, opMake, chunk.ID, answerTimeout, one, func(made []Chunk) error {
		if m := made[0]; m.ID != chunk.ID || m.Size != chunk.Size || m.Flags&Imported != 0 {
			return fmt.Errorf("%w: chunk %d of %d bytes was made for chunk %d of %d", errProtocol, m.ID, m.Size, chunk.ID, chunk.Size)
		}
		return nil
	})
	if err != nil {
		return -1, err
	}
	return fds[0], nil
}

// chunks sends a request with a number, and reads the chunks that follow the reply.
func (c *Conn) chunks(ctx context.Context, o op, number uint64, timeout time.Duration, admit func(chunks int) error, check func([]Chunk) error) (chunks []Chunk, fds []int, err error) {
	err = c.exchange(ctx, timeout+moveTimeout, func() error {
		var buf [batchSize * chunkLen]byte
		r, _, err := c.ask(o, uint32(number), uint32(number>>32), buf[:])
		if err != nil {
			return err
		}
		if r.count > MaxChunks {
			return fmt.Errorf("%w: %d chunks", errProtocol, r.count)
		}
		if err := admit(int(r.count)); err != nil {
			return err
		}
		for len(chunks) < int(r.count) {
			n, got, err := c.receive(buf[:])
			if err != nil {
				Discard(got)
				return err
			}
			some, err := parseChunks(buf[:n])
			if err == nil && len(chunks)+len(some) > int(r.count) {
				err = fmt.Errorf("%w: %d chunks, after %d of %d", errProtocol, len(some), len(chunks), r.count)
			}
			if err == nil {
				err = spread(&fds, some, got)
			}
			if err != nil {
				Discard(got)
				return err
			}
			chunks = append(chunks, some...)
		}
		return check(chunks)
	})
	if err != nil {
		Discard(fds)
		return nil, nil, err
	}
	return chunks, fds, nil
}

// spread appends the descriptors that came with chunks, each at its chunk's place.
func spread(fds *[]int, chunks []Chunk, got []int) error {
	own := 0
	for _, chunk := range chunks {
		if chunk.Flags&Imported == 0 {
			own++
		}
	}
	if own != len(got) {
		return fmt.Errorf("%w: %d chunks with %d descriptors", errProtocol, own, len(got))
	}
	for _, chunk := range chunks {
		if chunk.Flags&Imported != 0 {
			*fds = append(*fds, -1)
			continue
		}
		*fds = append(*fds, got[0])
		got = got[1:]
	}
	return nil
}

// Unpark gives a client that is parked its memory back: exactly what was parked,
// with a descriptor for each chunk, which stay the caller's. What is imported may
// come later: so many chunks are missing. If none is, the client is held. It makes
// memory of its own for what it gets, if there is room and the chunk's flags don't say
// otherwise. After an error it is parked, and has what an Unpark before gave it; a
// [LostError] means that it can't be told.
func (c *Conn) Unpark(ctx context.Context, chunks []Chunk, fds []int) (missing int, err error) {
	if len(chunks) != len(fds) {
		return 0, fmt.Errorf("%d chunks, %d descriptors", len(chunks), len(fds))
	}
	err = c.exchange(ctx, moveTimeout, func() error {
		sendErr := c.send(appendRequest(nil, opUnpark, asIsToOld(chunks), uint32(len(chunks))), nil)
		for first := 0; first < len(chunks) && sendErr == nil; first += batchSize {
			end := min(first+batchSize, len(chunks))
			var b []byte
			for _, chunk := range chunks[first:end] {
				b = appendChunk(b, chunk)
			}
			sendErr = c.send(b, unix.UnixRights(fds[first:end]...))
		}
		// Who refuses says why, even if it takes no more.
		var buf [replyLen]byte
		r, _, err := c.answer(opUnpark, buf[:])
		missing = int(r.count)
		if err != nil && sendErr != nil {
			// Whatever it has not read yet is nothing that it could understand.
			err = errors.Join(sendErr, err, c.sock.Close())
		}
		return err
	})
	return missing, err
}

// asIsToOld is 1, by which a client of protocol 3 takes chunks as they are, if that is
// said of all that its process has made; others see it in the flags.
func asIsToOld(chunks []Chunk) uint32 {
	said := uint32(0)
	for _, c := range chunks {
		switch {
		case c.Flags&AsIs != 0:
			said = 1
		case c.Flags&Imported == 0:
			return 0
		}
	}
	return said
}

// Own has a client that is held, and has all of its memory, copy what it took as it was
// into memory of its own: the caller has let go of it. left is how many bytes there
// was no room for, and why; the client uses them as they are.
func (c *Conn) Own(ctx context.Context) (left uint64, why string, err error) {
	err = c.exchange(ctx, moveTimeout, func() error {
		var buf [replyLen]byte
		r, _, err := c.ask(opOwn, 0, 0, buf[:])
		left, why = uint64(r.count)<<20, r.text
		return err
	})
	return left, why, err
}

func millis(d time.Duration) uint32 { return uint32(min(d.Milliseconds(), 1<<31)) }

// LostError means that a client gave no answer, or none that can be understood,
// so that it can't be told what it has done. The connection is closed.
type LostError struct {
	PID int
	Err error
}

// Error implements error.
func (e *LostError) Error() string {
	return fmt.Sprintf("no answer from libhetcuda in process %d: %v", e.PID, e.Err)
}

// Unwrap returns the cause.
func (e *LostError) Unwrap() error { return e.Err }

// Is tells of a process that is gone.
func (e *LostError) Is(target error) bool { return target == helperapi.ErrGone && Gone(e.PID) }

// exchange runs one request and its replies within a time. After an error other
// than the client's own word nothing more can be asked.
func (c *Conn) exchange(ctx context.Context, limit time.Duration, f func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken != nil {
		return c.broken
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("within %v; is the process stopped?: %w", limit, context.DeadlineExceeded))
	defer cancel()
	if err := c.sock.SetDeadline(time.Time{}); err != nil {
		return c.breakOff(err)
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = c.sock.SetDeadline(time.Unix(1, 0))
		close(ended)
	})
	err := f()
	if !stop() {
		<-ended // or it would end the next exchange
	}
	var said *helperapi.Error
	if err == nil || errors.As(err, &said) {
		return err
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return c.breakOff(err)
}

func (c *Conn) breakOff(err error) error {
	_ = c.sock.Close()
	c.broken = &LostError{PID: c.pid, Err: err}
	return c.broken
}

// ask sends a request without chunks and reads the reply.
func (c *Conn) ask(o op, timeoutMillis, count uint32, buf []byte) (reply, []byte, error) {
	if err := c.send(appendRequest(nil, o, timeoutMillis, count), nil); err != nil {
		return reply{}, nil, err
	}
	return c.answer(o, buf)
}

// answer reads the reply to a request. A refusal is a helperapi.Error.
func (c *Conn) answer(o op, buf []byte) (reply, []byte, error) {
	n, fds, err := c.receive(buf)
	Discard(fds)
	if err != nil {
		return reply{}, nil, err
	}
	if len(fds) > 0 {
		return reply{}, nil, fmt.Errorf("%w: descriptors with the reply to %v", errProtocol, o)
	}
	r, rest, err := parseReply(buf[:n], o)
	if err != nil {
		return reply{}, nil, err
	}
	return r, rest, r.refusal()
}

// outOfMemory is CUDA_ERROR_OUT_OF_MEMORY (cuda.h).
const outOfMemory = 2

// refusal is the client's word, if it isn't "done".
func (r reply) refusal() error {
	e := &helperapi.Error{Call: "libhetcuda " + r.op.String(), Code: int(r.status), Detail: r.text}
	switch {
	case r.status == 0:
		return nil
	case r.status > 0:
		e.Name = "CUresult"
		if r.status == outOfMemory {
			e.Class = helperapi.Class_CLASS_NO_MEMORY
		}
		return e
	}
	errno := syscall.Errno(-int64(r.status))
	if e.Name = unix.ErrnoName(errno); e.Name == "" {
		e.Name = "error"
	}
	if errno == unix.EAGAIN || errno == unix.ETIMEDOUT {
		e.Class = helperapi.Class_CLASS_NOT_READY
	}
	return e
}

func (c *Conn) send(b, oob []byte) error {
	n, oobn, err := c.sock.WriteMsgUnix(b, oob, nil)
	if err == nil && (n != len(b) || oobn != len(oob)) {
		err = io.ErrShortWrite
	}
	return err
}

// receive reads one packet and its descriptors, which the caller closes, also
// after an error.
func (c *Conn) receive(buf []byte) (n int, fds []int, err error) {
	oob := make([]byte, unix.CmsgSpace(4*batchSize))
	n, oobn, flags, _, err := c.sock.ReadMsgUnix(buf, oob)
	if err != nil {
		return 0, nil, err
	}
	if oobn > 0 {
		if fds, err = parseRights(oob[:oobn]); err != nil {
			return 0, nil, err
		}
	}
	if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		return 0, fds, fmt.Errorf("%w: a packet longer than %d bytes or with more than %d descriptors", errProtocol, len(buf), batchSize)
	}
	return n, fds, nil
}
