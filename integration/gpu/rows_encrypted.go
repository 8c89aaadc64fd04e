// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// encryptedMiB is the device memory that is saved encrypted: so much that its rate
// can be told.
const encryptedMiB = 8 << 10

// encrypted saves a program whose device memory is encrypted in its files. Without
// the key it is not restored, and with it it goes on.
func encrypted(ctx context.Context, t *test) (string, error) {
	right, id, err := t.newKey("right")
	if err != nil {
		return "", err
	}
	wrong, _, err := t.newKey("wrong")
	if err != nil {
		return "", err
	}
	t.cleanup(func(context.Context) error { return t.configure("") })
	if err := t.configure(encryptedBy(right)); err != nil {
		return "", err
	}
	l, err := t.start(ctx, 1, "-b", t.memory(encryptedMiB))
	if err != nil {
		return "", err
	}
	before, dir := l.last(), t.directory("snapshot")
	saved, err := l.Checkpoint(ctx, dir, false)
	if err != nil {
		return "", err
	}
	if err := l.more(ctx, warmup); err != nil {
		return "", fmt.Errorf("the original after the checkpoint: %w", err)
	}
	m, err := snapshot.ReadManifest(dir)
	if err != nil {
		return "", err
	}
	if m.KeyID() != id {
		return "", fmt.Errorf("the snapshot is encrypted with the key %q, and was to be with %q", m.KeyID(), id)
	}
	t.note("%s MiB of device memory. Phases: %s", t.memory(encryptedMiB),
		phaseList([]Sample{{CheckpointPhases: m.Phases}}, func(s Sample) phases { return s.CheckpointPhases }))
	for _, other := range []struct{ what, config string }{{"without a key", ""}, {"with another key", encryptedBy(wrong)}} {
		if err := t.configure(other.config); err != nil {
			return "", err
		}
		if _, _, err := t.restored(ctx, l, dir, 0); err == nil {
			return "", fmt.Errorf("it was restored %s", other.what)
		}
	}
	if err := t.configure(encryptedBy(right)); err != nil {
		return "", err
	}
	copied, took, err := t.restored(ctx, l, dir, 0)
	if err != nil {
		return "", err
	}
	return times(saved, took) + "; refused without the key and with another", errors.Join(copied.wentOn(before, false), l.more(ctx, warmup))
}

func encryptedBy(key string) string { return fmt.Sprintf("[encryption]\nkey_file = %q\n", key) }

// newKey writes a key as docs/security.md does, and returns its file and its name.
func (t *test) newKey(name string) (file, id string, err error) {
	secret := make([]byte, memfile.KeySize)
	_, _ = rand.Read(secret) // never fails
	file = filepath.Join(t.work, t.id(name))
	if err := os.WriteFile(file, []byte(hex.EncodeToString(secret)+"\n"), 0o600); err != nil {
		return "", "", err
	}
	key, err := memfile.ReadKey(file)
	if err != nil {
		return "", "", err
	}
	return file, key.ID(), nil
}

// configure writes the configuration of shims and commands that start from now on.
func (s *suite) configure(more string) error {
	text := fmt.Sprintf("log_dir = %q\nstate_dir = %q\n", filepath.Join(s.out, "failures"), filepath.Join(s.work, "state"))
	return os.WriteFile(s.configFile(), []byte(strings.TrimSpace(text+more)+"\n"), 0o600)
}

func (s *suite) configFile() string { return filepath.Join(s.work, "config.toml") }
