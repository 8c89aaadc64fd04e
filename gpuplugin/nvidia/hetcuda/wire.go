// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package hetcuda

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
)

// What is sent, as libhetcuda/include/hetcuda_control.h has it: the byte order
// and alignment of x86-64, which are those of every platform that CUDA has.
const (
	socketPrefix = "hetcuda."
	wireMagic    = 0x31637468

	batchSize = 64
	textLen   = 224

	requestLen = 16
	replyLen   = 16 + textLen
	helloLen   = 24 + 32 + 40
	statusLen  = 24
	chunkLen   = 48
)

type op uint32

const (
	opHello   op = 1
	opHold    op = 2
	opPark    op = 3
	opCommit  op = 4
	opUnpark  op = 5
	opRelease op = 6
	opStep    op = 7
	opStatus  op = 8
	opMark    op = 9
	opShare   op = 10
	opOwn     op = 11
	opMake    op = 12
)

var opNames = [...]string{
	opHello: "HELLO", opHold: "HOLD", opPark: "PARK", opCommit: "COMMIT", opUnpark: "UNPARK", opRelease: "RELEASE",
	opStep: "STEP", opStatus: "STATUS", opMark: "MARK", opShare: "SHARE", opOwn: "OWN", opMake: "MAKE",
}

// String is the operation's name in the header.
func (o op) String() string {
	if int(o) < len(opNames) {
		return opNames[o]
	}
	return ""
}

// Limits on what a client may say. MaxBytes is far above the memory of a host.
const (
	MaxChunks = 1 << 20
	maxBytes  = 1 << 48
	// sizeAlign is what the size of a chunk is a multiple of, at least.
	sizeAlign = 4096
)

// State is what the library does with the calls of its process.
type State uint32

// The states: calls go through; they wait; they wait, and there is no memory;
// those that give a device work go through one by one.
const (
	Running State = 0
	Held    State = 1
	Parked  State = 2
	Stepped State = 3
)

// The protocols that are known here are the first to the last: all that were
// ("Protocols" in the header). stepProtocol is the first with STEP and STATUS, and
// ownProtocol with OWN, makeProtocol with MAKE.
const (
	firstProtocol = 1
	stepProtocol  = 2
	ownProtocol   = 4
	makeProtocol  = 5
	lastProtocol  = 5
)

// Hello is what a client says of itself.
type Hello struct {
	State State
	// NSPID is its PID in its own PID namespace, as it says.
	NSPID int
	// Driver is the version of CUDA that its driver has.
	Driver int
	Chunks int
	Bytes  uint64
	// Version and Build name the library.
	Version, Build string
	// Protocol is what it speaks, from 1 on.
	Protocol int
	// Detail is what it says beside, for people.
	Detail string
}

// known fails for a client whose protocol isn't: what it would do when asked can't be told.
func (h Hello) known(pid int) error {
	if h.Protocol >= firstProtocol && h.Protocol <= lastProtocol {
		return nil
	}
	return &helperapi.Error{
		Class: helperapi.Class_CLASS_UNSUPPORTED, Call: "libhetcuda " + opHello.String(),
		Detail: fmt.Sprintf("process %d speaks protocol %d of libhetcuda %s, and this device helper knows %d to %d: was hetGPU updated while the pod ran? Start the pod anew, so that its shim and its device helper are of the library's version",
			pid, h.Protocol, h.Version, firstProtocol, lastProtocol),
	}
}

// Steps tells whether the client can be let on step by step.
func (h Hello) Steps() bool { return h.Protocol >= stepProtocol }

// Owns tells whether the client can be asked to make what it took its own.
func (h Hello) Owns() bool { return h.Protocol >= ownProtocol }

// Makes tells whether the client can be asked to make its memory itself.
func (h Hello) Makes() bool { return h.Protocol >= makeProtocol }

// Device is what a client's devices do.
type Device uint32

// The devices have work, or may be given some; they have none, and get none
// before the next step; they can't be asked, since a stream is being captured.
const (
	Busy      Device = 0
	Idle      Device = 1
	Capturing Device = 2
)

// Status is how far a client is that is let on step by step.
type Status struct {
	Device Device
	// Inside is how many threads are in the driver, and Waiting how many wait
	// at the gate.
	Inside, Waiting uint32
	// Left is how many calls that give work may still begin; Passed is how many
	// have, since the client ran.
	Left   uint32
	Passed uint64
	// Detail says in which calls the threads are, for people.
	Detail string
}

// Chunk is one piece of device memory, as the client describes it.
type Chunk struct {
	ID, Address, Size uint64
	Device            [16]byte
	// Flags say who else may have it.
	Flags uint32
}

// Exported and Imported are flags of a chunk: other processes may have it too;
// another process has made it. What is imported has no descriptor.
const (
	Exported = 1
	Imported = 2
)

// AsIs and Later are flags for [Conn.Unpark], of what is not imported: the client uses
// the memory as it is, since others have it still; it copies it when it is asked to
// ([Conn.Own]), and now only what others may have.
const (
	AsIs  = 4
	Later = 8
)

// Nonce is what a client marks the chunks with that it has imported (MARK in the
// header). It must not be known to anybody else; those of clients that are parked
// together differ in their lowest markPlaces bits.
type Nonce uint64

const (
	// markPlaces are the bits of a nonce, and markWords how many words each of the
	// places has.
	markPlaces = 12
	markWords  = 64
	markStep   = 0x9e3779b97f4a7c15
	wordSize   = 8
)

// NewNonce makes one that says a place; the next clients have the next places.
func NewNonce(place uint64) Nonce {
	var random [wordSize]byte
	_, _ = rand.Read(random[:]) // never fails
	return Nonce(binary.LittleEndian.Uint64(random[:])&^(1<<markPlaces-1) | place&(1<<markPlaces-1))
}

// Mark is the number that is in the chunk which is the i-th that Park returned, and
// where.
func (n Nonce) Mark(i int, size uint64) (number, offset uint64) {
	word := uint64(n)&(1<<markPlaces-1)*markWords + uint64(i)%markWords
	return uint64(n) + uint64(i)*markStep, word * wordSize % size
}

// reply is the answer to a request.
type reply struct {
	op     op
	status int32
	count  uint32
	text   string
}

// errProtocol means that what came is not what the header describes.
var errProtocol = errors.New("not the protocol of libhetcuda")

func appendRequest(b []byte, o op, timeoutMillis, count uint32) []byte {
	for _, v := range []uint32{wireMagic, uint32(o), timeoutMillis, count} {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return b
}

// parseReply reads the reply to a request; what follows it in the packet is
// rest.
func parseReply(packet []byte, want op) (r reply, rest []byte, err error) {
	if len(packet) < replyLen {
		return r, nil, fmt.Errorf("%w: a reply of %d bytes to %v", errProtocol, len(packet), want)
	}
	magic := binary.LittleEndian.Uint32(packet)
	r = reply{
		op:     op(binary.LittleEndian.Uint32(packet[4:])),
		status: int32(binary.LittleEndian.Uint32(packet[8:])),
		count:  binary.LittleEndian.Uint32(packet[12:]),
		text:   text(packet[16:replyLen]),
	}
	if magic != wireMagic || r.op != want {
		return r, nil, fmt.Errorf("%w: a reply with the magic %#x to operation %d, asked was %v; is the library of another version?",
			errProtocol, magic, r.op, want)
	}
	return r, packet[replyLen:], nil
}

// parseHello reads what follows the reply to HELLO. A longer one is of a newer
// library, which has added to it.
func parseHello(b []byte) (Hello, error) {
	if len(b) < helloLen {
		return Hello{}, fmt.Errorf("%w: a hello of %d bytes", errProtocol, len(b))
	}
	h := Hello{
		State:   State(binary.LittleEndian.Uint32(b)),
		NSPID:   int(int32(binary.LittleEndian.Uint32(b[4:]))),
		Driver:  int(int32(binary.LittleEndian.Uint32(b[8:]))),
		Chunks:  int(binary.LittleEndian.Uint32(b[12:])),
		Bytes:   binary.LittleEndian.Uint64(b[16:]),
		Version: text(b[24:56]),
		Build:   text(b[56:96]),

		Protocol: 1,
	}
	if len(b) >= helloLen+4 {
		h.Protocol = int(binary.LittleEndian.Uint32(b[96:]))
	}
	if h.State > Stepped || h.Chunks > MaxChunks || h.Bytes > maxBytes {
		return Hello{}, fmt.Errorf("%w: a hello with state %d, %d chunks, %d bytes", errProtocol, h.State, h.Chunks, h.Bytes)
	}
	return h, nil
}

// parseStatus reads what follows the reply to STEP and STATUS.
func parseStatus(b []byte) (Status, error) {
	if len(b) < statusLen {
		return Status{}, fmt.Errorf("%w: a status of %d bytes", errProtocol, len(b))
	}
	s := Status{
		Device:  Device(binary.LittleEndian.Uint32(b)),
		Inside:  binary.LittleEndian.Uint32(b[4:]),
		Waiting: binary.LittleEndian.Uint32(b[8:]),
		Left:    binary.LittleEndian.Uint32(b[12:]),
		Passed:  binary.LittleEndian.Uint64(b[16:]),
	}
	if s.Device > Capturing {
		return Status{}, fmt.Errorf("%w: a status with device %d", errProtocol, s.Device)
	}
	return s, nil
}

// text is a C string as a person may read it: what can't be printed is "?".
func text(b []byte) string {
	b, _, _ = bytes.Cut(b, []byte{0})
	return strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(string(b), "?"))
}

// parseChunks reads a packet of chunks.
func parseChunks(b []byte) ([]Chunk, error) {
	if len(b) == 0 || len(b)%chunkLen != 0 || len(b) > batchSize*chunkLen {
		return nil, fmt.Errorf("%w: a packet of %d bytes for chunks of %d", errProtocol, len(b), chunkLen)
	}
	chunks := make([]Chunk, 0, len(b)/chunkLen)
	for ; len(b) > 0; b = b[chunkLen:] {
		c := Chunk{
			ID:      binary.LittleEndian.Uint64(b),
			Address: binary.LittleEndian.Uint64(b[8:]),
			Size:    binary.LittleEndian.Uint64(b[16:]),
			Device:  [16]byte(b[24:40]),
			Flags:   binary.LittleEndian.Uint32(b[40:]),
		}
		if err := c.validate(); err != nil {
			return nil, err
		}
		chunks = append(chunks, c)
	}
	return chunks, nil
}

func (c Chunk) validate() error {
	if c.Size == 0 || c.Size%sizeAlign != 0 || c.Size > maxBytes || c.Address%sizeAlign != 0 || c.Address > maxAddress-c.Size || c.Flags&^(Exported|Imported) != 0 {
		return fmt.Errorf("%w: chunk %d of %d bytes at %#x, flags %#x", errProtocol, c.ID, c.Size, c.Address, c.Flags)
	}
	return nil
}

// maxAddress is where device addresses end on any device.
const maxAddress = 1 << 57

func appendChunk(b []byte, c Chunk) []byte {
	b = binary.LittleEndian.AppendUint64(b, c.ID)
	b = binary.LittleEndian.AppendUint64(b, c.Address)
	b = binary.LittleEndian.AppendUint64(b, c.Size)
	b = append(b, c.Device[:]...)
	b = binary.LittleEndian.AppendUint32(b, c.Flags)
	return binary.LittleEndian.AppendUint32(b, 0)
}

// checkChunks checks chunks together: the numbers are unique. Addresses may
// overlap: they mean something to the process alone.
func checkChunks(chunks []Chunk) error {
	ids := make(map[uint64]bool, len(chunks))
	total := uint64(0)
	for _, c := range chunks {
		if ids[c.ID] {
			return fmt.Errorf("%w: chunk %d twice", errProtocol, c.ID)
		}
		ids[c.ID] = true
		if total += c.Size; total > maxBytes {
			return fmt.Errorf("%w: more than %d bytes", errProtocol, uint64(maxBytes))
		}
	}
	return nil
}

// parseRights takes the descriptors out of control messages. Those that came
// with an error are closed.
func parseRights(oob []byte) (fds []int, err error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("%w: control messages: %w", errProtocol, err)
	}
	for i := range messages {
		got, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			Discard(fds)
			return nil, fmt.Errorf("%w: control messages: %w", errProtocol, err)
		}
		fds = append(fds, got...)
	}
	return fds, nil
}
