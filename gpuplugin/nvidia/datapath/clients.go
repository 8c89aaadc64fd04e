// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/containerd/log"
	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/hetcuda"
)

var states = map[hetcuda.State]nvidia.ClientState{
	hetcuda.Running: nvidia.ClientRunning,
	hetcuda.Held:    nvidia.ClientHeld,
	hetcuda.Parked:  nvidia.ClientParked,
	// By a HoldTogether that is under way.
	hetcuda.Stepped: nvidia.ClientRunning,
}

// Clients implements nvidia.Mover.
func (m *Mover) Clients(ctx context.Context, dir string) ([]nvidia.Client, error) {
	held := m.holdingIn(dir)
	conns, err := hetcuda.Connect(ctx, dir, held...)
	if err != nil {
		return nil, err
	}
	defer closeAll(conns)
	conns = append(conns, held...)
	clients := make([]nvidia.Client, len(conns))
	err = inParallel(indices(conns), func(i int) error {
		h, err := m.hello(ctx, dir, conns[i])
		if errors.Is(err, helperapi.ErrGone) {
			return nil
		}
		clients[i] = nvidia.Client{
			PID: conns[i].PID(), State: states[h.State], Version: h.Version, Build: h.Build,
			Driver: h.Driver, Chunks: h.Chunks, Bytes: h.Bytes, Steps: h.Steps(), Detail: h.Detail,
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	seen := map[int]bool{0: true}
	there := clients[:0]
	for _, c := range clients {
		if !seen[c.PID] {
			seen[c.PID] = true
			there = append(there, c)
		}
	}
	return there, nil
}

func indices[T any](s []T) []int {
	out := make([]int, len(s))
	for i := range s {
		out[i] = i
	}
	return out
}

// hello asks a process, and forgets a connection that held it and is broken.
func (m *Mover) hello(ctx context.Context, dir string, c *hetcuda.Conn) (hetcuda.Hello, error) {
	h, err := c.Hello(ctx)
	if key := (client{dir, c.PID()}); lost(err) && m.holding(key) == c {
		m.lose(ctx, key, c, err)
	}
	return h, err
}

// lost tells whether a connection is, by its error.
func lost(err error) bool {
	_, is := errors.AsType[*hetcuda.LostError](err)
	return is
}

// holdingIn are the connections that hold processes of one directory.
func (m *Mover) holdingIn(dir string) []*hetcuda.Conn {
	m.mu.Lock()
	defer m.mu.Unlock()
	var held []*hetcuda.Conn
	for key, c := range m.held {
		if key.dir == dir {
			held = append(held, c)
		}
	}
	return held
}

func closeAll(conns []*hetcuda.Conn) {
	for _, c := range conns {
		c.Close()
	}
}

func (m *Mover) holding(key client) *hetcuda.Conn {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.held[key]
}

// mustHold is the connection that holds a process, which an operation needs.
func (m *Mover) mustHold(key client, call string) (*hetcuda.Conn, error) {
	if held := m.holding(key); held != nil {
		return held, nil
	}
	if hetcuda.Gone(key.pid) {
		return nil, &helperapi.Error{Class: helperapi.Class_CLASS_GONE, Call: call, Detail: fmt.Sprintf("process %d has ended", key.pid)}
	}
	return nil, &helperapi.Error{Class: helperapi.Class_CLASS_ILLEGAL_STATE, Call: call, Detail: fmt.Sprintf("process %d is not held", key.pid)}
}

// letGo ends a connection, and with it what it holds.
func (m *Mover) letGo(key client, c *hetcuda.Conn) {
	if m.hangUp(key, c) {
		m.free(key)
	}
}

// hangUp ends a connection, and tells whether it held its process. What that does then
// is for the caller to find out.
func (m *Mover) hangUp(key client, c *hetcuda.Conn) bool {
	c.Close()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.held[key] != c {
		return false
	}
	delete(m.held, key)
	m.enterLocked()
	m.leaveLocked()
	return true
}

// lose forgets a connection that is broken.
func (m *Mover) lose(ctx context.Context, key client, c *hetcuda.Conn, err error) {
	m.hangUp(key, c)
	if !m.lentTo(key) {
		return
	}
	if fate, _ := m.fateOf(ctx, key, c.Socket(), err); fate == unknown || fate == goesOn {
		m.free(key)
	}
}

// fate is what has become of a process whose connection was lost.
type fate int

const (
	unknown fate = iota
	// goesOn has its memory, and its gate is open.
	goesOn
	// waits has no memory, and wants it.
	waits
	// ended is not there any more.
	ended
)

// fateOf asks what has become of a process whose connection ended by an error. Memory that
// a keeper lends it is as it was if it has died with its gate closed, or has nothing any
// more. The error is why it is not known.
func (m *Mover) fateOf(ctx context.Context, key client, known hetcuda.Socket, err error) (fate, error) {
	if errors.Is(err, helperapi.ErrGone) {
		if !hungUp(err) { // we did, and it may have gone on until its end
			m.free(key)
		}
		m.without(key)
		return ended, nil
	}
	state, stateErr := m.stateOf(context.WithoutCancel(ctx), key, known)
	switch {
	case stateErr == nil && state == hetcuda.Parked:
		m.without(key)
		return waits, nil
	case stateErr == nil:
		return goesOn, nil
	case dies(ctx, key.pid, err):
		m.without(key)
		return ended, nil
	}
	return unknown, stateErr
}

// keep keeps a connection that holds its process.
func (m *Mover) keep(key client, c *hetcuda.Conn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held[key] = c
}

// connect connects to one process, whose socket may be known.
func (m *Mover) connect(ctx context.Context, key client, known hetcuda.Socket) (*hetcuda.Conn, error) {
	c, err := hetcuda.ConnectTo(ctx, key.dir, key.pid, known, m.holdingIn(key.dir)...)
	if err == nil && c == nil {
		err = &helperapi.Error{Class: helperapi.Class_CLASS_NO_STATE, Call: "libhetcuda", Detail: fmt.Sprintf("process %d does not listen in %s", key.pid, key.dir)}
	}
	return c, err
}

// Hold implements nvidia.Mover.
func (m *Mover) Hold(ctx context.Context, dir string, pid int, timeout time.Duration) error {
	key := client{dir, pid}
	if m.stillHeld(ctx, key) {
		return nil
	}
	c, err := m.connect(ctx, key, hetcuda.Socket{})
	if err != nil {
		return err
	}
	if err := c.Hold(ctx, timeout); err != nil {
		c.Close()
		return err
	}
	m.keep(key, c)
	return nil
}

// HoldTogether implements nvidia.Mover.
func (m *Mover) HoldTogether(ctx context.Context, dir string, pids []int, timeout time.Duration) (err error) {
	var conns []*hetcuda.Conn
	defer func() {
		if err != nil { // all at once: they may wait for one another
			_ = inParallel(conns, func(c *hetcuda.Conn) error { c.Close(); return nil })
		}
	}()
	for _, pid := range pids {
		key := client{dir, pid}
		if m.stillHeld(ctx, key) {
			continue
		}
		c, err := m.connect(ctx, key, hetcuda.Socket{})
		if err != nil {
			return err
		}
		conns = append(conns, c)
	}
	if err := hetcuda.HoldTogether(ctx, conns, timeout); err != nil {
		return err
	}
	for _, c := range conns {
		m.keep(client{dir, c.PID()}, c)
	}
	return nil
}

// stillHeld tells whether a process is held by us, and forgets a connection that
// is broken.
func (m *Mover) stillHeld(ctx context.Context, key client) bool {
	held := m.holding(key)
	if held == nil {
		return false
	}
	h, err := held.Hello(ctx)
	if err == nil && h.State != hetcuda.Running || err != nil && !lost(err) {
		return true
	}
	if err != nil {
		m.lose(ctx, key, held, err)
	} else {
		m.letGo(key, held)
	}
	return false
}

// Release implements nvidia.Mover.
func (m *Mover) Release(ctx context.Context, dir string, pid int) error {
	key := client{dir, pid}
	held := m.holding(key)
	if held == nil {
		return nil
	}
	if err := m.forget(m.uncommitted(key)); err != nil {
		log.G(ctx).WithError(err).Warn("memory that was to be parked is still held here")
	}
	// The end of the connection does it too, but only this is answered when it
	// is done.
	err := held.Release(ctx)
	if err != nil {
		if h, helloErr := held.Hello(ctx); helloErr == nil && h.State == hetcuda.Held {
			// It would go on with the end of the connection.
			return &helperapi.Error{Class: helperapi.Class_CLASS_DAMAGED, Call: "release", Detail: fmt.Sprintf("the memory of process %d is not where its program looks for it: %v", key.pid, err)}
		}
	}
	m.letGo(key, held)
	if lost(err) {
		return nil
	}
	return err
}

// uncommitted are the parcels of memory that a process has not let go of.
func (m *Mover) uncommitted(key client) (parcels []*parcel) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.parcels {
		if p.busy == "" && p.taken() && !p.parked && p.from == key {
			p.busy = "release"
			parcels = append(parcels, p)
		}
	}
	return parcels
}

// Park implements nvidia.Mover.
func (m *Mover) Park(ctx context.Context, req nvidia.ParkRequest) (nvidia.Parked, error) {
	key := client{req.Dir, req.PID}
	held, err := m.mustHold(key, "park")
	if err != nil {
		return nvidia.Parked{}, err
	}
	parcels, err := m.claim("park", req.Parcel)
	if err != nil {
		return nvidia.Parked{}, err
	}
	defer m.end(parcels)
	p := parcels[0]
	p.from, p.nonce = key, m.newNonce()
	chunks, fds, err := m.parkInTurn(ctx, held, p, slices.Collect(maps.Keys(req.Devices)))
	if err != nil {
		return nvidia.Parked{}, errors.Join(m.parkFailed(key, held, err), m.forget(parcels))
	}
	for i, c := range chunks {
		p.pieces = append(p.pieces, piece{chunk: c, device: uuidOf(c.Device), fd: fds[i]})
	}
	p.limits, p.socket = req.Devices, held.Socket()
	m.owe(p)
	parked := nvidia.Parked{Chunks: len(chunks)}
	if parked.Bytes, err = p.bytes(); err != nil {
		return nvidia.Parked{}, errors.Join(err, m.forget(parcels))
	}
	return parked, nil
}

// parkInTurn asks a process for its memory. What it has got back before as it was it
// copies first, which takes room: if there was none it is asked once more, alone.
func (m *Mover) parkInTurn(ctx context.Context, held *hetcuda.Conn, p *parcel, devices []string) (chunks []hetcuda.Chunk, fds []int, err error) {
	for _, alone := range []bool{false, true} {
		done, turnErr := m.turns.take(ctx, devices, alone)
		if turnErr != nil {
			return nil, nil, errors.Join(err, turnErr)
		}
		chunks, fds, err = held.Park(ctx, func(chunks int) error { return m.admit(p, chunks) })
		done()
		if !errors.Is(err, helperapi.ErrNoDeviceMemory) {
			break
		}
	}
	return chunks, fds, err
}

func (m *Mover) newNonce() hetcuda.Nonce {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.places++
	return hetcuda.NewNonce(m.places)
}

// Commit implements nvidia.Mover.
func (m *Mover) Commit(ctx context.Context, names []string) error {
	parcels, err := m.begin("commit", m.there(names)...)
	if err != nil {
		return err
	}
	defer m.end(parcels)
	if err := m.identify(ctx, parcels); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// From here on what the processes do is waited for, or their memory would be
	// lost between the two.
	ctx = context.WithoutCancel(ctx)
	return inParallel(parcels, func(p *parcel) error { return m.commit(ctx, p) })
}

// there are those of the names that there is a parcel of.
func (m *Mover) there(names []string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return m.parcels[name] == nil })
}

func (m *Mover) commit(ctx context.Context, p *parcel) (err error) {
	held, err := m.mustHold(p.from, "commit")
	if err != nil {
		return err
	}
	p.trimmed, err = held.Commit(ctx)
	if lost(err) && !errors.Is(err, helperapi.ErrGone) {
		m.letGo(p.from, held)
		switch fate, why := m.fateOf(ctx, p.from, p.socket, err); fate {
		case unknown:
			// It may have let go of it, so it is kept, and can be given back.
			p.parked = true
			return errors.Join(fmt.Errorf("it can't be told whether process %d still has its memory; parcel %q is kept: %w", p.from.pid, p.name, err), why)
		case waits:
			err = nil
		}
	}
	if errors.Is(err, helperapi.ErrGone) {
		m.letGo(p.from, held)
		return m.forget([]*parcel{p})
	}
	if err != nil {
		m.unsettle(p)
		return errors.Join(m.parkFailed(p.from, held, err), m.forget([]*parcel{p}))
	}
	p.parked = true
	m.letGo(p.from, held)
	return nil
}

// parkFailed keeps a hold that there still is.
func (m *Mover) parkFailed(key client, held *hetcuda.Conn, err error) error {
	if lost(err) {
		m.letGo(key, held)
	}
	return err
}

// stateOf asks a process anew, by a connection of its own.
func (m *Mover) stateOf(ctx context.Context, key client, known hetcuda.Socket) (hetcuda.State, error) {
	c, err := m.connect(ctx, key, known)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	h, err := c.Hello(ctx)
	return h.State, err
}

// Unpark implements nvidia.Mover.
func (m *Mover) Unpark(ctx context.Context, dir string, pid int, name string) error {
	p, end, err := m.beginReturn("unpark", name)
	if err != nil {
		return err
	}
	defer end()
	if p.damage != nil {
		return p.damage
	}
	if p.taken() && !p.parked {
		return m.forget([]*parcel{p}) // the process never let go of it
	}
	for i := range p.pieces {
		if p.pieces[i].fd < 0 {
			return &helperapi.Error{Class: helperapi.Class_CLASS_ILLEGAL_STATE, Call: "unpark", Detail: fmt.Sprintf("parcel %q was given back already", name)}
		}
	}
	key := client{dir, pid}
	c := m.holding(key)
	if c == nil {
		if c, err = m.connect(ctx, key, p.socket); err != nil {
			return m.unreached(p, pid, err)
		}
	}
	if err := m.use(ctx, name, true); err != nil {
		m.letGo(key, c)
		return err
	}
	err = m.give(ctx, c, p)
	switch {
	case err == nil:
		m.keep(key, c)
		m.given(name, key, gateClosed)
	case lost(err):
		m.hangUp(key, c)
		if done, err := m.lostWhileGiving(ctx, key, p, err); !done {
			return err
		}
	case errors.Is(err, errRefused):
		m.keep(key, c) // it has what it has made, and others may have that by now
		m.given(name, key, p.waiting())
		return err
	case errors.Is(err, errWaits), errors.Is(err, errShare):
		m.keep(key, c)
		m.given(name, key, p.waiting())
		return &helperapi.Error{Class: helperapi.Class_CLASS_NOT_READY, Call: "unpark", Detail: fmt.Sprintf("parcel %q: %v", name, err)}
	default:
		m.letGo(key, c)
		m.undone(p)
		m.unlessParked(ctx, key, p)
		return err
	}
	// The process has it. That our own view can't be closed is no error of its.
	if !p.duplicated {
		err = m.forget([]*parcel{p})
	} else {
		err = m.giveUp(p)
	}
	if err != nil {
		log.G(ctx).WithError(err).Warn("memory that was given back is still mapped here")
	}
	return m.own(ctx, key, p)
}

// unreached is the error of a process that can't be connected to. One that has ended
// needs nothing, and those that wait for what it has made get it as it was.
func (m *Mover) unreached(p *parcel, pid int, err error) error {
	if !hetcuda.Gone(pid) {
		return notYet(err)
	}
	gone := &helperapi.Error{Class: helperapi.Class_CLASS_GONE, Call: "unpark", Detail: err.Error()}
	return errors.Join(gone, m.settle(p, nil))
}

// lostWhileGiving finds out what has become of a process that gave no answer. done
// says that it has its memory. One that is gone is an error: whose memory is there
// once, a keeper's, must not be taken for given.
func (m *Mover) lostWhileGiving(ctx context.Context, key client, p *parcel, err error) (done bool, _ error) {
	switch fate, why := m.fateOf(ctx, key, p.socket, err); fate {
	case ended:
		return false, errors.Join(err, m.settle(p, nil))
	case waits:
		m.undone(p)
		return false, cmp.Or(p.damage, notYet(err))
	case unknown:
		m.given(p.name, key, gateOpen)
		return false, notYet(errors.Join(err, why))
	}
	m.wentOn(key, p)
	return true, nil
}

// unlessParked asks a process that did not take its memory whether that is since it has
// it: an answer that came too late was lost. Those that wait for what it has made would
// wait for ever.
func (m *Mover) unlessParked(ctx context.Context, key client, p *parcel) {
	state, err := m.stateOf(context.WithoutCancel(ctx), key, p.socket)
	if err != nil {
		return
	}
	if state == hetcuda.Parked {
		m.without(key)
		return
	}
	m.wentOn(key, p)
}

// wentOn notes that a process has its memory, and was not heard to say so.
func (m *Mover) wentOn(key client, p *parcel) {
	m.given(p.name, key, gateOpen)
	if !p.handedOver && !m.asIs(p) {
		m.breakOff(p)
	}
}

// dies tells of a process that has hung up and does not answer anew whether that
// was its end, which takes a moment.
func dies(ctx context.Context, pid int, err error) bool {
	if !hungUp(err) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, deathTimeout)
	defer cancel()
	return hetcuda.AwaitEnd(ctx, pid) == nil
}

// hungUp tells whether it was the process that ended a connection.
func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE)
}

// taken tells whether a parcel was taken out of a process.
func (p *parcel) taken() bool { return p.limits != nil }

// errWaits means that a process has what it has made, and not yet what others have.
var errWaits = errors.New("it waits for memory that other processes have made")

// give gives a process what it has made, and then what others have, if they have it
// back.
func (m *Mover) give(ctx context.Context, c *hetcuda.Conn, p *parcel) error {
	imported := p.chunksOf(true)
	if p.givenBy != nil && p.givenBy != c {
		m.undone(p) // with the connection
		if p.damage != nil {
			return p.damage
		}
	}
	if p.givenBy == nil {
		if err := m.refill(ctx, c, p); err != nil {
			return err
		}
		made := p.chunksOf(false)
		if len(made.chunks) > 0 || len(imported.chunks) == 0 {
			flag := m.howTaken(p)
			for i := range made.chunks {
				made.chunks[i].Flags |= flag
			}
			missing, err := c.Unpark(ctx, made.chunks, made.fds)
			if err == nil && missing != len(imported.chunks) {
				err = fmt.Errorf("process %d says that %d chunks are to come, and there are %d", c.PID(), missing, len(imported.chunks))
			}
			if err != nil {
				return err
			}
		}
		p.givenBy = c
	}
	// It may run by now if it is left alone.
	ctx = context.WithoutCancel(ctx)
	if err := m.handOver(ctx, c, p); err != nil {
		return err
	}
	if len(imported.chunks) == 0 {
		return nil
	}
	if err := m.waits(p); err != nil {
		return err
	}
	missing, err := c.Unpark(ctx, imported.chunks, imported.fds)
	if err == nil && missing != 0 {
		err = fmt.Errorf("process %d says that %d chunks are to come, and there are none", c.PID(), missing)
	}
	if err != nil && !lost(err) {
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	return err
}

// errRefused means that a process has what it has made, and did not take what others
// have: it may the next time.
var errRefused = errors.New("it did not take memory that other processes have made")

// waiting is what a process is that has what it has made of a parcel: parked still, if
// others have made some of it.
func (p *parcel) waiting() gate {
	if len(p.chunksOf(true).chunks) > 0 {
		return stillParked
	}
	return gateClosed
}

// undone notes that a process has nothing again. What others have got of it they
// would not share with it any more.
func (m *Mover) undone(p *parcel) {
	p.givenBy = nil
	if p.handedOver {
		p.damage = &helperapi.Error{
			Class: helperapi.Class_CLASS_DAMAGED, Call: "unpark",
			Detail: fmt.Sprintf("parcel %q: other processes have memory of it already, which this one can't be given any more", p.name),
		}
	}
}

// some are chunks with their descriptors.
type some struct {
	chunks []hetcuda.Chunk
	fds    []int
}

func (p *parcel) chunksOf(imported bool) (s some) {
	for i := range p.pieces {
		if piece := &p.pieces[i]; piece.same != nil == imported {
			s.chunks, s.fds = append(s.chunks, piece.chunk), append(s.fds, piece.fd)
		}
	}
	return s
}

// notYet says of an error that the next try may do better: the process was not
// reached, or gave no answer. Where nobody listens none will.
func notYet(err error) error {
	class := helperapi.Class_CLASS_NOT_READY
	switch {
	case errors.Is(err, helperapi.ErrGone):
		return err
	case errors.Is(err, helperapi.ErrNoState):
		class = helperapi.Class_CLASS_OTHER
	}
	return &helperapi.Error{Class: class, Call: "unpark", Detail: err.Error()}
}
