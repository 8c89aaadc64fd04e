// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
)

// splitExample has what version 2 brought, everywhere.
func splitExample() *Manifest {
	m := example()
	m.Version, m.Engine, m.EngineReason = 2, EngineSplit, "process 9: it does not run libhetcuda"
	m.Library = &Library{BuildID: "0123456789abcdef"}
	m.Processes[0].Memory = MemorySplit
	m.Processes = append(m.Processes, Process{NSPIDs: []int{9}, Command: "static", State: gpuplugin.StateRunning, Memory: MemoryDriver})
	m.Memory = &Memory{Bytes: 10, ZeroBytes: 4, StoredBytes: 5, ReusedBytes: 1}
	m.Files = append(m.Files,
		File{Name: memfile.DataName(0), Size: 4096, Digests: []string{}, CoveredBy: memfile.IndexName},
		File{Name: memfile.IndexName, Size: 10, Digests: []string{zeros}})
	return m
}

// storageExample has what version 3 brought.
func storageExample() *Manifest {
	m := splitExample()
	m.Version, m.Engine, m.Library = 3, EngineDriver, nil
	m.EngineReason = "process 9: the driver's custom storage: CUDA_ERROR_NOT_SUPPORTED"
	m.Processes[0].Memory = MemoryStorage
	return m
}

// A manifest has the oldest version that can say it.
func TestVersions(t *testing.T) {
	for name, tc := range map[string]struct {
		edit func(*Manifest)
		want int
	}{
		"nothing new": {func(*Manifest) {}, 1},
		"a reason":    {func(m *Manifest) { m.EngineReason = "why" }, 2},
		"a library":   {func(m *Manifest) { m.Library = &Library{BuildID: "00ff"} }, 2},
		"all of it":   {func(m *Manifest) { *m = *splitExample() }, 2},
		"storage":     {func(m *Manifest) { *m = *storageExample() }, 3},
		"a key":       {func(m *Manifest) { *m = *splitExample(); m.Memory.KeyID = "0123456789abcdef" }, 5},
		"a keeper":    {func(m *Manifest) { *m = *keptExample() }, 4},
		"a parent":    {func(m *Manifest) { m.Options.Incremental = true }, 1},
		"whole pages": {func(m *Manifest) { m.Options.Incremental, m.Options.WholePages = true, true }, 6},
	} {
		m := example()
		tc.edit(m)
		m.Version = 7
		got, err := Decode(encode(t, m))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if m.Version = tc.want; !reflect.DeepEqual(got, m) {
			t.Errorf("%s: got %+v\nwant %+v", name, got, m)
		}
	}
}

func TestDecodeRefusesSplit(t *testing.T) {
	for name, tc := range map[string]struct {
		edit func(*Manifest)
		text string
	}{
		"version 1 with a reason":       {func(m *Manifest) { *m = *example(); m.EngineReason = "why" }, "version 1 has fields of version 2"},
		"version 1 with a library":      {func(m *Manifest) { *m = *example(); m.Library = &Library{BuildID: "00"} }, "version 1 has fields"},
		"version 1 with a stop time":    {func(m *Manifest) { *m = *example(); m.StopSeconds = 0.5 }, "version 1 has fields"},
		"version 1 with the engine":     {func(m *Manifest) { m.Version = 1 }, "version 1 has fields"},
		"no library":                    {func(m *Manifest) { m.Library = nil }, "no process, library or memory"},
		"no memory":                     {func(m *Manifest) { m.Memory = nil }, "no process, library or memory"},
		"no process that is split":      {func(m *Manifest) { m.Processes[0].Memory = MemoryDriver }, "no process, library or memory"},
		"a process that is neither":     {func(m *Manifest) { m.Processes[0].Memory = "" }, `memory ""`},
		"a process that is something":   {func(m *Manifest) { m.Processes[1].Memory = "else" }, `memory "else"`},
		"split with another engine":     {func(m *Manifest) { m.Version, m.Engine = 3, EngineDriver }, `with engine "driver"`},
		"memory of no process":          {func(m *Manifest) { m.Version, m.Engine, m.Processes = 3, EngineDriver, nil }, "device memory in files"},
		"memory with no engine":         {func(m *Manifest) { m.Version, m.Engine, m.Processes = 3, EngineNone, nil }, "device memory in files"},
		"storage in version 2":          {func(m *Manifest) { *m = *storageExample(); m.Version = 2 }, "version 2 has fields of version 3"},
		"storage and no memory":         {func(m *Manifest) { *m = *storageExample(); m.Memory = nil }, `memory "storage"`},
		"storage with the split engine": {func(m *Manifest) { *m = *storageExample(); m.Engine = EngineSplit }, `memory "storage"`},
		"all of it saved by the driver": {func(m *Manifest) { *m = *storageExample(); m.Processes[0].Memory = MemoryDriver }, "of no process"},
		"files without memory":          {func(m *Manifest) { m.Engine, m.Processes, m.Memory = EngineDriver, nil, nil }, "no device memory"},
		"build id in capitals":          {func(m *Manifest) { m.Library.BuildID = "AB" }, "build id"},
		"no build id":                   {func(m *Manifest) { m.Library.BuildID = "" }, "build id"},
		"build id that is none":         {func(m *Manifest) { m.Library.BuildID = "../x" }, "build id"},
		"parts of more than all":        {func(m *Manifest) { m.Memory.ZeroBytes = 11 }, "parts of more"},
		"parts that overflow":           {func(m *Manifest) { m.Memory.StoredBytes = ^uint64(0) - 3 }, "parts of more"},
		"parts of less than all":        {func(m *Manifest) { m.Memory.ReusedBytes = 0 }, "in no part"},
		"no index":                      {func(m *Manifest) { m.Files = m.Files[:3] }, "and no file"},
		"covered by nothing":            {func(m *Manifest) { m.Files[2].CoveredBy = "" }, "digests"},
		"covered by another":            {func(m *Manifest) { m.Files[2].CoveredBy = "core-1.img" }, "covered by"},
		"covered and with digests":      {func(m *Manifest) { m.Files[2].Digests = []string{zeros} }, "digests"},
		"an index that is covered":      {func(m *Manifest) { m.Files[3].CoveredBy, m.Files[3].Digests = memfile.IndexName, nil }, "covered by"},
		"an image of CRIU, covered":     {func(m *Manifest) { m.Files[0].CoveredBy, m.Files[0].Digests = memfile.IndexName, nil }, "covered by"},
		"an empty file that is covered": {func(m *Manifest) { m.Files[1].CoveredBy = memfile.IndexName }, "covered by"},
		"a reason of more than is read": {func(m *Manifest) { m.EngineReason = strings.Repeat("x", maxText+1) }, "engine reason"},
		"encrypted in version 4":        {func(m *Manifest) { m.Version, m.Memory.KeyID = 4, "0123456789abcdef" }, "version 4 has fields of version 5"},
		"a key's name that is none":     {func(m *Manifest) { m.Version, m.Memory.KeyID = 5, "../x" }, "encrypted with the key"},
		"whole pages in version 5": {func(m *Manifest) {
			m.Version, m.Options.Incremental, m.Options.WholePages = 5, true, true
		}, "version 5 has fields of version 6"},
		"whole pages and no parent": {func(m *Manifest) { m.Version, m.Options.WholePages = 6, true }, "left in a snapshot before"},
		"kept, and encrypted": {func(m *Manifest) {
			m.Version, m.Memory.KeyID, m.Memory.Keeper = 5, "0123456789abcdef", &Keeper{}
		}, "keeper"},
		"a number that is spelled oddly":  {func(m *Manifest) { m.Files[2].Name = "hetgpu-mem-00.img" }, "covered by"},
		"data that only looks like it is": {func(m *Manifest) { m.Files[2].Name = "hetgpu-mem-x.img" }, "covered by"},
	} {
		t.Run(name, func(t *testing.T) {
			m := splitExample()
			tc.edit(m)
			for i := range m.Files {
				m.Files[i].Digests = append([]string{}, m.Files[i].Digests...)
			}
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

// withMemory makes a snapshot with 3 blocks of device memory, one of zeros.
func withMemory(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	f, err := Follow(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Stop()
	put(t, dir, "core-1.img", "registers")
	memory := writeMemory(t, dir)
	m := splitExample()
	m.Memory = &memory
	if m.Files, err = f.Seal(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := Write(t.Context(), dir, m); err != nil {
		t.Fatal(err)
	}
	return dir
}

// writeMemory writes 3 blocks of device memory, one of zeros.
func writeMemory(t *testing.T, dir string) Memory {
	t.Helper()
	contents := strings.Repeat("a", memfile.BlockSize) + strings.Repeat("b", memfile.BlockSize)
	put(t, dir, memfile.DataName(0), contents)
	chunk := memfile.Chunk{ID: 1, Address: 2 << 20, Size: 3 * memfile.BlockSize, Blocks: make([]memfile.Block, 3)}
	chunk.Blocks[2].Digest, _ = memfile.DigestOf(make([]byte, memfile.BlockSize))
	for i := range 2 {
		digest, _ := memfile.DigestOf([]byte(contents[i*memfile.BlockSize:][:memfile.BlockSize]))
		chunk.Blocks[i] = memfile.Block{File: 1, Offset: uint64(i) * memfile.BlockSize, Digest: digest}
	}
	index := &memfile.Index{
		Files:     []memfile.DataFile{{Name: memfile.DataName(0), Size: uint64(len(contents))}},
		Processes: []memfile.Process{{Chunks: []memfile.Chunk{chunk}}},
	}
	if _, err := memfile.WriteIndex(dir, index, nil); err != nil {
		t.Fatal(err)
	}
	return Memory{Bytes: 3 * memfile.BlockSize, ZeroBytes: memfile.BlockSize, StoredBytes: 2 * memfile.BlockSize}
}

func TestMemory(t *testing.T) {
	dir := withMemory(t)
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Verify(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if x, err := s.ReadMemory(); err != nil || len(x.Processes) != 1 {
		t.Errorf("index %v, %v", x, err)
	}
	for _, f := range s.Manifest.Files {
		if is := f.Name == memfile.DataName(0); is != (f.CoveredBy != "") || is != (len(f.Digests) == 0) {
			t.Errorf("%+v", f)
		}
		if f.Name == memfile.IndexName && !IsMetadata(f) {
			t.Error("the index is not verified before CRIU starts")
		}
	}
	// Any change is found by who reads all, and who loads it reads the rest.
	flip(t, filepath.Join(dir, memfile.DataName(0)), memfile.BlockSize+5)
	if err := s.Verify(t.Context(), nil); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a changed bit of data: %v", err)
	}
	if err := s.Verify(t.Context(), func(File) bool { return true }); err != nil {
		t.Errorf("what is not read: %v", err)
	}
	flip(t, filepath.Join(dir, memfile.IndexName), 20)
	if err := s.Verify(t.Context(), IsMetadata); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a changed bit of the index: %v", err)
	}
}

// A manifest and an index that are not of the same snapshot.
func TestMemoryOfAnother(t *testing.T) {
	for name, edit := range map[string]func(*Manifest){
		"another process":      func(m *Manifest) { m.Processes[1].Memory = MemorySplit },
		"another size":         func(m *Manifest) { m.Memory.ZeroBytes--; m.Memory.StoredBytes++ },
		"another size of data": func(m *Manifest) { m.Files[1].Size++ },
		"data that is not in it": func(m *Manifest) {
			m.Files = append(m.Files, File{Name: memfile.DataName(1), CoveredBy: memfile.IndexName, Digests: []string{}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := withMemory(t)
			s, err := Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			edit(s.Manifest)
			if _, err := s.ReadMemory(); !errors.Is(err, ErrCorrupt) {
				t.Errorf("error is %v", err)
			}
		})
	}
	dir := withMemory(t)
	if err := os.Remove(filepath.Join(dir, memfile.DataName(0))); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); !errors.Is(err, ErrCorrupt) {
		t.Errorf("data that is missing: %v", err)
	}
}

func TestText(t *testing.T) {
	m := example()
	m.EngineReason = Text("a\nb" + strings.Repeat("ü", maxText))
	encode(t, m)
	if !strings.HasPrefix(m.EngineReason, "a?b") {
		t.Errorf("%q", m.EngineReason[:10])
	}
}
