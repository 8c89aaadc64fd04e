// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"unicode/utf8"

	"github.com/hetgpu/containerd-shim-hetgpu/internal/durable"
)

// MaxManifestSize is the largest manifest that is read. A terabyte of images
// needs about 1.3 MiB.
const MaxManifestSize = 32 << 20

// The file is head, digest, middle, manifest, tail: valid JSON, but of one
// spelling only. So a change of any one bit of it is found: in the envelope by
// comparing, in the manifest by its digest. (A JSON decoder alone would take
// "Digest" for "digest".)
const (
	head   = `{"digest":"`
	middle = `","manifest":`
	tail   = "}\n"
)

const (
	digestPrefix = "sha256:"
	digestLen    = len(digestPrefix) + 2*sha256.Size
)

// digestOf is the digest of all of data.
func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return digestPrefix + hex.EncodeToString(sum[:])
}

// Encode returns the contents of the manifest's file. The manifest is made
// fit for it: the version, UTC, no null lists, commands without control characters.
func Encode(m *Manifest) ([]byte, error) {
	c := m.normalized()
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	body, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	data := []byte(head + digestOf(body) + middle + string(body) + tail)
	if len(data) > MaxManifestSize {
		return nil, fmt.Errorf("manifest: %d bytes, more than the %d that would be read again", len(data), MaxManifestSize)
	}
	return data, nil
}

// Decode reads the contents of a manifest's file. What it returns is valid;
// its error is [ErrCorrupt] or [ErrNewerVersion].
func Decode(data []byte) (*Manifest, error) {
	body, err := unwrap(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	// The version comes first: a newer format may have fields, and values,
	// that the strict reading below would take for damage.
	version, err := versionOf(body)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if version > Version {
		return nil, fmt.Errorf("%w: version %d, and this program reads up to %d; use a hetGPU at least as new as the one that made it", ErrNewerVersion, version, Version)
	}
	m, err := decodeStrict(body)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if err := m.validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return m, nil
}

// unwrap takes the manifest out of its envelope and checks its digest.
func unwrap(data []byte) ([]byte, error) {
	if len(data) > MaxManifestSize {
		return nil, fmt.Errorf("more than %d bytes", MaxManifestSize)
	}
	const before = len(head) + digestLen + len(middle)
	if len(data) < before+len(tail) {
		return nil, fmt.Errorf("cut short, %d bytes", len(data))
	}
	digest := data[len(head) : len(head)+digestLen]
	body := data[before : len(data)-len(tail)]
	if !bytes.HasPrefix(data, []byte(head)) || !bytes.HasSuffix(data, []byte(tail)) ||
		!bytes.Equal(data[len(head)+digestLen:before], []byte(middle)) {
		return nil, errors.New("not the envelope of digest and manifest (the file must not be reformatted)")
	}
	if got := digestOf(body); got != string(digest) {
		return nil, fmt.Errorf("the manifest has digest %s, and the file says %q", got, digest)
	}
	return body, nil
}

func versionOf(body []byte) (int64, error) {
	var v struct {
		Version *int64 `json:"version"`
	}
	if err := json.Unmarshal(body, &v); err != nil {
		return 0, err
	}
	if v.Version == nil || *v.Version < 1 {
		return 0, errors.New("no version")
	}
	return *v.Version, nil
}

func decodeStrict(body []byte) (*Manifest, error) {
	// The decoder would put a replacement for what is not UTF-8.
	if !utf8.Valid(body) {
		return nil, errors.New("not UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	m := &Manifest{}
	if err := dec.Decode(m); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("data after the manifest")
	}
	return m, nil
}

// Write writes the manifest, and is the last step of a checkpoint: the file
// appears with all of its contents, on disk, or not at all. The directory's
// other files are on disk already ([Follower.Seal]).
func Write(ctx context.Context, dir string, m *Manifest) error {
	if err := putManifest(ctx, dir, m); err != nil {
		return err
	}
	name := filepath.Join(dir, ManifestName)
	if err := durable.SyncDir(dir); err != nil {
		// It may not outlive a crash, so it must not be found now either.
		return errors.Join(fmt.Errorf("write %s: %w", name, err), os.Remove(name))
	}
	return nil
}

// putManifest gives the manifest its name. What had it before is replaced.
func putManifest(ctx context.Context, dir string, m *Manifest) error {
	name := filepath.Join(dir, ManifestName)
	data, err := Encode(m)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	tmp, err := writeTemp(dir, data)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	// After the rename there is nothing of that name, and no error to report.
	defer func() { _ = os.Remove(tmp) }()
	if ctx.Err() != nil {
		return fmt.Errorf("write %s: %w", name, context.Cause(ctx))
	}
	if err := os.Rename(tmp, name); err != nil {
		return fmt.Errorf("write the manifest: %w", err)
	}
	return nil
}

// writeTemp leaves data on disk in a file of its own in dir.
func writeTemp(dir string, data []byte) (name string, err error) {
	f, err := os.CreateTemp(dir, "."+ManifestName+".*")
	if err != nil {
		return "", err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	if _, err := f.Write(data); err != nil {
		return "", err
	}
	return f.Name(), f.Sync()
}
