// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/hetcuda"
)

// keep is a keeper.
type keep struct {
	home  Home
	id    string
	label Label
	since time.Time

	mu sync.Mutex
	// given says that the memory is there, or on its way.
	given  bool // guarded by mu
	memory Memory
	fds    []int
	digest string
	// confirmed says that it depends on nobody.
	confirmed bool
	// taker is the connection that has taken the memory, and by whose it is.
	taker *link
	by    string
	// used says that it may be changing.
	used bool
	// over says that it is about to end; done is closed when it has.
	over bool
	done chan struct{}
}

// Serve is all of a keeper's life: it listens in the directory, tells its owner,
// and returns when it has let go of the memory. When the context ends it does
// that at once.
func Serve(ctx context.Context, home Home, id string, label Label, owner net.Conn) error {
	sock, ok := owner.(*net.UnixConn)
	if !ok || !IsID(id) {
		return fmt.Errorf("keeper %q of a %T", id, owner)
	}
	k := &keep{home: home, id: id, label: label, since: time.Now().UTC(), done: make(chan struct{})}
	own := &link{sock}
	listener, err := k.listen()
	if err != nil {
		return errors.Join(err, own.send(refused(err)))
	}
	defer func() { _ = listener.Close() }() // its file is gone by then
	if err := own.send(reply{}); err != nil {
		return err
	}
	go k.serve(ctx, own, true)
	go k.accept(ctx, listener)
	select {
	case <-k.done:
	case <-ctx.Done():
		k.end("the process that kept it was ended by a signal")
	}
	return nil
}

// listen makes the socket. What has its name is nobody's: names are random.
func (k *keep) listen() (*net.UnixListener, error) {
	if err := k.home.make(); err != nil {
		return nil, err
	}
	// The directory lets nobody else in, whatever the socket's mode is.
	return net.ListenUnix("unixpacket", &net.UnixAddr{Name: k.home.socket(k.id), Net: "unixpacket"})
}

// acceptPause is how long is waited after a failed accept: of descriptors, say.
const acceptPause = 100 * time.Millisecond

func (k *keep) accept(ctx context.Context, listener *net.UnixListener) {
	for {
		sock, err := listener.AcceptUnix()
		select {
		case <-k.done:
			return
		default:
		}
		if err != nil {
			select {
			case <-k.done:
				return
			case <-time.After(acceptPause):
			}
			continue
		}
		l := &link{sock}
		if err := l.trusted(); err != nil {
			_ = l.sock.Close() // it gets no answer
			continue
		}
		go k.serve(ctx, l, false)
	}
}

// serve answers one connection until its end.
func (k *keep) serve(ctx context.Context, l *link, owner bool) {
	defer k.left(l, owner)
	for {
		var req request
		if _, err := l.receive(&req, 0); err != nil {
			return
		}
		if err := k.answer(ctx, l, req, owner); err != nil {
			return
		}
	}
}

// left is after the end of a connection.
func (k *keep) left(l *link, owner bool) {
	_ = l.sock.Close() // the other side has closed it, or broken the protocol
	k.mu.Lock()
	why, ended := "", owner && !k.confirmed
	if k.taker == l {
		if k.used {
			why, ended = k.by+" was cut short, and may have changed it", true
		}
		k.taker, k.by = nil, ""
	}
	k.mu.Unlock()
	if ended {
		k.end(why)
	}
}

// answer fails if the connection can't be used any more.
func (k *keep) answer(ctx context.Context, l *link, req request, owner bool) error {
	switch req.Op {
	case opGive:
		return l.within(ctx, moveTimeout, func() error { return k.give(l, req) })
	case opTake:
		return l.within(ctx, moveTimeout, func() error { return k.take(l, req) })
	}
	return l.within(ctx, answerTimeout, func() error {
		switch req.Op {
		case opStatus:
			return l.send(reply{Status: k.status()})
		case opConfirm:
			return k.confirm(l, owner)
		case opUse:
			return k.say(l, k.use(l, req.Used))
		case opSpend:
			return k.spend(l, req.By)
		case opDrop:
			return k.drop(l, req.By)
		}
		return k.say(l, fmt.Errorf("%w: operation %q", errProtocol, req.Op))
	})
}

func (k *keep) say(l *link, err error) error {
	if err != nil {
		return l.send(refused(err))
	}
	return l.send(reply{})
}

// give receives the memory, once.
func (k *keep) give(l *link, req request) error {
	k.mu.Lock()
	second := k.given
	k.given = true
	k.mu.Unlock()
	if second {
		return errors.Join(k.say(l, fmt.Errorf("keeper %s keeps something already", k.id)), errProtocol)
	}
	memory, fds, err := l.receiveMemory(req.Processes, req.Pieces)
	digest := ""
	if err == nil {
		digest, err = memory.Digest()
	}
	k.mu.Lock()
	if err != nil {
		k.given = false
	} else {
		k.memory, k.fds, k.digest = memory, fds, digest
	}
	k.mu.Unlock()
	// It is to be small for as long as it lives.
	debug.FreeOSMemory()
	return errors.Join(k.say(l, err), err)
}

func (k *keep) status() *Status {
	k.mu.Lock()
	defer k.mu.Unlock()
	return &Status{
		ID: k.id, PID: os.Getpid(), Label: k.label, Since: k.since, Devices: k.memory.Devices(), Chunks: len(k.memory.Pieces),
		Confirmed: k.confirmed, By: k.by,
	}
}

// confirm makes it independent, if its owner is there to hear of it: one that has
// given up undoes what it began.
func (k *keep) confirm(l *link, owner bool) error {
	k.mu.Lock()
	var err error
	switch {
	case !owner:
		err = errors.New("only who started it can confirm it")
	case k.digest == "":
		err = errors.New("it has got no memory")
	}
	k.confirmed = k.confirmed || err == nil
	k.mu.Unlock()
	unheard := k.say(l, err)
	if unheard != nil && owner {
		k.mu.Lock()
		k.confirmed = false
		k.mu.Unlock()
	}
	return unheard
}

// take lends the memory to a connection.
func (k *keep) take(l *link, req request) error {
	k.mu.Lock()
	err := k.mayTakeLocked(req.Digest)
	if err == nil {
		k.taker, k.by = l, req.By
	}
	memory, fds := k.memory, k.fds
	k.mu.Unlock()
	if err != nil {
		return k.say(l, err)
	}
	if err := l.send(reply{Processes: memory.Processes, Pieces: len(memory.Pieces)}); err != nil {
		return err
	}
	return l.sendMemory(memory, fds)
}

func (k *keep) mayTakeLocked(digest string) error {
	switch {
	case k.over:
		return gpuplugin.ErrNotKept
	case !k.confirmed:
		return errors.New("the checkpoint has not come to its end")
	case k.taker != nil:
		return fmt.Errorf("%w: %s", ErrLent, k.by)
	case k.digest != digest:
		return fmt.Errorf("keeper %s has other memory than the snapshot says (digest %s, not %s)", k.id, k.digest, digest)
	}
	return nil
}

var (
	errNotTaken = errors.New("it was not taken by this connection")
	errSpent    = errors.New("it was spent")
)

// use notes whether the memory may be changed by who has taken it.
func (k *keep) use(l *link, used bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.taker != l {
		return errNotTaken
	}
	k.used = used
	return nil
}

// spend ends it, if the taker is there to hear of it: one that has given up
// would not know that the memory is gone.
func (k *keep) spend(l *link, by string) error {
	k.mu.Lock()
	mine := k.taker == l && !k.over
	k.over = k.over || mine
	k.mu.Unlock()
	if !mine {
		return k.say(l, errNotTaken)
	}
	if err := k.say(l, nil); err != nil {
		k.mu.Lock()
		k.over = false
		k.mu.Unlock()
		return err
	}
	k.end(by)
	return errSpent // the end of the connection says that the memory is free
}

func (k *keep) drop(l *link, by string) error {
	k.mu.Lock()
	var err error
	if k.taker != nil && k.taker != l {
		err = fmt.Errorf("%w: %s", ErrLent, k.by)
	}
	k.over = k.over || err == nil
	k.mu.Unlock()
	if err != nil {
		return k.say(l, err)
	}
	// Whether the answer is heard or not.
	said := k.say(l, nil)
	k.end(by)
	return said
}

// end lets go of the memory and leaves a note of why, which lasts until the next
// boot. A snapshot that was never complete needs none.
func (k *keep) end(why string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	select {
	case <-k.done:
		return
	default:
	}
	k.over = true
	if k.confirmed && why != "" {
		text := fmt.Sprintf("%s (%s)\n", why, time.Now().UTC().Format(time.RFC3339))
		// Without it the reason is not known, and all else is the same.
		_ = os.WriteFile(k.home.note(k.id), []byte(text), 0o600)
	}
	_ = os.Remove(k.home.socket(k.id))
	hetcuda.Discard(k.fds)
	k.fds = nil
	close(k.done)
}
