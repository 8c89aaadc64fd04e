// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package memfile is the format of device memory in a snapshot: an index,
// hetgpu-mem.img, and files of data, hetgpu-mem-N.img. Memory is cut into blocks
// of 2 MiB; a block of zeros is not stored, one that a snapshot before has can
// be left there, and each has a digest that a GPU computes as fast as it reads.
// The files can be encrypted, with a key of the host. docs/formats.md is its
// description.
//
// What is read is taken for hostile: everything is bounded and checked before it
// is used. The package must not know of devices, nor of who moves the data.
package memfile

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

const (
	// IndexName is the file of the index in a snapshot.
	IndexName = "hetgpu-mem.img"
	// BlockSize is what memory is cut into. The last block of a chunk may be
	// shorter.
	BlockSize = 2 << 20
	// Align is what sizes, and offsets in files, are multiples of: enough for
	// O_DIRECT.
	Align = 4096
	// ParentName leads from a snapshot to the one before it.
	ParentName = "parent"
)

var (
	// ErrDamaged means that an index, or the memory that it is of, is not what
	// was written.
	ErrDamaged = errors.New("device memory of the snapshot is damaged")
	// ErrNewerVersion means that a newer hetGPU wrote the index.
	ErrNewerVersion = errors.New("device memory of the snapshot has a newer format")
)

// Index says which memory there was, and where its contents are.
type Index struct {
	Files []DataFile
	// Processes are in the order of the manifest's.
	Processes []Process
	// KeyID names the key with which all of the files are encrypted, and Salt is
	// the index's own; empty if they are not.
	KeyID string
	Salt  Salt

	// sealed is what Unlock reads, and rest all that was before it.
	sealed, rest []byte
}

// Encrypted tells whether the contents of the files are encrypted.
func (x *Index) Encrypted() bool { return x.KeyID != "" }

// DataFile has contents of blocks.
type DataFile struct {
	// Name is [DataName] of a number.
	Name string
	// Size is in bytes.
	Size uint64
	// Generation is 0 for a file of the snapshot itself, 1 for one of the
	// snapshot before it, and so on.
	Generation int
	// Salt is that of the save that wrote a file that is encrypted.
	Salt Salt
}

// Path is where the file is, from the snapshot's directory.
func (f DataFile) Path() string { return strings.Repeat(ParentName+"/", f.Generation) + f.Name }

// Process is the memory of one process.
type Process struct {
	Chunks []Chunk
}

// Chunk is one piece of device memory.
type Chunk struct {
	// ID is libhetcuda's number of it, in its process.
	ID uint64
	// Address is where the process had it, 0 for nowhere.
	Address uint64
	// Size is a multiple of [Align].
	Size uint64
	// Device is the UUID of the device that it was on.
	Device UUID
	// Blocks are all of it, in order.
	Blocks []Block
	// Shared is 0 for memory that one process has. Several have the chunks with
	// the same number: they are the same memory. Imported says of such a chunk that
	// another of the processes has made the memory.
	Shared   uint32
	Imported bool
}

// BlockLen is the length of block i.
func (c *Chunk) BlockLen(i int) uint64 { return min(BlockSize, c.Size-uint64(i)*BlockSize) }

// NumBlocks is how many blocks memory of a size has.
func NumBlocks(size uint64) uint64 { return (size + BlockSize - 1) / BlockSize }

// Block says where the contents of a block are.
type Block struct {
	// File is 0 for a block of zeros, else one more than the index of its file
	// in [Index.Files].
	File uint32
	// Offset is where in the file, a multiple of [Align].
	Offset uint64
	// Digest is of the contents of memory. Where they are encrypted it is not known
	// before [Index.Unlock].
	Digest Digest
	// Tag and Sum are of what is in the file, if it is encrypted: GCM's, and one that
	// shows damage to who has not the key.
	Tag Tag
	Sum uint32
}

// Zero tells whether all of the block is zero, so that it is not stored.
func (b Block) Zero() bool { return b.File == 0 }

// UUID names a device.
type UUID [16]byte

// String writes it as NVIDIA does ("GPU-...").
func (u UUID) String() string {
	h := hex.EncodeToString(u[:])
	return "GPU-" + strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:]}, "-")
}

// ParseUUID reads what String writes.
func ParseUUID(s string) (UUID, error) {
	raw, err := hex.DecodeString(strings.ReplaceAll(strings.TrimPrefix(s, "GPU-"), "-", ""))
	if err != nil || len(raw) != len(UUID{}) || UUID(raw).String() != s {
		return UUID{}, fmt.Errorf("%q is not the UUID of a GPU", s)
	}
	return UUID(raw), nil
}

// dataPrefix and dataSuffix are around the number in the name of a file of data.
const (
	dataPrefix = "hetgpu-mem-"
	dataSuffix = ".img"
)

// DataName is the name of file n of data.
func DataName(n int) string { return dataPrefix + strconv.Itoa(n) + dataSuffix }

// isDataName tells whether a name is one that [DataName] makes.
func isDataName(name string) bool {
	digits, ok := strings.CutSuffix(strings.TrimPrefix(name, dataPrefix), dataSuffix)
	n, err := strconv.Atoi(digits)
	return ok && err == nil && n >= 0 && n < MaxFiles && DataName(n) == name
}

// IsName tells whether a file of a snapshot belongs to this format.
func IsName(name string) bool { return name == IndexName || isDataName(name) }

// Sizes are what an index is of, in bytes.
type Sizes struct {
	// Memory is all of it: Zero is not stored, Stored is in the snapshot itself,
	// and Reused in those before.
	Memory, Zero, Stored, Reused uint64
}

// Sizes adds up.
func (x *Index) Sizes() Sizes {
	var s Sizes
	seen := map[uint32]bool{0: false}
	for _, p := range x.Processes {
		for i := range p.Chunks {
			c := &p.Chunks[i]
			if seen[c.Shared] {
				continue
			}
			seen[c.Shared] = c.Shared != 0
			s.Memory += c.Size
			for j, b := range c.Blocks {
				switch {
				case b.Zero():
					s.Zero += c.BlockLen(j)
				case x.Files[b.File-1].Generation > 0:
					s.Reused += c.BlockLen(j)
				default:
					s.Stored += c.BlockLen(j)
				}
			}
		}
	}
	return s
}
