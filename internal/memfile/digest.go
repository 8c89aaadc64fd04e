// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package memfile

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"sync"
)

// DigestSize is the length of a [Digest] in bytes.
const DigestSize = 16

// Digest is of one block, and made so that a GPU computes it as fast as it can
// read its memory: a sum, which may be added up in any order, of what two mixing
// functions make of each 64-bit word and its place.
//
// Let w[i] be the little-endian words of a block of n bytes, and all arithmetic
// modulo 2^64. Then, with the constants below,
//
//	p = (i+1)*k
//	x = w[i] + p;  x ^= x>>32;  x *= m1;  x ^= x>>29
//	a = (x+p) * m2;  a ^= a>>32
//	b = (x^p) * m3;  b ^= b>>32
//
// and the digest is fin(sum of a + n) and fin((sum of b) ^ n), both little
// endian, where fin is the finalizer of splitmix64.
//
// It finds errors: for a given place each of the two functions maps the words
// one to one, so a change within one word changes both halves for certain, and
// other damage goes unseen once in 2^128 as far as the functions are random. It
// is no signature: who wants two blocks of the same digest can compute them.
type Digest [DigestSize]byte

// The constants: the golden ratio; the multipliers of splitmix64; one of
// Evensen's rrmxmx.
const (
	digestK  = 0x9e3779b97f4a7c15
	digestM1 = 0xbf58476d1ce4e5b9
	digestM2 = 0x94d049bb133111eb
	digestM3 = 0xd6e8feb86659fd93
)

// DigestOf returns the digest of a block and whether all of it is zero. It
// panics if the block is not of whole 64-bit words.
func DigestOf(block []byte) (d Digest, zero bool) {
	if len(block)%8 != 0 {
		panic(fmt.Sprintf("memfile: digest of %d bytes", len(block)))
	}
	var a, b, seen, p uint64
	rest := block
	// Four at a time, so that the processor has something to do while it
	// multiplies, and bounds are checked once.
	for len(rest) >= 32 {
		w0 := binary.LittleEndian.Uint64(rest[0:8])
		w1 := binary.LittleEndian.Uint64(rest[8:16])
		w2 := binary.LittleEndian.Uint64(rest[16:24])
		w3 := binary.LittleEndian.Uint64(rest[24:32])
		rest = rest[32:]
		seen |= w0 | w1 | w2 | w3
		p0, p1, p2 := p+digestK, p+2*digestK&mask, p+3*digestK&mask
		p += 4 * digestK & mask
		a0, b0 := mix(w0, p0)
		a1, b1 := mix(w1, p1)
		a2, b2 := mix(w2, p2)
		a3, b3 := mix(w3, p)
		a += a0 + a1 + a2 + a3
		b += b0 + b1 + b2 + b3
	}
	for ; len(rest) > 0; rest = rest[8:] {
		w := binary.LittleEndian.Uint64(rest)
		seen |= w
		p += digestK
		wa, wb := mix(w, p)
		a += wa
		b += wb
	}
	n := uint64(len(block))
	return NewDigest(finish(a+n), finish(b^n)), seen == 0
}

// mask keeps constant expressions within 64 bits.
const mask = 1<<64 - 1

// mix is what a word contributes at a place.
func mix(w, p uint64) (a, b uint64) {
	x := w + p
	x ^= x >> 32
	x *= digestM1
	x ^= x >> 29
	a = (x + p) * digestM2
	b = (x ^ p) * digestM3
	return a ^ a>>32, b ^ b>>32
}

func finish(z uint64) uint64 {
	z ^= z >> 30
	z *= digestM1
	z ^= z >> 27
	z *= digestM2
	return z ^ z>>31
}

// NewDigest makes a digest of its two halves, as a GPU has computed them.
func NewDigest(a, b uint64) (d Digest) {
	binary.LittleEndian.PutUint64(d[:8], a)
	binary.LittleEndian.PutUint64(d[8:], b)
	return d
}

// String is the digest in hexadecimal.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// zeroes is a whole block of zero, as most are.
var zeroes struct {
	once   sync.Once
	digest Digest
}

// zeroDigest is the digest of n bytes of zero, a block at most.
func zeroDigest(n uint64) Digest {
	if n == BlockSize {
		zeroes.once.Do(func() { zeroes.digest, _ = DigestOf(make([]byte, BlockSize)) })
		return zeroes.digest
	}
	d, _ := DigestOf(make([]byte, n))
	return d
}
