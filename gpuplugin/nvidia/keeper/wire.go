// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/hetcuda"
)

// What is sent are packets of JSON (SOCK_SEQPACKET): a request, its reply, and
// for memory as many packets of pieces as it takes, each with a descriptor for
// every piece. Both sides are of one version: a keeper says its own first.

const (
	// batch is how many pieces are in a packet: Linux passes at most 253
	// descriptors at once (SCM_MAX_FD).
	batch = 64
	// maxPacket is more than they take.
	maxPacket = 64 << 10
	maxPieces = hetcuda.MaxChunks
	// maxProcesses is what a manifest may have.
	maxProcesses = 1 << 16

	// answerTimeout is for what a keeper answers from its tables.
	answerTimeout = 10 * time.Second
	// moveTimeout is for all descriptors: a few milliseconds for hundreds.
	moveTimeout = time.Minute
)

// letGoTimeout is for what a keeper does between its last answer and its end. Tests
// change it.
var letGoTimeout = time.Second

// op is what is asked for.
type op string

const (
	opStatus  op = "status"
	opGive    op = "give"
	opConfirm op = "confirm"
	opTake    op = "take"
	opUse     op = "use"
	opSpend   op = "spend"
	opDrop    op = "drop"
)

type request struct {
	Op op `json:"op"`
	// Processes and Pieces are how much follows, with opGive.
	Processes int `json:"processes,omitempty"`
	Pieces    int `json:"pieces,omitempty"`
	// Digest is of the memory that is wanted, with opTake.
	Digest string `json:"digest,omitempty"`
	// Used is what opUse says.
	Used bool `json:"used,omitempty"`
	// By says who it is, for people.
	By string `json:"by,omitempty"`
}

type reply struct {
	// Error is why not; Class is one of the words below.
	Error string `json:"error,omitempty"`
	Class string `json:"class,omitempty"`

	Status    *Status `json:"status,omitempty"`
	Processes int     `json:"processes,omitempty"`
	Pieces    int     `json:"pieces,omitempty"`
}

const (
	classGone = "gone"
	classLent = "lent"
)

var errProtocol = errors.New("not the protocol of a keeper; is it of another version?")

func refused(err error) reply {
	r := reply{Error: err.Error()}
	switch {
	case errors.Is(err, gpuplugin.ErrNotKept):
		r.Class = classGone
	case errors.Is(err, ErrLent):
		r.Class = classLent
	}
	return r
}

// err is what the other side said, with its class.
func (r reply) err() error {
	switch {
	case r.Error == "":
		return nil
	case r.Class == classGone:
		return &said{r.Error, gpuplugin.ErrNotKept}
	case r.Class == classLent:
		return &said{r.Error, ErrLent}
	}
	return &said{r.Error, nil}
}

// said is an error of the other side.
type said struct {
	text  string
	class error
}

func (e *said) Error() string { return e.text }
func (e *said) Unwrap() error { return e.class }

// link is one end of a connection.
type link struct{ sock *net.UnixConn }

// trusted fails unless the other end is root's, or of the own user.
func (l link) trusted() error {
	raw, err := l.sock.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) { cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	switch {
	case err != nil || credErr != nil:
		return errors.Join(err, credErr)
	case cred.Uid != 0 && int(cred.Uid) != os.Geteuid():
		return fmt.Errorf("the other end is user %d, not root", cred.Uid)
	}
	return nil
}

// within runs f with a deadline, and ends it with the context.
func (l link) within(ctx context.Context, limit time.Duration, f func() error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %v: %w", limit, context.DeadlineExceeded))
	defer cancel()
	if err := l.sock.SetDeadline(time.Time{}); err != nil {
		return err
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = l.sock.SetDeadline(time.Unix(1, 0))
		close(ended)
	})
	err := f()
	if !stop() {
		<-ended
	}
	var other *said
	if err != nil && ctx.Err() != nil && !errors.As(err, &other) {
		return context.Cause(ctx)
	}
	return err
}

func (l link) send(v any, fds ...int) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	n, oobn, err := l.sock.WriteMsgUnix(data, oob, nil)
	if err == nil && (n != len(data) || oobn != len(oob)) {
		err = io.ErrShortWrite
	}
	return err
}

// receive reads one packet, and the descriptors that came with it, of which
// there have to be so many.
func (l link) receive(v any, want int) (fds []int, err error) {
	buf, oob := make([]byte, maxPacket), make([]byte, unix.CmsgSpace(4*batch))
	n, oobn, flags, _, err := l.sock.ReadMsgUnix(buf, oob)
	if err == nil && n == 0 && oobn == 0 {
		err = io.EOF
	}
	if err != nil {
		return nil, err
	}
	if oobn > 0 {
		if fds, err = rights(oob[:oobn]); err != nil {
			return nil, err
		}
	}
	if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 || len(fds) != want {
		err = fmt.Errorf("%w: %d bytes with %d descriptors, not %d (are too many files open?)", errProtocol, n, len(fds), want)
	} else if bad := json.Unmarshal(buf[:n], v); bad != nil {
		err = fmt.Errorf("%w: %w", errProtocol, bad)
	}
	if err != nil {
		hetcuda.Discard(fds)
		return nil, err
	}
	return fds, nil
}

// rights takes the descriptors out of control messages.
func rights(oob []byte) (fds []int, err error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	for i := range messages {
		got, bad := unix.ParseUnixRights(&messages[i])
		fds, err = append(fds, got...), errors.Join(err, bad)
	}
	if err != nil {
		hetcuda.Discard(fds)
		return nil, fmt.Errorf("%w: control messages: %w", errProtocol, err)
	}
	return fds, nil
}

// sendMemory sends pieces with their descriptors, which stay the caller's.
func (l link) sendMemory(m Memory, fds []int) error {
	for first := 0; first < len(m.Pieces); first += batch {
		end := min(first+batch, len(m.Pieces))
		if err := l.send(m.Pieces[first:end], fds[first:end]...); err != nil {
			return err
		}
	}
	return nil
}

// receiveMemory is the other side of sendMemory; the caller closes fds.
func (l link) receiveMemory(processes, pieces int) (m Memory, fds []int, err error) {
	if processes < 0 || processes > maxProcesses || pieces < 0 || pieces > maxPieces {
		return m, nil, fmt.Errorf("%w: %d chunks of %d processes", errProtocol, pieces, processes)
	}
	m = Memory{Processes: processes, Pieces: []Piece{}}
	for len(m.Pieces) < pieces && err == nil {
		var some []Piece
		var got []int
		got, err = l.receive(&some, min(batch, pieces-len(m.Pieces)))
		if err == nil && len(some) != len(got) {
			err = fmt.Errorf("%w: %d chunks with %d descriptors", errProtocol, len(some), len(got))
		}
		m.Pieces, fds = append(m.Pieces, some...), append(fds, got...)
	}
	if err == nil {
		err = m.validate()
	}
	if err != nil {
		hetcuda.Discard(fds)
		return Memory{}, nil, err
	}
	return m, fds, nil
}
