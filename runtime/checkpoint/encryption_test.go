// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// keyFile writes a key, of digits that follow one another from the first one on.
func keyFile(t *testing.T, first int) (string, *memfile.Key) {
	t.Helper()
	const digits = "0123456789abcdef0123456789abcdef"
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(strings.Repeat(digits[first:]+digits[:first], 2)), 0o600); err != nil {
		t.Fatal(err)
	}
	key, err := memfile.ReadKey(file)
	if err != nil {
		t.Fatal(err)
	}
	return file, key
}

// encrypted is a world whose engine encrypts, and whose processes are all split.
func encrypted(t *testing.T) (w *world, c *Container, file string) {
	t.Helper()
	w = newSplitWorld(t)
	w.split = []int{100, 101}
	file, w.key = keyFile(t, 1)
	c = w.container()
	c.Encryption.KeyFile = file
	return w, c, file
}

func TestEncrypted(t *testing.T) {
	w, c, file := encrypted(t)
	dir := filepath.Join(t.TempDir(), "snapshot")
	m, err := c.Checkpoint(t.Context(), splitRequest(dir, true))
	if err != nil {
		t.Fatal(err)
	}
	snap, err := snapshot.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if snap.Manifest.Version != 5 || m.KeyID() != w.key.ID() {
		t.Errorf("version %d, key %q", snap.Manifest.Version, m.KeyID())
	}
	other, _ := keyFile(t, 2)
	open := filepath.Join(t.TempDir(), "open")
	if err := os.WriteFile(open, []byte(strings.Repeat("0123456789abcdef", 4)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o640); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		file string
		is   error
		says string
	}{
		"no key file":    {"", memfile.ErrKey, "encryption.key_file"},
		"another key":    {other, memfile.ErrKey, "has the key"},
		"missing":        {file + "x", memfile.ErrKeyFile, "no such file"},
		"others read it": {open, memfile.ErrKeyFile, "mode 0640"},
	} {
		w := restoredSplit(t)
		_, err := Open(t.Context(), dir, Target{GPU: w.gpu(), Library: library, KeyFile: tc.file})
		if !errors.Is(err, tc.is) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", name, err)
		}
		if len(slices.DeleteFunc(w.calls, func(call string) bool { return call == "match" })) > 0 {
			t.Errorf("%s: called %v", name, w.calls)
		}
	}
	again := restoredSplit(t)
	r, err := Open(t.Context(), dir, Target{GPU: again.gpu(), Library: library, KeyFile: file})
	if err != nil {
		t.Fatal(err)
	}
	r.Close(t.Context())

	// An index that somebody has made anew, and its digest in the manifest too.
	forge(t, dir, w.key)
	w2 := restoredSplit(t)
	if _, err := Open(t.Context(), dir, Target{GPU: w2.gpu(), Library: library, KeyFile: file}); !errors.Is(err, snapshot.ErrCorrupt) || !strings.Contains(err.Error(), "not written with the key") {
		t.Errorf("a forged index: %v", err)
	}
	if slices.Contains(w2.calls, "load") {
		t.Errorf("a forged index: called %v", w2.calls)
	}
}

// forge changes the index, its digest and the manifest, as who has not the key can.
func forge(t *testing.T, dir string, was *memfile.Key) {
	t.Helper()
	_, other := keyFile(t, 5)
	index, err := memfile.ReadIndex(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := index.Unlock(was); err != nil {
		t.Fatal(err)
	}
	// With another key, under the name of the first.
	index.KeyID = other.ID()
	data, err := memfile.Encode(index, other)
	if err != nil {
		t.Fatal(err)
	}
	data = memfileRenamed(t, data, other.ID(), was.ID())
	if err := os.WriteFile(filepath.Join(dir, memfile.IndexName), data, 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := snapshot.ReadManifest(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range m.Files {
		if f.Name == memfile.IndexName {
			if m.Files[i], err = snapshot.ReadFile(t.Context(), f.Name, strings.NewReader(string(data))); err != nil {
				t.Fatal(err)
			}
		}
	}
	encoded, err := snapshot.Encode(m)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, snapshot.ManifestName), encoded, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// What can't be encrypted as it has to be is found out before anything is
// changed, or undone.
func TestEncryptionRefused(t *testing.T) {
	base := t.TempDir()
	for name, key := range map[string]bool{"plain": false, "sealed": true} {
		w, c, _ := encrypted(t)
		if !key {
			w.key, c.Encryption = nil, Encryption{}
		}
		if _, err := c.Checkpoint(t.Context(), splitRequest(filepath.Join(base, name), false)); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		change func(w *world, c *Container, r *Request)
		is     error
		says   string
		begun  bool
	}{
		"no such file": {func(_ *world, c *Container, _ *Request) { c.Encryption.KeyFile += "x" }, memfile.ErrKeyFile, "no such file", false},
		"others read the file": {func(_ *world, c *Container, _ *Request) {
			if err := os.Chmod(c.Encryption.KeyFile, 0o604); err != nil {
				t.Fatal(err)
			}
		}, memfile.ErrKeyFile, "mode 0604", false},
		"a process that is not split": {func(w *world, _ *Container, _ *Request) { w.split = []int{100} }, ErrPlain, "process 101: device memory would not be encrypted: the driver would put its device memory into the process (it does not run libhetcuda)", false},
		"the driver engine":           {func(w *world, c *Container, _ *Request) { w.engine = snapshot.EngineDriver; c.GPU = w.gpu() }, ErrPlain, "process 100", false},
		"it proves to be none":        {func(w *world, _ *Container, _ *Request) { w.refused = []int{101} }, ErrPlain, "the driver refuses it", true},
		"the helper does not encrypt": {func(w *world, _ *Container, _ *Request) { w.key = nil }, ErrPlain, "it is not encrypted, and was to be encrypted with the key", true},
		"upon one that is plain":      {func(_ *world, _ *Container, r *Request) { r.MemoryParent = "../plain" }, ErrParent, "is not encrypted", false},
		"upon one of another key": {func(w *world, c *Container, r *Request) {
			c.Encryption.KeyFile, w.key = keyFile(t, 3)
			r.MemoryParent = "../sealed"
		}, ErrParent, "is encrypted with the key", false},
		"plain upon one that is not": {func(w *world, c *Container, r *Request) {
			c.Encryption, w.key = Encryption{}, nil
			r.MemoryParent = "../sealed"
		}, ErrParent, "is to be not encrypted", false},
	} {
		t.Run(name, func(t *testing.T) {
			w, c, _ := encrypted(t)
			dir := filepath.Join(base, strings.ReplaceAll(name, " ", "-"))
			r := splitRequest(dir, false)
			r.Manifest.Options.Incremental = true
			tc.change(w, c, &r)
			_, err := c.Checkpoint(t.Context(), r)
			if !errors.Is(err, tc.is) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("err = %v", err)
			}
			if begun := slices.Contains(w.calls, "lock"); begun != tc.begun {
				t.Errorf("called %v", w.calls)
			}
			if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the directory is there: %v", err)
			}
			if len(w.away) > 0 || w.held || !w.alive {
				t.Errorf("away %v, held %t, alive %t", w.away, w.held, w.alive)
			}
		})
	}
}

// What needs no key, or may be plain, is saved.
func TestEncryptionAllowed(t *testing.T) {
	for name, change := range map[string]func(w *world, c *Container){
		"plain is allowed": func(w *world, c *Container) { w.split, c.Encryption.AllowPlain = []int{100}, true },
		"no GPU state": func(w *world, c *Container) {
			clear(w.states)
			c.Encryption.KeyFile += "x"
		},
		"upon one with the same key": nil,
	} {
		t.Run(name, func(t *testing.T) {
			w, c, _ := encrypted(t)
			if change != nil {
				change(w, c)
			}
			base := t.TempDir()
			if _, err := c.Checkpoint(t.Context(), splitRequest(filepath.Join(base, "first"), false)); err != nil {
				t.Fatal(err)
			}
			if change != nil {
				return
			}
			r := splitRequest(filepath.Join(base, "second"), false)
			r.MemoryParent, r.Manifest.Options.Incremental = "../first", true
			if _, err := c.Checkpoint(t.Context(), r); err != nil {
				t.Error(err)
			}
		})
	}
}

// memfileRenamed replaces the name of the key in an index, and makes its digest
// anew.
func memfileRenamed(t *testing.T, index []byte, from, to string) []byte {
	t.Helper()
	const header, before = 24, 24 + sha256.Size
	body := bytes.Replace(index[before:], []byte(from), []byte(to), 1)
	sum := sha256.Sum256(slices.Concat(index[:header], body))
	return slices.Concat(index[:header], sum[:], body)
}
