// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package memfile_test

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile/indexpb"
)

// encrypt makes an encrypted copy of what build writes, and returns its index.
func encrypt(tb testing.TB, plain, dir string, key *memfile.Key) *memfile.Index {
	tb.Helper()
	return encryptWith(tb, plain, dir, key, memfile.NewSalt())
}

func encryptWith(tb testing.TB, plain, dir string, key *memfile.Key, salt memfile.Salt) *memfile.Index {
	tb.Helper()
	x, err := memfile.ReadIndex(plain)
	check(tb, err)
	x.KeyID, x.Salt = key.ID(), salt
	var data [][]byte
	for i := range x.Files {
		x.Files[i].Salt = x.Salt
		contents, err := os.ReadFile(filepath.Join(plain, x.Files[i].Name))
		check(tb, err)
		data = append(data, append(contents, make([]byte, memfile.TagSize)...))
	}
	ciphers, err := key.Ciphers(x.Files)
	check(tb, err)
	for p := range x.Processes {
		for i := range x.Processes[p].Chunks {
			c := &x.Processes[p].Chunks[i]
			for j := range c.Blocks {
				if b := &c.Blocks[j]; !b.Zero() {
					block := data[b.File-1][b.Offset:][:c.BlockLen(j)]
					b.Tag = ciphers[b.File-1].Seal(block, b.Offset)
					b.Sum = memfile.Sum(block)
				}
			}
		}
	}
	for i, f := range x.Files {
		check(tb, os.WriteFile(filepath.Join(dir, f.Name), data[i][:f.Size], 0o600))
	}
	_, err = memfile.WriteIndex(dir, x, key)
	check(tb, err)
	return x
}

func TestEncryptedRoundTrip(t *testing.T) {
	plain, dir, key := t.TempDir(), t.TempDir(), newKey(t, secret())
	was := build(t, plain)
	x := encrypt(t, plain, dir, key)
	for i := range x.Files {
		in, err := os.ReadFile(filepath.Join(plain, x.Files[i].Name))
		check(t, err)
		out, err := os.ReadFile(filepath.Join(dir, x.Files[i].Name))
		check(t, err)
		for at := 0; at < len(in); at += memfile.BlockSize / 4 {
			if bytes.Contains(out, in[at:][:16]) {
				t.Fatalf("%s has what was at %d as it was", x.Files[i].Name, at)
			}
		}
	}
	index, err := os.ReadFile(filepath.Join(dir, memfile.IndexName))
	check(t, err)
	if digest := was.Processes[0].Chunks[0].Blocks[0].Digest; bytes.Contains(index, digest[:]) {
		t.Error("the index has a digest of memory")
	}

	locked, err := memfile.Verify(t.Context(), dir, nil)
	check(t, err)
	if d := locked.Processes[0].Chunks[0].Blocks[0].Digest; d != (memfile.Digest{}) || !locked.Encrypted() || locked.KeyID != secretID {
		t.Errorf("without the key it says %v, %+v", d, locked)
	}
	if locked.Sizes() != was.Sizes() {
		t.Errorf("sizes %+v", locked.Sizes())
	}
	open, err := memfile.Verify(t.Context(), dir, key)
	check(t, err)
	for p := range open.Processes {
		for c := range open.Processes[p].Chunks {
			for b, block := range open.Processes[p].Chunks[c].Blocks {
				if want := was.Processes[p].Chunks[c].Blocks[b].Digest; block.Digest != want {
					t.Errorf("process %d, chunk %d, block %d: %v, want %v", p, c, b, block.Digest, want)
				}
			}
		}
	}
	// Once more it is other bytes.
	again := t.TempDir()
	encrypt(t, plain, again, key)
	for _, f := range x.Files {
		a, err := os.ReadFile(filepath.Join(dir, f.Name))
		check(t, err)
		b, err := os.ReadFile(filepath.Join(again, f.Name))
		check(t, err)
		if slices.Equal(a[:4096], b[:4096]) {
			t.Errorf("%s is encrypted twice in the same way", f.Name)
		}
	}
}

// The format, as docs/formats.md has it, with the standard library alone.
func TestEncryptedAsDocumented(t *testing.T) {
	plain, dir := t.TempDir(), t.TempDir()
	build(t, plain)
	x := encrypt(t, plain, dir, newKey(t, secret()))
	gcm := func(use string) cipher.AEAD {
		key, err := hkdf.Key(sha256.New, secret(), x.Salt[:], "hetgpu device memory 1: "+use, 32)
		check(t, err)
		block, err := aes.NewCipher(key)
		check(t, err)
		aead, err := cipher.NewGCM(block)
		check(t, err)
		return aead
	}
	b := x.Processes[0].Chunks[1].Blocks[1]
	f := x.Files[b.File-1]
	data, err := os.ReadFile(filepath.Join(dir, f.Name))
	check(t, err)
	nonce := make([]byte, 12)
	binary.LittleEndian.PutUint64(nonce, b.Offset)
	sealed := slices.Concat(data[b.Offset:][:memfile.BlockSize], b.Tag[:])
	block, err := gcm("file "+f.Name).Open(nil, nonce, sealed, nil)
	check(t, err)
	if got, _ := memfile.DigestOf(block); got != b.Digest {
		t.Errorf("digest %v", got)
	}
	data, err = os.ReadFile(filepath.Join(dir, memfile.IndexName))
	check(t, err)
	header, body := data[:24], data[56:]
	length := binary.LittleEndian.Uint64(body)
	message, rest := body[:8+length], body[8+length:]
	digests, err := gcm("index").Open(nil, make([]byte, 12), rest, slices.Concat(header, message))
	check(t, err)
	if want := x.Processes[0].Chunks[0].Blocks[0].Digest; !bytes.HasPrefix(digests, want[:]) {
		t.Errorf("digests %x", digests)
	}
}

// What was sealed opens as it was, at its place, in its file, with its length and
// in its snapshot; and nowhere else. What lies behind it is left alone.
func TestBlocksStayWhereTheyAre(t *testing.T) {
	key, salt := newKey(t, secret()), memfile.NewSalt()
	file := func(key *memfile.Key, name int, salt memfile.Salt) *memfile.Cipher {
		c, err := key.Cipher(memfile.DataFile{Name: memfile.DataName(name), Salt: salt})
		check(t, err)
		return c
	}
	const size = 8192
	was := random(3, size+64)
	buf := slices.Clone(was)
	tag := file(key, 0, salt).Seal(buf[:size], 4096)
	if !slices.Equal(buf[size:], was[size:]) || slices.Equal(buf[:16], was[:16]) {
		t.Error("what is behind the block was changed, or the block was not")
	}
	other := slices.Clone(secret())
	other[31] ^= 1
	otherSalt := salt
	otherSalt[0] ^= 1
	for name, tc := range map[string]struct {
		c      *memfile.Cipher
		change func(b []byte) []byte
		offset uint64
		tag    memfile.Tag
		opens  bool
	}{
		"as it was":         {file(key, 0, salt), nil, 4096, tag, true},
		"another place":     {file(key, 0, salt), nil, 8192, tag, false},
		"another file":      {file(key, 1, salt), nil, 4096, tag, false},
		"another snapshot":  {file(key, 0, otherSalt), nil, 4096, tag, false},
		"another key":       {file(newKey(t, other), 0, salt), nil, 4096, tag, false},
		"another tag":       {file(key, 0, salt), nil, 4096, memfile.Tag{}, false},
		"shorter":           {file(key, 0, salt), func(b []byte) []byte { return b[:4096] }, 4096, tag, false},
		"longer":            {file(key, 0, salt), func(b []byte) []byte { return b[:size+16] }, 4096, tag, false},
		"a bit in front":    {file(key, 0, salt), func(b []byte) []byte { b[0] ^= 1; return b }, 4096, tag, false},
		"a bit at the end":  {file(key, 0, salt), func(b []byte) []byte { b[size-1] ^= 0x80; return b }, 4096, tag, false},
		"two halves turned": {file(key, 0, salt), func(b []byte) []byte { return append(slices.Clone(b[4096:]), b[:4096]...) }, 4096, tag, false},
	} {
		b := slices.Clone(buf)
		block := b[:size]
		if tc.change != nil {
			block = tc.change(block)
		}
		block = append(slices.Clone(block), b[size:]...)[:len(block)]
		if opens := tc.c.Open(block, tc.offset, tc.tag); opens != tc.opens || opens && !slices.Equal(block, was[:size]) {
			t.Errorf("%s: opens %t", name, opens)
		}
	}
}

// Who has not the key can make digests anew, and is found out nevertheless.
func TestForgeryIsFound(t *testing.T) {
	plain, dir, key := t.TempDir(), t.TempDir(), newKey(t, secret())
	build(t, plain)
	encrypt(t, plain, dir, key)
	name := filepath.Join(dir, memfile.IndexName)
	index, err := os.ReadFile(name)
	check(t, err)
	forged := func(change func(body []byte)) []byte {
		data := slices.Clone(index)
		change(data[56:])
		sum := sha256.Sum256(append(slices.Clone(data[:24]), data[56:]...))
		copy(data[24:], sum[:])
		return data
	}
	unchanged := forged(func([]byte) {})
	if !bytes.Equal(unchanged, index) {
		t.Fatal("the envelope is another")
	}
	for bit := range 8 * len(index[56:]) {
		x, err := memfile.Decode(forged(func(body []byte) { body[bit/8] ^= 1 << (bit % 8) }))
		if err == nil {
			err = x.Unlock(key)
		}
		if !errors.Is(err, memfile.ErrDamaged) && !errors.Is(err, memfile.ErrKey) {
			t.Fatalf("bit %d of the body: %v", bit, err)
		}
	}

	// The contents of two blocks are swapped.
	x, err := memfile.Decode(index)
	check(t, err)
	var message indexpb.Index
	body := index[56:]
	length := binary.LittleEndian.Uint64(body)
	check(t, proto.Unmarshal(body[8:][:length], &message))
	c := message.GetProcesses()[0].GetChunks()[0]
	c.Places[0], c.Places[1] = c.GetPlaces()[1], c.GetPlaces()[0]
	again, err := proto.MarshalOptions{Deterministic: true}.Marshal(&message)
	check(t, err)
	if len(again) != int(length) || bytes.Equal(again, body[8:][:length]) {
		t.Fatalf("%d bytes for %d", len(again), length)
	}
	swapped, err := memfile.Decode(forged(func(body []byte) { copy(body[8:], again) }))
	check(t, err)
	if err := swapped.Unlock(key); !errors.Is(err, memfile.ErrDamaged) {
		t.Errorf("swapped: %v", err)
	}

	// In the data, with the sum of the file made anew: only the tag tells.
	file := x.Files[0]
	data, err := os.ReadFile(filepath.Join(dir, file.Name))
	check(t, err)
	data[5000] ^= 4
	check(t, os.WriteFile(filepath.Join(dir, file.Name), data, 0o600))
	if _, err := memfile.Verify(t.Context(), dir, nil); !errors.Is(err, memfile.ErrDamaged) {
		t.Errorf("a changed bit, without the key: %v", err)
	}
	open, err := memfile.Decode(index)
	check(t, err)
	check(t, open.Unlock(key))
	open.Processes[0].Chunks[0].Blocks[0].Sum = memfile.Sum(data[:memfile.BlockSize])
	check(t, os.Remove(name))
	_, err = memfile.WriteIndex(dir, open, key)
	check(t, err)
	if _, err := memfile.Verify(t.Context(), dir, nil); err != nil {
		t.Errorf("without the key: %v", err)
	}
	if _, err := memfile.Verify(t.Context(), dir, key); !errors.Is(err, memfile.ErrDamaged) || !strings.Contains(err.Error(), "not what was encrypted") {
		t.Errorf("with the key: %v", err)
	}
}

func TestUnlock(t *testing.T) {
	plain, dir, key := t.TempDir(), t.TempDir(), newKey(t, secret())
	was := build(t, plain)
	encrypt(t, plain, dir, key)
	other := newKey(t, random(9, 32))
	x, err := memfile.ReadIndex(dir)
	check(t, err)
	for _, k := range []*memfile.Key{nil, other} {
		if err := x.Unlock(k); !errors.Is(err, memfile.ErrKey) || !strings.Contains(err.Error(), secretID) {
			t.Errorf("%v: %v", k, err)
		}
		if _, err := memfile.Encode(x, k); !errors.Is(err, memfile.ErrKey) {
			t.Errorf("encoded with %v: %v", k, err)
		}
	}
	// One that is not encrypted needs none.
	if err := was.Unlock(nil); err != nil {
		t.Error(err)
	}
}

// FuzzDecodeEncrypted checks that nothing happens to who decodes and verifies
// what anybody has written, and that nobody without the key can write any.
func FuzzDecodeEncrypted(f *testing.F) {
	plain, dir, key := f.TempDir(), f.TempDir(), newKey(f, secret())
	build(f, plain)
	// The fuzzer's processes have the same one: what another salt was used for has been
	// written with the key too.
	x := encryptWith(f, plain, dir, key, memfile.Salt{1})
	data, err := memfile.Encode(x, key)
	check(f, err)
	f.Add(data[56:])
	f.Add([]byte{})
	f.Add(make([]byte, 8))
	f.Add(bytes.Repeat([]byte{0xff}, 64))
	f.Fuzz(func(t *testing.T, body []byte) {
		head := binary.LittleEndian.AppendUint32([]byte("hetgpumm"), 2)
		head = binary.LittleEndian.AppendUint32(head, 0)
		head = binary.LittleEndian.AppendUint64(head, uint64(len(body)))
		sum := sha256.Sum256(append(slices.Clip(head), body...))
		got, err := memfile.Decode(slices.Concat(head, sum[:], body))
		if err != nil {
			if !errors.Is(err, memfile.ErrDamaged) {
				t.Fatalf("err = %v", err)
			}
			return
		}
		if err := got.Unlock(key); err == nil && !bytes.Equal(body, data[56:]) {
			t.Fatalf("%+v was not written with the key", got)
		}
	})
}

// Every field of an encrypted index is in it once it is decoded.
func TestEncryptedFields(t *testing.T) {
	plain, dir, key := t.TempDir(), t.TempDir(), newKey(t, secret())
	build(t, plain)
	want := encrypt(t, plain, dir, key)
	got, err := memfile.ReadIndex(dir)
	check(t, err)
	check(t, got.Unlock(key))
	if !reflect.DeepEqual(got.Files, want.Files) || !reflect.DeepEqual(got.Processes, want.Processes) || got.Salt != want.Salt {
		t.Errorf("read %+v, wrote %+v", got, want)
	}
}

// Costs of a block on one processor, each in its place: what encryption adds to a
// save (SealAndSum), to a restore (Open); Copy is a block's
// way through the memory, for comparison.
func BenchmarkBlocks(b *testing.B) {
	c, err := newKey(b, secret()).Cipher(memfile.DataFile{Name: memfile.DataName(0), Salt: memfile.NewSalt()})
	check(b, err)
	// As many as a lane's slot, so that they are not in the processor's cache.
	const blocks = 16
	buf := append(random(1, blocks*memfile.BlockSize), make([]byte, memfile.TagSize)...)
	to := make([]byte, len(buf))
	block := func(i int) []byte { return buf[i%blocks*memfile.BlockSize:][:memfile.BlockSize] }
	for name, do := range map[string]func(i int){
		"Seal": func(i int) { c.Seal(block(i), uint64(i)*memfile.BlockSize) },
		"Sum":  func(i int) { memfile.Sum(block(i)) },
		"SealAndSum": func(i int) {
			c.Seal(block(i), uint64(i)*memfile.BlockSize)
			memfile.Sum(block(i))
		},
		"Copy": func(i int) { copy(to[i%blocks*memfile.BlockSize:], block(i)) },
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(memfile.BlockSize)
			i := 0
			for b.Loop() {
				do(i)
				i++
			}
		})
	}
	b.Run("Open", func(b *testing.B) {
		b.SetBytes(memfile.BlockSize)
		var tags [blocks]memfile.Tag
		i := 0
		for b.Loop() {
			// A block that was sealed opens once.
			if i%blocks == 0 {
				b.StopTimer()
				for j := range blocks {
					tags[j] = c.Seal(block(j), uint64(j))
				}
				b.StartTimer()
			}
			if !c.Open(block(i), uint64(i%blocks), tags[i%blocks]) {
				b.Fatal("not what was sealed")
			}
			i++
		}
	})
}
