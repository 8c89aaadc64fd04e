// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package memfile_test

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
)

// plain is the definition of the digest, word by word as it is written down.
func plain(block []byte) memfile.Digest {
	const k, m1, m2, m3 uint64 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0xD6E8FEB86659FD93
	fin := func(z uint64) uint64 {
		z = (z ^ z>>30) * m1
		z = (z ^ z>>27) * m2
		return z ^ z>>31
	}
	var sumA, sumB uint64
	for i := range uint64(len(block) / 8) {
		p := (i + 1) * k
		x := binary.LittleEndian.Uint64(block[8*i:]) + p
		x = (x ^ x>>32) * m1
		x ^= x >> 29
		a, b := (x+p)*m2, (x^p)*m3
		sumA += a ^ a>>32
		sumB += b ^ b>>32
	}
	n := uint64(len(block))
	return memfile.NewDigest(fin(sumA+n), fin(sumB^n))
}

func random(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 0))
	b := make([]byte, n)
	for i := 0; i < n; i += 8 {
		binary.LittleEndian.PutUint64(b[i:], r.Uint64())
	}
	return b
}

// The values are for other implementations (the GPU's, the stand-in's). They
// never change: a change is a new version of the format.
func TestDigestVectors(t *testing.T) {
	counting := make([]byte, memfile.BlockSize)
	for i := range counting {
		counting[i] = byte(i*i>>8 ^ i)
	}
	last := make([]byte, memfile.BlockSize)
	last[len(last)-1] = 0x80
	tests := map[string]struct {
		block []byte
		want  string
	}{
		"4 KiB of zero": {make([]byte, 4096), "7bf42869a9c49b7f7aaddf4a27810d06"},
		"2 MiB of zero": {make([]byte, memfile.BlockSize), "2e5cffde5dc6daa7ba3e1b764d20588a"},
		"one bit":       {last, "c43de3e4fccb6f71d4e7df73cde2f433"},
		"bytes":         {counting, "f4c782cba601fc87e1b629653045f94d"},
		"4 KiB of them": {counting[:4096], "5c37aa3e1b0cef99b4ea79444ce0b526"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, zero := memfile.DigestOf(test.block)
			if got.String() != test.want || got != plain(test.block) {
				t.Errorf("digest %s (by its definition %s), want %s", got, plain(test.block), test.want)
			}
			if want := name == "4 KiB of zero" || name == "2 MiB of zero"; zero != want {
				t.Errorf("zero = %v", zero)
			}
		})
	}
}

func TestDigestOfAnyLength(t *testing.T) {
	data := random(1, 4096+8)
	for n := 0; n <= len(data); n += 8 {
		if got, _ := memfile.DigestOf(data[:n]); got != plain(data[:n]) {
			t.Fatalf("digest of %d bytes: %s, want %s", n, got, plain(data[:n]))
		}
	}
}

// Any bit changes the digest, wherever it is, whatever is around it, and about
// half of the digest's bits.
func TestDigestFindsAnyBit(t *testing.T) {
	for name, block := range map[string][]byte{"zero": make([]byte, 4096), "random": random(2, 4096)} {
		before, _ := memfile.DigestOf(block)
		flipped := 0
		for bit := range 8 * len(block) {
			block[bit/8] ^= 1 << (bit % 8)
			after, zero := memfile.DigestOf(block)
			block[bit/8] ^= 1 << (bit % 8)
			if zero || [8]byte(before[:8]) == [8]byte(after[:8]) || [8]byte(before[8:]) == [8]byte(after[8:]) {
				t.Fatalf("%s: bit %d: %s and %s, zero %v", name, bit, before, after, zero)
			}
			for i := range before {
				flipped += bits.OnesCount8(before[i] ^ after[i])
			}
		}
		if mean := float64(flipped) / float64(8*len(block)); mean < 62 || mean > 66 {
			t.Errorf("%s: a bit changes %.1f of 128 bits", name, mean)
		}
	}
}

// What is moved, or damaged twice in the same way, is found.
func TestDigestFindsPlaces(t *testing.T) {
	seen := map[memfile.Digest]string{}
	add := func(what string, block []byte) {
		d, _ := memfile.DigestOf(block)
		if other, ok := seen[d]; ok {
			t.Errorf("%s has the digest of %s", what, other)
		}
		seen[d] = what
	}
	block := random(3, 4096)
	add("the block", block)
	for n := 8; n < len(block); n += 8 {
		add(fmt.Sprintf("%d bytes of it", n), block[:n])
		turned := append(append([]byte{}, block[n:]...), block[:n]...)
		add(fmt.Sprintf("turned by %d", n), turned)
		swapped := append([]byte{}, block...)
		copy(swapped[n-8:], block[n:n+8])
		copy(swapped[n:], block[n-8:n])
		add(fmt.Sprintf("swapped at %d", n), swapped)
		word := make([]byte, len(block))
		word[n] = 1
		add(fmt.Sprintf("1 at %d", n), word)
		two := append([]byte{}, block...)
		two[n] ^= 0x80
		two[n-8] ^= 0x80
		add(fmt.Sprintf("two bits at %d", n), two)
	}
}

func BenchmarkDigest(b *testing.B) {
	block := random(4, memfile.BlockSize)
	b.SetBytes(int64(len(block)))
	for b.Loop() {
		memfile.DigestOf(block)
	}
}
