// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
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
func split(t *testing.T) files {
	t.Helper()
	data := strings.Repeat("m", memfile.BlockSize)
	digest, _ := memfile.DigestOf([]byte(data))
	zero, _ := memfile.DigestOf(make([]byte, memfile.BlockSize))
	index, err := memfile.Encode(&memfile.Index{
		Files: []memfile.DataFile{{Name: memfile.DataName(0), Size: uint64(len(data))}},
		Processes: []memfile.Process{{Chunks: []memfile.Chunk{{
			ID: 1, Address: 1 << 30, Size: 2 * memfile.BlockSize, Blocks: []memfile.Block{{File: 1, Digest: digest}, {Digest: zero}},
		}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	all := files{memfile.DataName(0): data, memfile.IndexName: string(index)}
	maps.Copy(all, gpu(t, func(m *snapshot.Manifest) {
		m.Engine, m.EngineReason = snapshot.EngineSplit, "process 8: it does not run libhetcuda"
		m.Library = &snapshot.Library{BuildID: "00ff"}
		m.Processes[0].Memory, m.Processes[1].Memory = snapshot.MemorySplit, snapshot.MemoryDriver
		m.Memory = &snapshot.Memory{Bytes: 2 * memfile.BlockSize, ZeroBytes: memfile.BlockSize, StoredBytes: memfile.BlockSize}
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
	if err := os.WriteFile(name, split(t).tar(t, "checkpoint/"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r, err := Inspect(t.Context(), name, Options{}); err != nil || r.Digests != DigestsPartly {
		t.Errorf("packed: %+v, %v", r, err)
	}
	damaged := split(t)
	damaged[memfile.DataName(0)] = "M" + damaged[memfile.DataName(0)][1:]
	if r, err := Inspect(t.Context(), damaged.dir(t), Options{}); !errors.Is(err, ErrProblems) || r.Digests != DigestsDiffer {
		t.Errorf("damaged: %+v, %v", r, err)
	}
}
