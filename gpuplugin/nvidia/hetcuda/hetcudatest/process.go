// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package hetcudatest is the other side of the control protocol for tests: a
// process with device memory as libhetcuda would have it, made of memfds. It
// encodes the protocol by itself, as the C header describes it.
package hetcudatest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// The operations and states of the protocol.
const (
	Hello   = 1
	Hold    = 2
	Park    = 3
	Commit  = 4
	Unpark  = 5
	Release = 6
	Step    = 7
	Status  = 8
	Mark    = 9
	Share   = 10
	Own     = 11
	Make    = 12

	Running = 0
	Held    = 1
	Parked  = 2
	Stepped = 3
)

const (
	magic     = 0x31637468
	batch     = 64
	chunkLen  = 48
	replyLen  = 240
	requested = 16

	exported, imported = 1, 2
	asIs, later        = 4, 8
	// outOfMemory is CUDA_ERROR_OUT_OF_MEMORY (cuda.h).
	outOfMemory = 2
)

// Chunk is device memory of a [Process].
type Chunk struct {
	ID, Address, Size uint64
	Device            [16]byte
	// FD is a memfd; -1 while the process is parked.
	FD int
	// Flags say who else has it.
	Flags uint32
}

// Process is a process that runs libhetcuda. Its PID is the test's own.
type Process struct {
	tb       testing.TB
	listener *net.UnixListener

	mu     sync.Mutex
	state  uint32
	chunks []Chunk
	conns  int
	// open are the connections that there are, until the end of the test.
	open map[*net.UnixConn]bool
	over bool
	// protocol is the library's.
	protocol uint32
	// work is how many steps it takes until its device is at rest.
	work   uint32
	before map[uint32]func(c *net.UnixConn) bool
	// trimmed is what COMMIT's reply says, in MiB.
	trimmed uint32
	// refusals is how many UNPARKs are refused, and borrowed which chunks were taken as
	// they are. room is for how many bytes OWN has room.
	refusals int
	borrowed map[uint64]bool
	room     uint64
	// moved says that it can't use what it has not made, and made is what it has, by chunk.
	moved bool
	made  map[uint64]int
	// crowded is how many PARKs find no room.
	crowded int
	// hole says that some memory is not where the program looks for it.
	hole bool
	// nonce is the peer's, and unmarked what was where marks are, by chunk.
	nonce    uint64
	unmarked map[uint64][]byte
}

// Start has a process listen in a directory.
func Start(tb testing.TB, dir string, chunks ...Chunk) *Process {
	tb.Helper()
	p := &Process{tb: tb, chunks: chunks, before: map[uint32]func(*net.UnixConn) bool{}, unmarked: map[uint64][]byte{}, borrowed: map[uint64]bool{}, room: 1 << 40, protocol: 5, made: map[uint64]int{}, open: map[*net.UnixConn]bool{}}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Net: "unixpacket", Name: filepath.Join(dir, "hetcuda."+fmt.Sprint(os.Getpid()))})
	if err != nil {
		tb.Fatal(err)
	}
	p.listener = l
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			p.serve(c)
		}
	})
	tb.Cleanup(func() {
		_ = l.Close()
		p.hangUp() // a test that has failed leaves some
		wg.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, c := range p.chunks {
			if c.FD >= 0 {
				_ = unix.Close(c.FD)
			}
		}
	})
	return p
}

// NewChunk makes one whose contents are data.
func NewChunk(tb testing.TB, id, address uint64, device [16]byte, data []byte) Chunk {
	tb.Helper()
	fd, err := unix.MemfdCreate("chunk", unix.MFD_CLOEXEC)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := unix.Pwrite(fd, data, 0); err != nil {
		tb.Fatal(err)
	}
	return Chunk{ID: id, Address: address, Size: uint64(len(data)), Device: device, FD: fd}
}

// Add gives the process one more chunk.
func (p *Process) Add(c Chunk) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.chunks = append(p.chunks, c)
}

// Before has f called before an operation is answered, with the connection; the
// operation is done as ever if f returns true, and the connection closed if not.
func (p *Process) Before(op uint32, f func(c *net.UnixConn) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.before[op] = f
}

// SetProtocol makes it one of another protocol, 1 to 5, or one that only says so.
func (p *Process) SetProtocol(n uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.protocol = n
}

// Refuse has it refuse so many UNPARKs.
func (p *Process) Refuse(times int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusals = times
}

// RefuseParks has it refuse so many PARKs, for want of device memory.
func (p *Process) RefuseParks(times int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.crowded = times
}

// SetRoom says how large a chunk OWN has room for.
func (p *Process) SetRoom(bytes uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.room = bytes
}

// SetMoved makes it a process that the driver has moved to other devices.
func (p *Process) SetMoved(moved bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.moved = moved
}

// SetHole says whether some of its memory is not where its program looks for it.
func (p *Process) SetHole(hole bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hole = hole
}

// Borrowed are the numbers of the chunks that are the peer's memory.
func (p *Process) Borrowed() []uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.borrowed))
}

// SetBusy has its device work on until so many steps were allowed.
func (p *Process) SetBusy(steps uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.work = steps
}

// State is what HELLO would say.
func (p *Process) State() uint32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

// Connections is how many have been accepted.
func (p *Process) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conns
}

// SetState makes it another state; a process that is parked has no memory.
func (p *Process) SetState(state uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state = state; state == Parked {
		p.letGo()
	}
}

// Read returns the contents of a chunk.
func (p *Process) Read(id uint64) []byte {
	p.tb.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.chunks {
		if c.ID == id && c.FD >= 0 {
			data := make([]byte, c.Size)
			if n, err := unix.Pread(c.FD, data, 0); err != nil || n != len(data) {
				p.tb.Errorf("chunk %d: %d bytes, %v", id, n, err)
			}
			return data
		}
	}
	p.tb.Errorf("the process has no chunk %d", id)
	return nil
}

// Write changes the contents of a chunk.
func (p *Process) Write(id uint64, data []byte, at int64) {
	p.tb.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.chunks {
		if c.ID == id && c.FD >= 0 {
			if _, err := unix.Pwrite(c.FD, data, at); err != nil {
				p.tb.Error(err)
			}
		}
	}
}

// SetTrimmed says how many MiB go back to the devices beside the chunks.
func (p *Process) SetTrimmed(mibs uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trimmed = mibs
}

func (p *Process) letGo() {
	for i := range p.chunks {
		if p.chunks[i].FD >= 0 {
			_ = unix.Close(p.chunks[i].FD)
			p.chunks[i].FD = -1
		}
	}
	for _, fd := range p.made {
		_ = unix.Close(fd)
	}
	clear(p.made)
}

// make makes memory for a chunk, which is as somebody has left it.
func (p *Process) make(c *net.UnixConn, id uint64) (why string) {
	at := slices.IndexFunc(p.chunks, func(c Chunk) bool { return c.ID == id && c.FD < 0 && c.Flags&imported == 0 })
	if at < 0 {
		return "not a chunk that is parked"
	}
	chunk := p.chunks[at]
	chunk.FD = NewChunk(p.tb, 0, 0, [16]byte{}, bytes.Repeat([]byte("rubbish "), int(chunk.Size/8))).FD
	if old, ok := p.made[id]; ok {
		_ = unix.Close(old)
	}
	p.made[id] = chunk.FD
	p.send(c, Make, []Chunk{chunk})
	return ""
}

// hangUp has it end its connections.
func (p *Process) hangUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	for c := range p.open {
		_ = c.Close()
	}
}

func (p *Process) serve(c *net.UnixConn) {
	defer func() { _ = c.Close() }()
	p.mu.Lock()
	p.conns++
	p.open[c] = true
	over := p.over
	p.mu.Unlock()
	if over {
		return
	}
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.open, c)
		if p.state == Held || p.state == Stepped {
			p.state = Running
		}
		if p.state == Parked {
			p.letGo()
		}
		p.unmark()
		p.nonce = 0
	}()
	for {
		buf := make([]byte, 4096)
		n, err := c.Read(buf)
		if err != nil || n != requested || binary.LittleEndian.Uint32(buf) != magic {
			return
		}
		op, timeout, count := binary.LittleEndian.Uint32(buf[4:]), binary.LittleEndian.Uint32(buf[8:]), binary.LittleEndian.Uint32(buf[12:])
		p.mu.Lock()
		before := p.before[op]
		p.mu.Unlock()
		if before != nil && !before(c) {
			return
		}
		p.answer(c, op, timeout, count)
	}
}

// mark marks what is imported, as the header says.
func (p *Process) mark() {
	p.unmark()
	for i, c := range p.chunks {
		if c.Flags&imported == 0 || p.nonce == 0 {
			continue
		}
		number, at := p.nonce+uint64(i)*0x9e3779b97f4a7c15, p.markAt(i)
		before := make([]byte, 8)
		if _, err := unix.Pread(c.FD, before, at); err != nil {
			p.tb.Error(err)
		}
		if _, err := unix.Pwrite(c.FD, binary.LittleEndian.AppendUint64(nil, number), at); err != nil {
			p.tb.Error(err)
		}
		p.unmarked[c.ID] = before
	}
}

// markAt is where a chunk is marked.
func (p *Process) markAt(i int) int64 {
	return int64((p.nonce&(1<<12-1)*64 + uint64(i)%64) * 8 % p.chunks[i].Size)
}

func (p *Process) unmark() {
	for i, c := range p.chunks {
		if before, ok := p.unmarked[c.ID]; ok && c.FD >= 0 {
			if _, err := unix.Pwrite(c.FD, before, p.markAt(i)); err != nil {
				p.tb.Error(err)
			}
		}
	}
	p.unmarked = map[uint64][]byte{}
}

func (p *Process) answer(c *net.UnixConn, op, timeout, count uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	done, refuse := func() { Reply(c, op, 0, 0, "", nil) }, func(why string) { Reply(c, op, -int32(unix.EINVAL), 0, why, nil) }
	switch {
	case op == Hello:
		Reply(c, op, 0, 0, "", p.hello())
	case p.protocol >= 2 && (op == Step && (p.state == Running || p.state == Stepped) || op == Status && p.state == Stepped):
		if op == Step {
			p.state = Stepped
			p.work -= min(count, p.work)
		}
		Reply(c, op, 0, 0, "", p.status())
	case p.hole && p.state == Held && (op == Own || op == Release):
		Reply(c, op, 1, 0, "cuMemMap of chunk 1", nil)
	case op == Hold && (p.state == Running || p.state == Stepped), op == Release && (p.state == Held || p.state == Stepped):
		p.state = Held
		if op == Release {
			p.state = Running
		}
		done()
	case p.protocol >= 3 && op == Mark && p.state == Held:
		p.unmark()
		p.nonce = uint64(count)<<32 | uint64(timeout)
		p.mark()
		done()
	case op == Park && p.state == Held && p.crowded > 0:
		p.crowded--
		Reply(c, op, outOfMemory, 0, "no room", nil)
	case op == Park && p.state == Held:
		p.send(c, op, p.chunks)
	case p.protocol >= 3 && op == Share && (p.state == Held || p.state == Parked):
		p.send(c, op, slices.DeleteFunc(slices.Clone(p.chunks), func(c Chunk) bool { return c.FD < 0 || c.Flags != exported }))
	case op == Commit && p.state == Held:
		p.unmark()
		p.letGo()
		p.state = Parked
		Reply(c, op, 0, p.trimmed, "", nil)
	case p.protocol >= 5 && op == Make && p.state == Parked:
		if id := uint64(count)<<32 | uint64(timeout); id != 0 {
			if why := p.make(c, id); why != "" {
				refuse(why)
			}
			return
		}
		moved := uint32(0)
		if p.moved {
			moved = 1
		}
		Reply(c, op, 0, moved, "", nil)
	case op == Unpark && p.state == Parked:
		taken, missing, why := p.takeBack(c, int(count), timeout == 1)
		if p.refusals > 0 {
			p.refusals--
			why = "no"
		}
		if why != "" {
			for _, i := range taken { // and no more
				_ = unix.Close(p.chunks[i].FD)
				p.chunks[i].FD = -1
			}
			refuse(why)
			return
		}
		if missing == 0 {
			p.state = Held
		}
		Reply(c, op, 0, uint32(missing), "", nil)
	case p.protocol >= 4 && op == Own && p.state == Held:
		Reply(c, op, 0, p.ownBorrowed(), "no room", nil)
	default:
		refuse(fmt.Sprintf("not in state %d", p.state))
	}
}

func (p *Process) hello() []byte {
	bytes := uint64(0)
	for _, c := range p.chunks {
		bytes += c.Size
	}
	h := binary.LittleEndian.AppendUint32(nil, p.state)
	h = binary.LittleEndian.AppendUint32(h, uint32(os.Getpid()))
	h = binary.LittleEndian.AppendUint32(h, 13000)
	h = binary.LittleEndian.AppendUint32(h, uint32(len(p.chunks)))
	h = binary.LittleEndian.AppendUint64(h, bytes)
	version, build := make([]byte, 32), make([]byte, 40)
	copy(version, "1.0-test")
	copy(build, "0123456789abcdef")
	if h = append(append(h, version...), build...); p.protocol == 1 {
		return h
	}
	return binary.LittleEndian.AppendUint64(h, uint64(p.protocol))
}

func (p *Process) send(c *net.UnixConn, op uint32, chunks []Chunk) {
	Reply(c, op, 0, uint32(len(chunks)), "", nil)
	for some := range slices.Chunk(chunks, batch) {
		var fds []int
		for _, chunk := range some {
			if chunk.Flags&imported == 0 {
				fds = append(fds, chunk.FD)
			}
		}
		SendChunks(c, some, fds...)
	}
}

// status is of a process whose steps are done at once.
func (p *Process) status() []byte {
	var device uint32
	if p.work == 0 {
		device = 1
	}
	s := binary.LittleEndian.AppendUint32(nil, device)
	s = append(s, make([]byte, 12)...)
	return binary.LittleEndian.AppendUint64(s, 0)
}

// takeBack receives chunks. What is not imported is memory of the process's own then,
// with the same contents, unless it is to be taken as it is.
func (p *Process) takeBack(c *net.UnixConn, count int, allAsIs bool) (taken []int, missing int, why string) {
	seen := 0
	for seen < count {
		buf, oob := make([]byte, batch*chunkLen), make([]byte, unix.CmsgSpace(4*batch))
		n, oobn, _, _, err := c.ReadMsgUnix(buf, oob)
		if err != nil {
			return taken, 0, "the connection ended"
		}
		var fds []int
		if messages, err := unix.ParseSocketControlMessage(oob[:oobn]); err == nil && len(messages) == 1 {
			fds, _ = unix.ParseUnixRights(&messages[0])
		}
		if n/chunkLen != len(fds) {
			return taken, 0, "descriptors are missing"
		}
		for i, fd := range fds {
			b := buf[i*chunkLen:]
			at := slices.IndexFunc(p.chunks, func(c Chunk) bool { return c.ID == binary.LittleEndian.Uint64(b) && c.FD < 0 })
			if at < 0 || p.chunks[at].Size != binary.LittleEndian.Uint64(b[16:]) || p.chunks[at].Device != [16]byte(b[24:40]) {
				_ = unix.Close(fd)
				return taken, 0, "another chunk than was parked"
			}
			made, ok := p.made[p.chunks[at].ID]
			if p.moved && !ok && p.chunks[at].Flags&imported == 0 {
				_ = unix.Close(fd)
				return taken, 0, "CUDA_ERROR_INVALID_DEVICE"
			}
			if ok {
				_ = unix.Close(fd)
				delete(p.made, p.chunks[at].ID)
				p.chunks[at].FD = made
				taken = append(taken, at)
				continue
			}
			flags := binary.LittleEndian.Uint32(b[40:])
			if p.protocol < 4 { // where flags are not looked at
				flags = 0
			}
			if p.protocol >= 3 && allAsIs {
				flags |= asIs
			}
			delete(p.borrowed, p.chunks[at].ID)
			switch now := flags&asIs == 0 && (flags&later == 0 || p.chunks[at].Flags&exported != 0); {
			case p.chunks[at].Flags&imported != 0:
			case now:
				fd = p.own(fd)
			default:
				p.borrowed[p.chunks[at].ID] = true
			}
			p.chunks[at].FD = fd
			taken = append(taken, at)
		}
		seen += len(fds)
	}
	for _, c := range p.chunks {
		if c.FD >= 0 {
			continue
		}
		if missing++; c.Flags&imported == 0 {
			why = "chunks are missing"
		}
	}
	return taken, missing, why
}

// ownBorrowed makes what was taken as it is the process's own, but for what is shared. It
// returns how many MiB there was no room for.
func (p *Process) ownBorrowed() (left uint32) {
	for i, c := range p.chunks {
		switch {
		case !p.borrowed[c.ID]:
		case c.Flags&exported != 0 || c.Size > p.room:
			left += uint32((c.Size + 1<<20 - 1) >> 20)
		default:
			p.chunks[i].FD = p.own(c.FD)
			delete(p.borrowed, c.ID)
		}
	}
	return left
}

// own is a copy of memory.
func (p *Process) own(fd int) int {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return fd
	}
	data := make([]byte, st.Size)
	if _, err := unix.Pread(fd, data, 0); err != nil {
		p.tb.Error(err)
	}
	_ = unix.Close(fd)
	return NewChunk(p.tb, 0, 0, [16]byte{}, data).FD
}

// Reply sends one, with what follows it in the packet.
func Reply(c *net.UnixConn, op uint32, status int32, count uint32, text string, rest []byte) {
	b := binary.LittleEndian.AppendUint32(nil, magic)
	b = binary.LittleEndian.AppendUint32(b, op)
	b = binary.LittleEndian.AppendUint32(b, uint32(status))
	b = binary.LittleEndian.AppendUint32(b, count)
	b = append(b, text...)
	b = append(b, make([]byte, replyLen-len(b))...)
	// A peer that is gone needs none.
	_, _ = c.Write(append(b, rest...))
}

// SendChunks sends a packet of chunks with descriptors.
func SendChunks(c *net.UnixConn, chunks []Chunk, fds ...int) {
	var b []byte
	for _, chunk := range chunks {
		b = binary.LittleEndian.AppendUint64(b, chunk.ID)
		b = binary.LittleEndian.AppendUint64(b, chunk.Address)
		b = binary.LittleEndian.AppendUint64(b, chunk.Size)
		b = append(b, chunk.Device[:]...)
		b = binary.LittleEndian.AppendUint64(b, uint64(chunk.Flags))
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	_, _, _ = c.WriteMsgUnix(b, oob, nil)
}
