// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
)

// keptExample has its device memory in no file.
func keptExample() *Manifest {
	m := splitExample()
	m.Version = 4
	m.Memory = &Memory{Bytes: 10, KeptBytes: 10, Keeper: &Keeper{
		BootID: "01234567-89ab-cdef-0123-456789abcdef", ID: strings.Repeat("0f", 16), Digest: zeros,
	}}
	m.Files = m.Files[:2]
	return m
}

func TestDecodeRefusesKept(t *testing.T) {
	for name, tc := range map[string]struct {
		edit func(*Manifest)
		text string
	}{
		"version 2":            {func(m *Manifest) { m.Version = 2 }, "version 2 has fields of version 4"},
		"no keeper":            {func(m *Manifest) { m.Memory.Keeper = nil }, "are kept"},
		"kept in part":         {func(m *Manifest) { m.Memory.KeptBytes, m.Memory.StoredBytes = 9, 1 }, "are kept"},
		"kept by nobody":       {func(m *Manifest) { m.Memory.KeptBytes, m.Memory.StoredBytes = 0, 10 }, "are kept"},
		"a name that is a way": {func(m *Manifest) { m.Memory.Keeper.ID = "../../x" }, "keeper"},
		"a short name":         {func(m *Manifest) { m.Memory.Keeper.ID = "0f" }, "keeper"},
		"no boot":              {func(m *Manifest) { m.Memory.Keeper.BootID = "" }, "keeper"},
		"no digest":            {func(m *Manifest) { m.Memory.Keeper.Digest = "" }, "keeper"},
		"files besides":        {func(m *Manifest) { m.Files = splitExample().Files }, "no device memory in files"},
		"another engine":       {func(m *Manifest) { m.Engine, m.Processes = EngineDriver, nil }, "device memory"},
	} {
		t.Run(name, func(t *testing.T) {
			m := keptExample()
			tc.edit(m)
			body, err := jsonOf(m)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := Decode(envelope(body)); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("Decode = %v, %v; want one with %q", got, err, tc.text)
			}
		})
	}
}

// withKept makes a snapshot whose device memory is kept.
func withKept(t *testing.T) *Snapshot {
	t.Helper()
	dir := t.TempDir()
	f, err := Follow(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Stop()
	put(t, dir, "core-1.img", "registers")
	m := keptExample()
	if m.Files, err = f.Seal(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := Write(t.Context(), dir, m); err != nil {
		t.Fatal(err)
	}
	// What a drain that was cut short has left is no part of it.
	put(t, dir, memfile.DataName(3), "half")
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if x, err := s.ReadMemory(); x != nil || err != nil || !slices.Equal(s.Extras, []string{memfile.DataName(3)}) {
		t.Errorf("index %v, %v; beside is %v", x, err, s.Extras)
	}
	return s
}

func TestDrain(t *testing.T) {
	s := withKept(t)
	err := s.Drain(t.Context(), func(context.Context) (Memory, error) {
		if _, err := os.Lstat(filepath.Join(s.Dir, memfile.DataName(3))); err == nil {
			t.Error("what was left is still there")
		}
		return writeMemory(t, s.Dir), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := Open(s.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := got.Verify(t.Context(), nil); err != nil {
		t.Error(err)
	}
	m := got.Manifest
	if m.Version != 2 || m.Kept() != nil || *m.Memory != *s.Manifest.Memory || len(m.Files) != 3 || m.Container != keptExample().Container {
		t.Errorf("%+v", m)
	}
	if err := got.Drain(t.Context(), nil); err == nil {
		t.Error("drained twice")
	}
}

// A drain that fails leaves the snapshot as it was.
func TestDrainFails(t *testing.T) {
	fault := errors.New("fault")
	for name, save := range map[string]func(s *Snapshot) (Memory, error){
		"half written": func(s *Snapshot) (Memory, error) { put(t, s.Dir, memfile.DataName(0), "half"); return Memory{}, fault },
		"another memory": func(s *Snapshot) (Memory, error) {
			m := writeMemory(t, s.Dir)
			m.ZeroBytes--
			m.StoredBytes++
			return m, nil
		},
		"nothing": func(*Snapshot) (Memory, error) { return Memory{}, nil },
	} {
		t.Run(name, func(t *testing.T) {
			s := withKept(t)
			before, err := os.ReadFile(filepath.Join(s.Dir, ManifestName))
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Drain(t.Context(), func(context.Context) (Memory, error) { return save(s) }); err == nil {
				t.Error("it succeeded")
			}
			after, err := os.ReadFile(filepath.Join(s.Dir, ManifestName))
			if err != nil || string(after) != string(before) {
				t.Errorf("the manifest is %s, %v", after, err)
			}
			got, err := Open(s.Dir)
			if err != nil || len(got.Extras) > 0 || got.Manifest.Kept() == nil || s.Manifest.Kept() == nil {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}
