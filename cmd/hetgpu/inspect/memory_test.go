// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"bytes"
	"compress/gzip"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// split is a snapshot with device memory in files: a block, and one of zeros.
func split(t *testing.T) files { t.Helper(); return splitWith(t, nil) }

// splitWith encrypts the memory, if there is a key.
func splitWith(t *testing.T, key *memfile.Key) files {
	t.Helper()
	data := strings.Repeat("m", memfile.BlockSize)
	digest, _ := memfile.DigestOf([]byte(data))
	zero, _ := memfile.DigestOf(make([]byte, memfile.BlockSize))
	x := &memfile.Index{
		Files: []memfile.DataFile{{Name: memfile.DataName(0), Size: uint64(len(data))}},
		Processes: []memfile.Process{{Chunks: []memfile.Chunk{{
			ID: 1, Address: 1 << 30, Size: 2 * memfile.BlockSize, Blocks: []memfile.Block{{File: 1, Digest: digest}, {Digest: zero}},
		}}}},
	}
	if key != nil {
		x.KeyID, x.Salt = key.ID(), memfile.NewSalt()
		x.Files[0].Salt = x.Salt
		c, err := key.Cipher(x.Files[0])
		if err != nil {
			t.Fatal(err)
		}
		block := append([]byte(data), make([]byte, memfile.TagSize)...)[:len(data)]
		b := &x.Processes[0].Chunks[0].Blocks[0]
		b.Tag = c.Seal(block, 0)
		b.Sum = memfile.Sum(block)
		data = string(block)
	}
	index, err := memfile.Encode(x, key)
	if err != nil {
		t.Fatal(err)
	}
	all := files{memfile.DataName(0): data, memfile.IndexName: string(index)}
	maps.Copy(all, gpu(t, func(m *snapshot.Manifest) {
		m.Engine, m.EngineReason = snapshot.EngineSplit, "process 8: it does not run libhetcuda"
		m.Library = &snapshot.Library{BuildID: "00ff"}
		m.Processes[0].Memory, m.Processes[1].Memory = snapshot.MemorySplit, snapshot.MemoryDriver
		m.Memory = &snapshot.Memory{Bytes: 2 * memfile.BlockSize, ZeroBytes: memfile.BlockSize, StoredBytes: memfile.BlockSize, KeyID: x.KeyID}
		for name, text := range all {
			f, err := snapshot.ReadFile(t.Context(), name, strings.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			m.Files = append(m.Files, f)
		}
	}))
	return all
}

// packed packs a tar.
func packed(t *testing.T, tar []byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	if _, err := z.Write(tar); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestDeviceMemory(t *testing.T) {
	dir := split(t).dir(t)
	r, err := Inspect(t.Context(), dir, Options{})
	if err != nil || r.Digests != DigestsMatch {
		t.Fatalf("report %+v, %v", r, err)
	}
	var b strings.Builder
	if err := r.Print(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"engine", "split", "process 8: it does not run libhetcuda", "build 00ff", "memory in files", "memory saved by the driver",
		"4.0 MiB: 2.0 MiB stored, 2.0 MiB zero",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	name := filepath.Join(t.TempDir(), "snapshot.tar")
	write := func(tar []byte) {
		t.Helper()
		if err := os.WriteFile(name, tar, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(split(t).tar(t, "checkpoint/"))
	if r, err := Inspect(t.Context(), name, Options{}); err != nil || r.Digests != DigestsMatch {
		t.Errorf("in a tar: %+v, %v", r, err)
	}
	if r, err := Inspect(t.Context(), name, Options{NoVerify: true}); err != nil || r.Digests != DigestsNotRead {
		t.Errorf("in a tar, not read: %+v, %v", r, err)
	}
	write(packed(t, split(t).tar(t, "checkpoint/")))
	if r, err := Inspect(t.Context(), name, Options{}); err != nil || r.Digests != DigestsPartly {
		t.Errorf("packed: %+v, %v", r, err)
	}
	damaged := split(t)
	damaged[memfile.DataName(0)] = "M" + damaged[memfile.DataName(0)][1:]
	write(damaged.tar(t, "checkpoint/"))
	for _, path := range []string{damaged.dir(t), name} {
		if r, err := Inspect(t.Context(), path, Options{}); !errors.Is(err, ErrProblems) || r.Digests != DigestsDiffer {
			t.Errorf("damaged: %+v, %v", r, err)
		}
	}
}

// What is encrypted is verified without its key, as far as that can be, and with
// it all the way.
func TestEncryptedMemory(t *testing.T) {
	key, err := memfile.NewKey([]byte("0123456789abcdefghijklmnopqrstuv"))
	if err != nil {
		t.Fatal(err)
	}
	has := func(string) (*memfile.Key, error) { return key, nil }
	hasNot := func(id string) (*memfile.Key, error) { return memfile.KeyFor(id, "") }
	whole := splitWith(t, key)
	name := filepath.Join(t.TempDir(), "snapshot.tar")
	if err := os.WriteFile(name, whole.tar(t, ""), 0o600); err != nil {
		t.Fatal(err)
	}
	for says, opts := range map[string]Options{"with this host's key " + key.ID(): {Key: has}, "which is not here": {Key: hasNot}, "with the key " + key.ID(): {}} {
		for path, digests := range map[string]string{whole.dir(t): DigestsMatch, name: DigestsMatch} {
			r, err := Inspect(t.Context(), path, opts)
			if err != nil || r.Digests != digests || r.Encryption.KeyID != key.ID() || r.Encryption.Here != (r.Encryption.Reason == "") {
				t.Fatalf("%+v, %v", r, err)
			}
			var b strings.Builder
			if err := r.Print(&b); err != nil || !strings.Contains(b.String(), says) {
				t.Errorf("no %q in\n%s", says, b.String())
			}
		}
	}
	damaged := splitWith(t, key)
	data := []byte(damaged[memfile.DataName(0)])
	data[77] ^= 1
	damaged[memfile.DataName(0)] = string(data)
	for _, opts := range []Options{{Key: has}, {Key: hasNot}} {
		if r, err := Inspect(t.Context(), damaged.dir(t), opts); !errors.Is(err, ErrProblems) || r.Digests != DigestsDiffer {
			t.Errorf("damaged: %+v, %v", r, err)
		}
	}
	// Another key's file under this key's name: only the key tells.
	other, err := memfile.NewKey([]byte("vutsrqponmlkjihgfedcba9876543210"))
	if err != nil {
		t.Fatal(err)
	}
	if r, err := Inspect(t.Context(), whole.dir(t), Options{Key: func(string) (*memfile.Key, error) { return other, nil }}); !errors.Is(err, ErrProblems) {
		t.Errorf("another key: %+v, %v", r, err)
	}
}
