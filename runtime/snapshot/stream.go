// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
)

// Belongs tells whether a file of that name is part of a snapshot: the
// manifest itself is not, and neither are logs.
func Belongs(name string) bool { return name != ManifestName && belongs(name) }

// ReadFile reads a file of a snapshot from a stream, to its end, and returns
// what a manifest says of it. So a packed snapshot is verified without being
// unpacked: [Manifest.Compare]. Of device memory only the size is found.
func ReadFile(ctx context.Context, name string, r io.Reader) (File, error) {
	if err := checkName(name); err != nil {
		return File{}, err
	}
	f := File{Name: name, Digests: []string{}}
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	if covered(name) {
		n, err := copyContext(ctx, io.Discard, r, *buf)
		if err != nil {
			return File{}, fmt.Errorf("%s: %w", name, err)
		}
		f.Size, f.CoveredBy = n, memfile.IndexName
		return f, nil
	}
	for {
		h := sha256.New()
		n, err := copyContext(ctx, h, io.LimitReader(r, ChunkSize), *buf)
		if err != nil {
			return File{}, fmt.Errorf("%s: %w", name, err)
		}
		if n > 0 {
			f.Digests = append(f.Digests, sum(h))
			f.Size += n
		}
		if n < ChunkSize {
			return f, nil
		}
	}
}

func copyContext(ctx context.Context, w io.Writer, r io.Reader, buf []byte) (int64, error) {
	var total int64
	for {
		if ctx.Err() != nil {
			return total, context.Cause(ctx)
		}
		n, err := r.Read(buf)
		total += int64(n)
		if _, err := w.Write(buf[:n]); err != nil {
			return total, err
		}
		if errors.Is(err, io.EOF) {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

// Compare compares the files that were found with those that the manifest
// lists. Its error has every difference. A file that was found and not read
// has nil for digests, and only its size is compared.
func (m *Manifest) Compare(found []File) error {
	var errs []error
	differ := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...)))
	}
	there := make(map[string]File, len(found))
	for _, f := range found {
		if _, twice := there[f.Name]; twice {
			differ("%s is there twice", f.Name)
		}
		there[f.Name] = f
	}
	for _, want := range m.Files {
		got, ok := there[want.Name]
		delete(there, want.Name)
		switch {
		case !ok:
			differ("%s is missing", want.Name)
		case got.Size != want.Size:
			differ("%s has %d bytes, and the manifest says %d", want.Name, got.Size, want.Size)
		case got.Digests != nil:
			// As many, since it has as many bytes and its name says which have none.
			for i, digest := range want.Digests {
				if digest != got.Digests[i] {
					differ("%s", mismatch(want.Name, i, digest, got.Digests[i]))
				}
			}
		}
	}
	for name := range there {
		differ("%s is not in the manifest", name)
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}
