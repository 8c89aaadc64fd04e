// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package memfile

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// SaltSize and TagSize are the lengths of a [Salt] and a [Tag] in bytes.
const (
	SaltSize = 32
	TagSize  = 16
)

// Salt is random, and makes the keys of one save's files others than those of any
// other save.
type Salt [SaltSize]byte

// NewSalt makes one. Each save has its own.
func NewSalt() (s Salt) {
	_, _ = rand.Read(s[:]) // never fails
	return s
}

// Tag proves that a block is what was encrypted, at its place (GCM).
type Tag [TagSize]byte

// Sum is the sum of a block that was encrypted: it shows damage only. It is CRC-32C,
// which processors compute as fast as they read.
func Sum(block []byte) uint32 { return crc32.Checksum(block, crc32.MakeTable(crc32.Castagnoli)) }

// Cipher encrypts the blocks of one file of data: AES-256-GCM, with a key of the
// file's own, and the offset of a block for the nonce.
//
// So no nonce is used twice with a key if every offset of a file is sealed once;
// and a block is refused in another file, at another offset, of another length,
// or of another snapshot.
type Cipher struct{ aead cipher.AEAD }

// Cipher returns that of a file, which has the salt of the save that wrote it.
func (k *Key) Cipher(f DataFile) (*Cipher, error) { return k.cipher(f.Salt, "file "+f.Name) }

// Ciphers returns those of all files.
func (k *Key) Ciphers(files []DataFile) ([]*Cipher, error) {
	ciphers := make([]*Cipher, len(files))
	for i, f := range files {
		var err error
		if ciphers[i], err = k.Cipher(f); err != nil {
			return nil, err
		}
	}
	return ciphers, nil
}

func (k *Key) cipher(salt Salt, use string) (*Cipher, error) {
	key, err := k.derive(salt[:], use, KeySize)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("AES: %w", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("GCM: %w", err)
	}
	return &Cipher{aead}, nil
}

// nonce is the offset, little endian, and 4 bytes of zero.
func nonce(offset uint64) []byte {
	return binary.LittleEndian.AppendUint64(make([]byte, 0, 12), offset)[:12]
}

// Seal encrypts a block in its place. Behind it there have to be [TagSize] bytes
// more (its capacity), which are as they were afterwards.
func (c *Cipher) Seal(block []byte, offset uint64) (tag Tag) {
	behind := behind(block)
	saved := Tag(behind)
	c.aead.Seal(block[:0], nonce(offset), block, nil)
	tag = Tag(behind)
	copy(behind, saved[:])
	return tag
}

// Open decrypts a block in its place, with as many bytes behind it as [Cipher.Seal]
// needs. It tells whether the block is what was sealed; if not, the block is of
// no use any more.
func (c *Cipher) Open(block []byte, offset uint64, tag Tag) bool {
	behind := behind(block)
	saved := Tag(behind)
	copy(behind, tag[:])
	_, err := c.aead.Open(block[:0], nonce(offset), block[:len(block)+TagSize], nil)
	copy(behind, saved[:])
	return err == nil
}

// behind is where GCM has the tag.
func behind(block []byte) []byte { return block[len(block) : len(block)+TagSize] }

// sealDigests encrypts the digests of all blocks: they would tell of the contents.
// The tag is of everything in the index.
func (x *Index) sealDigests(key *Key, rest []byte) ([]byte, error) {
	c, err := key.cipher(x.Salt, "index")
	if err != nil {
		return nil, err
	}
	var digests []byte
	x.eachBlock(func(b *Block) { digests = append(digests, b.Digest[:]...) })
	return c.aead.Seal(nil, nonce(0), digests, rest), nil
}

// Unlock proves that an index that is encrypted is what was written with the key,
// and makes the digests of its blocks known. It fails with [ErrKey] or
// [ErrDamaged]. It does nothing to an index that is not encrypted.
func (x *Index) Unlock(key *Key) error {
	if !x.Encrypted() {
		return nil
	}
	if err := key.is(x.KeyID); err != nil {
		return err
	}
	c, err := key.cipher(x.Salt, "index")
	if err != nil {
		return err
	}
	digests, err := c.aead.Open(nil, nonce(0), x.sealed, x.rest)
	if err != nil {
		return fmt.Errorf("%w: %s was not written with the key %s, or was changed since", ErrDamaged, IndexName, x.KeyID)
	}
	// As many: the number of blocks was compared with their length.
	x.eachBlock(func(b *Block) { b.Digest, digests = Digest(digests), digests[DigestSize:] })
	return nil
}

func (x *Index) eachBlock(do func(*Block)) {
	for p := range x.Processes {
		for c := range x.Processes[p].Chunks {
			blocks := x.Processes[p].Chunks[c].Blocks
			for b := range blocks {
				do(&blocks[b])
			}
		}
	}
}
