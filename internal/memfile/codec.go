// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package memfile

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile/indexpb"
)

// Version is the newest version of the format that is read. The older one is
// written where nothing is encrypted.
const Version = 2

const versionPlain = 1

// Limits on what an index may hold: far above what a host can make, and small
// enough for a hostile one to be read.
const (
	// MaxIndexSize is the largest index that is read. A terabyte of memory needs
	// about 11 MiB, encrypted 21 MiB.
	MaxIndexSize = 64 << 20
	// MaxFiles, MaxProcesses and MaxChunks are of one index, and MaxGeneration
	// is how far back a file may be.
	MaxFiles      = 4096
	MaxProcesses  = 65536
	MaxChunks     = 1 << 20
	MaxGeneration = 64
	// MaxMemory is all memory of an index.
	MaxMemory = 1 << 48
)

// The envelope: magic, version (32 bits), 0 (32 bits), length of the body (64
// bits), all little endian; SHA-256 of all of that and the body; the body. It
// will not change with the version.
const (
	magic      = "hetgpumm"
	headerLen  = len(magic) + 4 + 4 + 8
	beforeBody = headerLen + sha256.Size
)

// Encode returns the contents of the index's file. The key is that of the files,
// nil if they are not encrypted.
func Encode(x *Index, key *Key) ([]byte, error) {
	data, err := encode(x, key)
	if err != nil {
		return nil, fmt.Errorf("index of device memory: %w", err)
	}
	return data, nil
}

func encode(x *Index, key *Key) ([]byte, error) {
	if err := x.validate(); err != nil {
		return nil, err
	}
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(x.message())
	if err != nil {
		return nil, err
	}
	var sealed []byte
	version, size := uint32(versionPlain), uint64(len(body))
	if x.Encrypted() {
		if err := key.is(x.KeyID); err != nil {
			return nil, err
		}
		body = append(binary.LittleEndian.AppendUint64(nil, uint64(len(body))), body...)
		version, size = Version, uint64(len(body))+x.sealedSize()
	}
	head := header(version, size)
	if x.Encrypted() {
		if sealed, err = x.sealDigests(key, slices.Concat(head, body)); err != nil {
			return nil, err
		}
	}
	body = append(body, sealed...)
	if len(body)+beforeBody > MaxIndexSize {
		return nil, fmt.Errorf("%d bytes, more than the %d that would be read again", len(body)+beforeBody, MaxIndexSize)
	}
	sum := digestOfEnvelope(head, body)
	return slices.Concat(head, sum[:], body), nil
}

// sealedSize is how long the encrypted digests are.
func (x *Index) sealedSize() uint64 {
	blocks := uint64(0)
	x.eachBlock(func(*Block) { blocks++ })
	return blocks*DigestSize + TagSize
}

func header(version uint32, size uint64) []byte {
	data := make([]byte, 0, headerLen)
	data = append(data, magic...)
	data = binary.LittleEndian.AppendUint32(data, version)
	data = binary.LittleEndian.AppendUint32(data, 0)
	return binary.LittleEndian.AppendUint64(data, size)
}

func digestOfEnvelope(header, body []byte) (sum [sha256.Size]byte) {
	h := sha256.New()
	h.Write(header)
	h.Write(body)
	return [sha256.Size]byte(h.Sum(nil))
}

// Decode reads the contents of an index's file. What it returns is valid; its
// error is [ErrDamaged] or [ErrNewerVersion]. Of one that is encrypted that is
// proved, and all of it known, only by [Index.Unlock].
func Decode(data []byte) (*Index, error) {
	version, body, err := unwrap(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrDamaged, IndexName, err)
	}
	if version > Version {
		return nil, fmt.Errorf("%w: version %d, and this program reads up to %d; use a hetGPU at least as new as the one that made it",
			ErrNewerVersion, version, Version)
	}
	var x *Index
	if version == versionPlain {
		x, err = decodeBody(body, false)
	} else {
		x, err = decodeEncrypted(data[:headerLen], body)
	}
	if err == nil {
		err = x.validate()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrDamaged, IndexName, err)
	}
	return x, nil
}

// decodeEncrypted reads the body of version 2: the length of the message, the
// message, and what is encrypted.
func decodeEncrypted(header, body []byte) (*Index, error) {
	const length = 8
	if len(body) < length || binary.LittleEndian.Uint64(body) > uint64(len(body)-length) {
		return nil, fmt.Errorf("a body of %d bytes, which is no message", len(body))
	}
	size := length + int(binary.LittleEndian.Uint64(body))
	x, err := decodeBody(body[length:size], true)
	if err != nil {
		return nil, err
	}
	x.rest, x.sealed = slices.Concat(header, body[:size]), body[size:]
	if uint64(len(x.sealed)) != x.sealedSize() {
		return nil, fmt.Errorf("%d bytes are encrypted, and %d are needed", len(x.sealed), x.sealedSize())
	}
	return x, nil
}

func unwrap(data []byte) (version uint32, body []byte, err error) {
	switch {
	case len(data) > MaxIndexSize:
		return 0, nil, fmt.Errorf("more than %d bytes", MaxIndexSize)
	case len(data) < beforeBody:
		return 0, nil, fmt.Errorf("cut short, %d bytes", len(data))
	case !bytes.HasPrefix(data, []byte(magic)):
		return 0, nil, errors.New("no index of device memory")
	}
	header, sum, body := data[:headerLen], data[headerLen:beforeBody], data[beforeBody:]
	if got := digestOfEnvelope(header, body); !bytes.Equal(got[:], sum) {
		return 0, nil, fmt.Errorf("it has the digest %x, and says %x", got, sum)
	}
	version = binary.LittleEndian.Uint32(header[len(magic):])
	zero := binary.LittleEndian.Uint32(header[len(magic)+4:])
	length := binary.LittleEndian.Uint64(header[len(magic)+8:])
	if version == 0 || zero != 0 || length != uint64(len(body)) {
		return 0, nil, fmt.Errorf("version %d, reserved %d, a body of %d bytes and not %d", version, zero, len(body), length)
	}
	return version, body, nil
}

func decodeBody(body []byte, encrypted bool) (*Index, error) {
	// Messages of no length cost nothing in the file and much in memory.
	if err := countMessages(body); err != nil {
		return nil, err
	}
	m := &indexpb.Index{}
	if err := proto.Unmarshal(body, m); err != nil {
		return nil, err
	}
	if m.GetBlockSize() != BlockSize {
		return nil, fmt.Errorf("blocks of %d bytes, and not %d", m.GetBlockSize(), BlockSize)
	}
	x := &Index{}
	unknown := len(m.ProtoReflect().GetUnknown())
	if e := m.GetEncryption(); encrypted != (e != nil) {
		return nil, fmt.Errorf("encryption is %t, and the version says %t", e != nil, encrypted)
	} else if encrypted {
		unknown += len(e.ProtoReflect().GetUnknown())
		x.KeyID = e.GetKeyId()
		if !IsKeyID(x.KeyID) || len(e.GetSalt()) != SaltSize {
			return nil, fmt.Errorf("key %q, salt of %d bytes", x.KeyID, len(e.GetSalt()))
		}
		x.Salt = Salt(e.GetSalt())
	}
	for _, f := range m.GetFiles() {
		unknown += len(f.ProtoReflect().GetUnknown())
		if f.GetGeneration() > MaxGeneration {
			return nil, fmt.Errorf("%q is %d snapshots before", f.GetName(), f.GetGeneration())
		}
		file := DataFile{Name: f.GetName(), Size: f.GetSize(), Generation: int(f.GetGeneration())}
		if len(f.GetSalt()) != saltSize(encrypted) {
			return nil, fmt.Errorf("%q has a salt of %d bytes", f.GetName(), len(f.GetSalt()))
		}
		copy(file.Salt[:], f.GetSalt())
		x.Files = append(x.Files, file)
	}
	for i, mp := range m.GetProcesses() {
		unknown += len(mp.ProtoReflect().GetUnknown())
		p := Process{}
		for j, mc := range mp.GetChunks() {
			unknown += len(mc.ProtoReflect().GetUnknown())
			c, err := decodeChunk(mc, encrypted)
			if err != nil {
				return nil, fmt.Errorf("process %d, chunk %d: %w", i, j, err)
			}
			p.Chunks = append(p.Chunks, c)
		}
		x.Processes = append(x.Processes, p)
	}
	if unknown > 0 {
		return nil, errors.New("unknown fields")
	}
	return x, nil
}

// The numbers of the fields that hold messages (index.proto).
const (
	fieldFiles     = 2
	fieldProcesses = 3
	fieldChunks    = 1
)

func countMessages(body []byte) error {
	files, processes, chunks := 0, 0, 0
	err := eachField(body, func(number protowire.Number, value []byte) error {
		switch number {
		case fieldFiles:
			files++
		case fieldProcesses:
			processes++
			return eachField(value, func(number protowire.Number, _ []byte) error {
				if number == fieldChunks {
					chunks++
				}
				return nil
			})
		}
		return nil
	})
	if err == nil && (files > MaxFiles || processes > MaxProcesses || chunks > MaxChunks) {
		err = fmt.Errorf("%d files, %d processes, %d chunks; at most %d, %d, %d", files, processes, chunks, MaxFiles, MaxProcesses, MaxChunks)
	}
	return err
}

// eachField visits the fields of a message; value is of those with a length.
func eachField(message []byte, visit func(number protowire.Number, value []byte) error) error {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		size := protowire.ConsumeFieldValue(number, kind, message[n:])
		if size < 0 {
			return protowire.ParseError(size)
		}
		var value []byte
		if kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(message[n:])
		}
		if err := visit(number, value); err != nil {
			return err
		}
		message = message[n+size:]
	}
	return nil
}

func saltSize(encrypted bool) int {
	if encrypted {
		return SaltSize
	}
	return 0
}

func decodeChunk(m *indexpb.Chunk, encrypted bool) (Chunk, error) {
	c := Chunk{ID: m.GetId(), Address: m.GetAddress(), Size: m.GetSize(), Shared: m.GetShared(), Imported: m.GetImported()}
	places, offsets, digests := m.GetPlaces(), m.GetOffsets(), m.GetDigests()
	if c.Size == 0 || c.Size%Align != 0 || c.Size > MaxMemory {
		return c, fmt.Errorf("%d bytes", c.Size)
	}
	if len(m.GetDevice()) != len(c.Device) {
		return c, errors.New("no UUID of a device")
	}
	c.Device = UUID(m.GetDevice())
	n := NumBlocks(c.Size)
	want := n * DigestSize
	if encrypted {
		want = 0
	}
	if uint64(len(places)) != n || uint64(len(digests)) != want {
		return c, fmt.Errorf("%d places and %d bytes of digests for %d blocks", len(places), len(digests), n)
	}
	tags, sums := m.GetTags(), m.GetSums()
	c.Blocks = make([]Block, n)
	for i := range c.Blocks {
		b := &c.Blocks[i]
		b.File = places[i]
		if !encrypted {
			b.Digest = Digest(digests[i*DigestSize:])
		}
		if b.Zero() {
			continue
		}
		if encrypted {
			if len(tags) < TagSize || len(sums) == 0 {
				return c, fmt.Errorf("no tag for block %d", i)
			}
			b.Tag, b.Sum, tags, sums = Tag(tags), sums[0], tags[TagSize:], sums[1:]
		}
		if len(offsets) == 0 || offsets[0] > math.MaxUint64/Align {
			return c, fmt.Errorf("no offset for block %d", i)
		}
		b.Offset = offsets[0] * Align
		offsets = offsets[1:]
	}
	if len(offsets) > 0 {
		return c, fmt.Errorf("%d offsets too many", len(offsets))
	}
	if len(tags) > 0 || len(sums) > 0 {
		return c, fmt.Errorf("%d bytes of tags and %d sums too many", len(tags), len(sums))
	}
	return c, nil
}

func (x *Index) message() *indexpb.Index {
	m := &indexpb.Index{BlockSize: BlockSize}
	if x.Encrypted() {
		m.Encryption = &indexpb.Encryption{KeyId: x.KeyID, Salt: x.Salt[:]}
	}
	for _, f := range x.Files {
		file := &indexpb.DataFile{Name: f.Name, Size: f.Size, Generation: uint32(f.Generation)}
		if x.Encrypted() {
			file.Salt = bytes.Clone(f.Salt[:])
		}
		m.Files = append(m.Files, file)
	}
	for _, p := range x.Processes {
		mp := &indexpb.Process{}
		for i := range p.Chunks {
			mp.Chunks = append(mp.Chunks, p.Chunks[i].message(x.Encrypted()))
		}
		m.Processes = append(m.Processes, mp)
	}
	return m
}

func (c *Chunk) message(encrypted bool) *indexpb.Chunk {
	m := &indexpb.Chunk{Id: c.ID, Address: c.Address, Size: c.Size, Device: c.Device[:], Shared: c.Shared, Imported: c.Imported}
	m.Places = make([]uint32, 0, len(c.Blocks))
	m.Digests = make([]byte, 0, len(c.Blocks)*DigestSize)
	for _, b := range c.Blocks {
		m.Places = append(m.Places, b.File)
		if !b.Zero() {
			m.Offsets = append(m.Offsets, b.Offset/Align)
		}
		switch {
		case !encrypted:
			m.Digests = append(m.Digests, b.Digest[:]...)
		case !b.Zero():
			m.Tags = append(m.Tags, b.Tag[:]...)
			m.Sums = append(m.Sums, b.Sum)
		}
	}
	return m
}

// validate checks all that a reader relies on.
func (x *Index) validate() error {
	if len(x.Files) > MaxFiles || len(x.Processes) > MaxProcesses {
		return fmt.Errorf("%d files, %d processes", len(x.Files), len(x.Processes))
	}
	files := map[string]bool{}
	for _, f := range x.Files {
		if !isDataName(f.Name) || f.Generation < 0 || f.Generation > MaxGeneration || f.Size%Align != 0 || f.Size > MaxMemory {
			return fmt.Errorf("a file %q of %d bytes, %d snapshots before", f.Name, f.Size, f.Generation)
		}
		if files[f.Path()] {
			return fmt.Errorf("%s is listed twice", f.Path())
		}
		files[f.Path()] = true
	}
	chunks, memory, shared := 0, uint64(0), map[uint32]*Chunk{}
	for i, p := range x.Processes {
		if chunks += len(p.Chunks); chunks > MaxChunks {
			return fmt.Errorf("more than %d chunks", MaxChunks)
		}
		if err := p.validate(x.Files); err != nil {
			return fmt.Errorf("process %d: %w", i, err)
		}
		for j := range p.Chunks {
			c := &p.Chunks[j]
			if memory += c.Size; memory > MaxMemory {
				return fmt.Errorf("more than %d bytes of memory", uint64(MaxMemory))
			}
			if c.Shared == 0 {
				continue
			}
			if first := shared[c.Shared]; first != nil && !first.sameAs(c) {
				return fmt.Errorf("process %d: chunk %d is not the memory that it is said to be", i, c.ID)
			}
			shared[c.Shared] = c
		}
	}
	return nil
}

// sameAs tells whether two chunks can be the same memory.
func (c *Chunk) sameAs(other *Chunk) bool {
	return c.Size == other.Size && c.Device == other.Device && slices.Equal(c.Blocks, other.Blocks)
}

func (p *Process) validate(files []DataFile) error {
	ids := make(map[uint64]bool, len(p.Chunks))
	mapped := make([]*Chunk, 0, len(p.Chunks))
	for i := range p.Chunks {
		c := &p.Chunks[i]
		if ids[c.ID] {
			return fmt.Errorf("chunk %d is listed twice", c.ID)
		}
		ids[c.ID] = true
		if err := c.validate(files); err != nil {
			return fmt.Errorf("chunk %d: %w", c.ID, err)
		}
		if c.Address != 0 {
			mapped = append(mapped, c)
		}
	}
	slices.SortFunc(mapped, func(a, b *Chunk) int {
		if a.Address < b.Address {
			return -1
		}
		return 1
	})
	for i := 1; i < len(mapped); i++ {
		if before := mapped[i-1]; before.Address+before.Size > mapped[i].Address {
			return fmt.Errorf("chunks %d and %d are at the same place", before.ID, mapped[i].ID)
		}
	}
	return nil
}

func (c *Chunk) validate(files []DataFile) error {
	if c.Size == 0 || c.Size%Align != 0 || c.Size > MaxMemory || c.Address%Align != 0 || c.Address > math.MaxUint64-c.Size {
		return fmt.Errorf("%d bytes at %#x", c.Size, c.Address)
	}
	if uint64(len(c.Blocks)) != NumBlocks(c.Size) {
		return fmt.Errorf("%d blocks for %d bytes", len(c.Blocks), c.Size)
	}
	for i, b := range c.Blocks {
		if b.Zero() {
			continue
		}
		if uint64(b.File) > uint64(len(files)) {
			return fmt.Errorf("block %d is in file %d of %d", i, b.File, len(files))
		}
		f, n := files[b.File-1], c.BlockLen(i)
		if b.Offset%Align != 0 || b.Offset > f.Size || n > f.Size-b.Offset {
			return fmt.Errorf("block %d is outside of %s", i, f.Name)
		}
	}
	return nil
}
