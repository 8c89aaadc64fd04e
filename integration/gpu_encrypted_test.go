// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"bytes"
	"compress/flate"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/cmd/hetgpu/checkpoint"
	"github.com/hetgpu/containerd-shim-hetgpu/cmd/hetgpu/doctor"
	"github.com/hetgpu/containerd-shim-hetgpu/cmd/hetgpu/inspect"
	"github.com/hetgpu/containerd-shim-hetgpu/cmd/hetgpu/kept"
	"github.com/hetgpu/containerd-shim-hetgpu/integration/standin"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// withKey has the shims of this test encrypt device memory, and returns the file
// with the key and the key's name.
func (d *daemon) withKey(t *testing.T) (file, id string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "key")
	newKey(t, file)
	key, err := memfile.ReadKey(file)
	if err != nil {
		t.Fatal(err)
	}
	d.configure(t, fmt.Sprintf("encryption.key_file = %q\n", file))
	return file, key.ID()
}

// newKey writes another key, as docs/security.md does.
func newKey(t *testing.T, file string) {
	t.Helper()
	secret := make([]byte, memfile.KeySize)
	_, _ = rand.Read(secret) // never fails
	if err := os.WriteFile(file, []byte(hex.EncodeToString(secret)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// expectEncrypted checks that all device memory is encrypted.
func (d *daemon) expectEncrypted(ctx context.Context, t *testing.T, dir, key string) {
	t.Helper()
	s, err := snapshot.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	version := 5
	if s.Manifest.Options.WholePages { // by the kernel, and a parent
		version = 6
	}
	if s.Manifest.Version != version || s.Manifest.KeyID() != key {
		t.Errorf("version %d, not %d, key %q", s.Manifest.Version, version, s.Manifest.KeyID())
	}
	data := 0
	for _, f := range s.Manifest.Files {
		if f.CoveredBy == "" {
			continue
		}
		contents, err := os.ReadFile(filepath.Join(dir, f.Name))
		if err != nil {
			t.Fatal(err)
		}
		// The toys' memory is a pattern. What is encrypted is random for whoever
		// has not the key.
		if packed := deflated(t, contents); packed < len(contents)*99/100 {
			t.Errorf("%s has %d bytes, and %d when it is compressed: it is not encrypted", f.Name, len(contents), packed)
		}
		data += len(contents)
	}
	if data == 0 && s.Manifest.Memory.StoredBytes > 0 {
		t.Error("there is no device memory")
	}
	r := cliJSON[inspect.Report](ctx, t, d, 0, "inspect", dir)
	if r.Digests != inspect.DigestsMatch || r.Encryption == nil || !r.Encryption.Here || r.Encryption.KeyID != key {
		t.Errorf("inspect: %s, %+v", r.Digests, r.Encryption)
	}
}

func deflated(t *testing.T, contents []byte) int {
	t.Helper()
	var packed bytes.Buffer
	w, err := flate.NewWriter(&packed, flate.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(w, bytes.NewReader(contents)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return packed.Len()
}

// encryptedEngines are the two that have device memory in files.
var encryptedEngines = map[string]func(t *testing.T) (*daemon, spec){
	"split": func(t *testing.T) (*daemon, spec) {
		t.Helper()
		d := onGPUs(t)
		// Room for the original, the restored one, and what that gets twice for a
		// moment.
		d.change(t, standin.H200s(2, 1).WithMemory(256<<20))
		return d, d.splitToy("-v", "-b", "5000000")
	},
	"custom storage": func(t *testing.T) (*daemon, spec) {
		t.Helper()
		d := onStorage(t, true)
		return d, d.toy("-b", "5000000")
	},
}

// A container goes on after its checkpoint, one that adds to it is encrypted too,
// and both are restored.
func TestGPUEncrypted(t *testing.T) {
	for name, engine := range encryptedEngines {
		t.Run(name, func(t *testing.T) {
			d, s := engine(t)
			ctx := d.testContext(t)
			_, id := d.withKey(t)
			c := d.run(ctx, t, s)
			before := c.ticksOn(ctx, 1)
			base := t.TempDir()
			first, second := filepath.Join(base, "first"), filepath.Join(base, "second")
			hetgpu[checkpoint.Report](ctx, t, d, "checkpoint", c.id, "--dir", first)
			c.expectGoesOn(ctx, 1)
			hetgpu[checkpoint.Report](ctx, t, d, "checkpoint", c.id, "--dir", second, "--parent", first)
			for _, dir := range []string{first, second} {
				d.expectEncrypted(ctx, t, dir, id)
				r := d.restoreByCommand(ctx, t, dir, newID(t))
				r.expectGoesOn(ctx, 1)
				if tick := r.firstTick(); tick <= before[0] {
					t.Errorf("it went on at tick %d, and was saved after tick %d", tick, before[0])
				}
				r.stop(ctx)
			}
			c.expectGoesOn(ctx, 1)
			c.stop(ctx)
			if r := results(t, d.doctor(ctx, t), "encryption"); len(r) != 1 || r[0].Status != doctor.OK || r[0].Found == "" {
				t.Errorf("doctor: %+v", r)
			}
		})
	}
}

// Memory that was left on the GPU is encrypted when it is drained.
func TestGPUEncryptedDrain(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	file, id := d.withKey(t)
	s := d.splitToy("-v")
	c := d.run(ctx, t, s)
	c.ticksOn(ctx, 1)
	dir := c.keepIt(ctx, t)
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	expectText(t, d.cli(ctx, t, 1, "drain", dir), "mode 0644")
	expectKept(t, dir)
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	cliJSON[kept.Drained](ctx, t, d, 0, "drain", dir)
	d.expectEncrypted(ctx, t, dir, id)
	r := d.restore(ctx, t, s, dir)
	r.expectGoesOn(ctx, 1)
	r.stop(ctx)
}

// Without the key, or with another one, nothing is restored, and what was changed
// is found whoever has changed it.
func TestFaultsEncryptedRestore(t *testing.T) {
	for name, engine := range encryptedEngines {
		t.Run(name, func(t *testing.T) {
			d, s := engine(t)
			ctx := d.testContext(t)
			file, id := d.withKey(t)
			dir, _ := d.saved(ctx, t, s, 1)
			d.expectEncrypted(ctx, t, dir, id)
			key, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for name, tc := range map[string]struct {
				key    func(t *testing.T)
				damage func(t *testing.T, dir string)
				says   []string
			}{
				"no key is configured": {key: func(t *testing.T) { t.Helper(); d.configure(t, "") }, says: []string{"encrypted", id, "encryption.key_file"}},
				"the file is missing":  {key: func(t *testing.T) { t.Helper(); remove(t, file) }, says: []string{file, "no such file"}},
				"another key":          {key: func(t *testing.T) { t.Helper(); newKey(t, file) }, says: []string{id, file + " has the key"}},
				"others can read it": {key: func(t *testing.T) {
					t.Helper()
					if err := os.Chmod(file, 0o604); err != nil {
						t.Fatal(err)
					}
				}, says: []string{file, "mode 0604"}},
				"one bit of device memory": {damage: func(t *testing.T, dir string) {
					t.Helper()
					edit(t, filepath.Join(dir, memfile.DataName(0)), flip(5000, 3))
				}, says: []string{"saved device memory is damaged", "not what was encrypted"}},
				"one bit of its index": {damage: func(t *testing.T, dir string) {
					t.Helper()
					edit(t, filepath.Join(dir, memfile.IndexName), flip(90, 3))
				}, says: []string{memfile.IndexName, "digest"}},
			} {
				t.Run(name, func(t *testing.T) {
					d.logIfFailed(t)
					ctx := d.testContext(t)
					damaged := dir
					if tc.key != nil {
						tc.key(t)
					}
					if tc.damage != nil {
						damaged = copySnapshot(t, dir)
						tc.damage(t, damaged)
					}
					d.expectRestoreFails(ctx, t, s, damaged, tc.says...)
					if err := os.WriteFile(file, key, 0o600); err != nil {
						t.Fatal(err)
					}
					if err := os.Chmod(file, 0o600); err != nil {
						t.Fatal(err)
					}
				})
				// configure has taken the key out at its test's end.
				if err := d.writeConfig(fmt.Sprintf("encryption.key_file = %q\n", file)); err != nil {
					t.Fatal(err)
				}
			}
			r := d.restore(ctx, t, s, dir)
			r.expectGoesOn(ctx, 1)
			r.stop(ctx)
		})
	}
}

func remove(t *testing.T, file string) {
	t.Helper()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
}

// A checkpoint that can't be encrypted is refused, and the container does not
// notice.
func TestFaultsEncryptedCheckpoint(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	file, id := d.withKey(t)
	p := d.patient(ctx, t, d.splitToy("-b", "5000000"), 1)
	for says, change := range map[string]func() error{
		"no such file": func() error { return os.Rename(file, file+".away") },
		"mode 0640":    func() error { return os.Chmod(file, 0o640) },
		"neither 32":   func() error { return os.Truncate(file, 31) },
	} {
		key, err := os.ReadFile(file)
		if err == nil {
			err = change()
		}
		if err != nil {
			t.Fatal(err)
		}
		p.expectOutcome(p.checkpointDirectly(ctx, false), []string{"preflight", file, says})
		p.expectUnharmed(ctx)
		if err := os.WriteFile(file, key, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p.expectRecovered(ctx)
	d.expectEncrypted(ctx, t, p.dir, id)

	// What the driver puts into the process goes to CRIU's files as it is.
	q := d.patient(ctx, t, d.toy(), 1)
	q.expectOutcome(q.checkpointDirectly(ctx, false), []string{"preflight", "device memory would not be encrypted", "encryption.allow_plain"})
	q.expectUnharmed(ctx)
	q.stop(ctx)
	d.configure(t, fmt.Sprintf("encryption.key_file = %q\nencryption.allow_plain = true\n", file))
	r := d.patient(ctx, t, d.toy(), 1)
	r.expectRecovered(ctx)
}
