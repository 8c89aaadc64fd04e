// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/hetcuda"
)

// Conn is a connection to a keeper. What it has taken and not spent goes back
// with its end. Its methods may be called by any number of goroutines, and wait
// for one another.
type Conn struct {
	id string

	mu   sync.Mutex
	link link
}

// Connect connects to a keeper; without one its error is [gpuplugin.ErrNotKept] and has the
// reason.
func (h Home) Connect(ctx context.Context, id string) (*Conn, error) {
	if !IsID(id) {
		return nil, fmt.Errorf("%q is no keeper's name", id)
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unixpacket", h.socket(id))
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED) {
		return nil, h.ended(id)
	}
	if err != nil {
		return nil, err
	}
	c := &Conn{id: id, link: link{conn.(*net.UnixConn)}}
	if err := c.link.trusted(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Started returns the connection of who has started a keeper, when that listens.
// Until Confirm the keeper ends with it.
func Started(ctx context.Context, conn net.Conn, id string) (*Conn, error) {
	sock, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, fmt.Errorf("%s is not a unix socket", conn.LocalAddr().Network())
	}
	c := &Conn{id: id, link: link{sock}}
	return c, c.within(ctx, answerTimeout, func() error {
		_, err := c.answer()
		return err
	})
}

// ID is the keeper's name.
func (c *Conn) ID() string { return c.id }

// Close ends the connection.
func (c *Conn) Close() error { return c.link.sock.Close() }

// within makes one exchange.
func (c *Conn) within(ctx context.Context, limit time.Duration, f func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.link.within(ctx, limit, f)
	if errors.Is(err, io.EOF) || errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return fmt.Errorf("keeper %s has ended (%w): %w", c.id, err, gpuplugin.ErrNotKept)
	}
	if err != nil {
		return fmt.Errorf("keeper %s: %w", c.id, err)
	}
	return nil
}

// answer reads a reply.
func (c *Conn) answer() (r reply, err error) {
	if _, err := c.link.receive(&r, 0); err != nil {
		return r, err
	}
	return r, r.err()
}

// ask makes one request without memory.
func (c *Conn) ask(ctx context.Context, req request) (r reply, err error) {
	err = c.within(ctx, answerTimeout, func() error {
		if err := c.link.send(req); err != nil {
			return err
		}
		r, err = c.answer()
		return err
	})
	return r, err
}

// Status asks what is kept.
func (c *Conn) Status(ctx context.Context) (Status, error) {
	r, err := c.ask(ctx, request{Op: opStatus})
	if err == nil && r.Status == nil {
		err = errProtocol
	}
	if err != nil {
		return Status{}, err
	}
	return *r.Status, nil
}

// Give gives a new keeper what it is to keep, and a descriptor of each piece,
// which stay the caller's.
func (c *Conn) Give(ctx context.Context, m Memory, fds []int) error {
	if len(fds) != len(m.Pieces) {
		return fmt.Errorf("%d chunks, %d descriptors", len(m.Pieces), len(fds))
	}
	return c.within(ctx, moveTimeout, func() error {
		if err := c.link.send(request{Op: opGive, Processes: m.Processes, Pieces: len(m.Pieces)}); err != nil {
			return err
		}
		sendErr := c.link.sendMemory(m, fds)
		// Who refuses says why.
		_, err := c.answer()
		return errors.Join(err, sendErr)
	})
}

// Confirm says that the snapshot is complete: from now on the keeper depends on
// nobody.
func (c *Conn) Confirm(ctx context.Context) error {
	_, err := c.ask(ctx, request{Op: opConfirm})
	return err
}

// Take returns the memory, of that digest, and descriptors, which the caller
// closes. Nobody else can take it until the connection ends.
func (c *Conn) Take(ctx context.Context, digest, by string) (m Memory, fds []int, err error) {
	r, err := c.ask(ctx, request{Op: opTake, Digest: digest, By: by})
	if err == nil {
		err = c.within(ctx, moveTimeout, func() (err error) {
			m, fds, err = c.link.receiveMemory(r.Processes, r.Pieces)
			return err
		})
	}
	if err != nil {
		return Memory{}, nil, err
	}
	if got, err := m.Digest(); err != nil || got != digest {
		hetcuda.Discard(fds)
		return Memory{}, nil, errors.Join(fmt.Errorf("%w: it gave memory of the digest %s instead of %s", errProtocol, got, digest), err)
	}
	return m, fds, nil
}

// Use says whether what was taken may be changed from now on, or is as it was: if
// the connection ends while it may be, nobody can be given it any more.
func (c *Conn) Use(ctx context.Context, used bool) error {
	_, err := c.ask(ctx, request{Op: opUse, Used: used})
	return err
}

// Spend says that the memory that was taken is in use: the keeper lets go of it
// and ends, and says so to whoever asks for it later. When it returns, the keeper has let
// go of it, unless that takes long.
func (c *Conn) Spend(ctx context.Context, by string) error {
	_, err := c.ask(ctx, request{Op: opSpend, By: by})
	if err == nil {
		// All that is to come is the end of the connection.
		_ = c.within(ctx, letGoTimeout, func() error {
			_, err := c.answer()
			return err
		})
	}
	return err
}

// Drop has the keeper let go of the memory, which is lost then unless somebody
// else has it.
func (c *Conn) Drop(ctx context.Context, by string) error {
	_, err := c.ask(ctx, request{Op: opDrop, By: by})
	return err
}
