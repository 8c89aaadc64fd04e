// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// inventoryName is the first image that CRIU reads; no dump is without it.
const inventoryName = "inventory.img"

func directory(ctx context.Context, dir string, opts Options) (*Report, error) {
	r := newReport(KindDirectory, dir)
	var processes saved
	names, err := r.list(dir, &processes)
	if err != nil {
		return nil, err
	}
	m, err := snapshot.ReadManifest(dir)
	switch {
	case errors.Is(err, snapshot.ErrNoManifest) && !names[inventoryName]:
		return nil, fmt.Errorf("%w: %s has neither %s nor %s", ErrNoSnapshot, dir, snapshot.ManifestName, inventoryName)
	case errors.Is(err, snapshot.ErrNoManifest):
	case err != nil:
		r.problem(err)
	default:
		key := r.setManifest(m, opts)
		if err := r.verifyDirectory(ctx, dir, key, opts); err != nil {
			return nil, err
		}
	}
	r.setProcesses(&processes)
	return r, nil
}

// list counts what is in the directory, reads the images of processes, and
// returns the names.
func (r *Report) list(dir string, processes *saved) (map[string]bool, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	names := make(map[string]bool, len(entries))
	for _, e := range entries {
		names[e.Name()] = true
		if e.Name() == snapshot.ManifestName {
			continue
		}
		if !snapshot.Belongs(e.Name()) {
			r.Content.Others = append(r.Content.Others, e.Name())
			continue
		}
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		r.Content.count(info.Size())
		if isSaved(e.Name()) {
			data, err := snapshot.ReadSmall(dir, e.Name(), maxImage)
			processes.add(e.Name(), data, err)
		}
	}
	return names, nil
}

// verifyDirectory fails only if the context ended, or so.
func (r *Report) verifyDirectory(ctx context.Context, dir string, key *memfile.Key, opts Options) error {
	r.Digests = DigestsNotRead
	s, err := snapshot.Open(dir)
	if err != nil {
		r.problem(err)
		return nil
	}
	if opts.NoVerify {
		return nil
	}
	s.Key = key
	err = s.Verify(ctx, nil)
	switch {
	case err == nil:
		r.Digests = DigestsMatch
	case ctx.Err() != nil:
		return err
	default:
		r.Digests = DigestsDiffer
		r.problem(err)
	}
	return nil
}
