// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package datapath_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/datapath"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/hetcuda/hetcudatest"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
)

// keyFile writes a key, which is another one for each number.
func keyFile(tb testing.TB, number byte) string {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "key")
	secret := make([]byte, memfile.KeySize)
	_, _ = rand.NewChaCha8([32]byte{number}).Read(secret)
	if err := os.WriteFile(file, secret, 0o600); err != nil {
		tb.Fatal(err)
	}
	return file
}

// with returns a mover on the same machine with another key file, "" for none.
func (b *bench) with(keyFile string) *datapath.Mover {
	return datapath.New(b.machine, datapath.Config{SlotSize: 4 * mib, Slots: 2, Lanes: 3, Spare: mib, Idle: time.Hour, KeyFile: keyFile})
}

func newEncrypted(t *testing.T) (b *bench, key string) {
	t.Helper()
	b, key = newBench(t), keyFile(t, 1)
	b.Mover = b.with(key)
	return b, key
}

func TestEncrypted(t *testing.T) {
	b, file := newEncrypted(t)
	b.park(t)
	saved, err := b.Save(t.Context(), nvidia.SaveRequest{Dir: b.dir, Parcels: []string{"p"}})
	check(t, err)
	key, err := memfile.ReadKey(file)
	check(t, err)
	if saved.KeyID != key.ID() || saved.Bytes != 21*mib+8192+4096 || saved.Zero != 6*mib+4096 || saved.Stored != 15*mib+8192 {
		t.Errorf("saved %+v", saved)
	}
	// The process has what it had: what was encrypted was a copy.
	b.runs(t, "p")

	for _, k := range []*memfile.Key{nil, key} {
		_, err := memfile.Verify(t.Context(), b.dir, k)
		check(t, err)
	}
	used := map[string]bool{}
	index, err := memfile.ReadIndex(b.dir)
	check(t, err)
	for _, p := range index.Processes {
		for _, c := range p.Chunks {
			for _, block := range c.Blocks {
				if place := fmt.Sprint(block.File, block.Offset); !block.Zero() && used[place] {
					t.Errorf("two blocks are encrypted at %s", place)
				} else {
					used[place] = true
				}
			}
		}
	}
	for _, f := range saved.Files {
		data, err := os.ReadFile(filepath.Join(b.dir, f.Name))
		check(t, err)
		for id, mem := range b.data {
			for at := 0; at < len(mem); at += mib {
				if piece := mem[at:][:32]; !bytes.Equal(piece, make([]byte, 32)) && bytes.Contains(data, piece) {
					t.Fatalf("%s has what was in chunk %d at %d", f.Name, id, at)
				}
			}
		}
	}

	loaded, err := b.Load(t.Context(), nvidia.LoadRequest{Dir: b.dir, Parcels: []string{"q"}})
	check(t, err)
	if loaded.Bytes != saved.Bytes || loaded.Read != saved.Stored {
		t.Errorf("loaded %+v", loaded)
	}
	b.process.SetState(hetcudatest.Parked)
	b.runs(t, "q")
	b.clean(t, true)
}

// A key that can't be used ends a save before there is a file, and the process
// goes on.
func TestEncryptedSaveRefused(t *testing.T) {
	open := keyFile(t, 1)
	check(t, os.Chmod(open, 0o644))
	for says, file := range map[string]string{"mode 0644": open, "no such file": open + "x"} {
		b := newBench(t)
		b.Mover = b.with(file)
		b.park(t)
		if _, err := b.Save(t.Context(), nvidia.SaveRequest{Dir: b.dir, Parcels: []string{"p"}}); !errors.Is(err, memfile.ErrKeyFile) || !strings.Contains(err.Error(), says) {
			t.Errorf("err = %v", err)
		}
		b.runs(t, "p")
		b.clean(t, false)
	}
}

func TestEncryptedLoadRefused(t *testing.T) {
	b, file := newEncrypted(t)
	b.park(t)
	_, err := b.Save(t.Context(), nvidia.SaveRequest{Dir: b.dir, Parcels: []string{"p"}})
	check(t, err)
	b.runs(t, "p")
	index, err := memfile.ReadIndex(b.dir)
	check(t, err)
	request := nvidia.LoadRequest{Dir: b.dir, Parcels: []string{"q"}}
	for name, tc := range map[string]struct {
		file string
		is   error
		says string
	}{
		"no key file": {"", memfile.ErrKey, "no key file"},
		"another key": {keyFile(t, 2), memfile.ErrKey, "has the key"},
		"missing":     {file + "x", memfile.ErrKeyFile, "no such file"},
	} {
		if _, err := b.with(tc.file).Load(t.Context(), request); !errors.Is(err, tc.is) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", name, err)
		}
		b.clean(t, true)
	}
	// A bit of each file, at its start, in its middle and at its end.
	for _, f := range index.Files {
		name := filepath.Join(b.dir, f.Name)
		data, err := os.ReadFile(name)
		check(t, err)
		for _, at := range []int{0, len(data) / 2, len(data) - 1} {
			data[at] ^= 0x10
			check(t, os.WriteFile(name, data, 0o600))
			_, err := b.Load(t.Context(), request)
			if !errors.Is(err, helperapi.ErrDamaged) || !strings.Contains(err.Error(), f.Name) || !strings.Contains(err.Error(), "not what was encrypted") {
				t.Errorf("%s, byte %d: %v", f.Name, at, err)
			}
			data[at] ^= 0x10
		}
		check(t, os.WriteFile(name, data, 0o600))
		b.clean(t, true)
	}
	// Files of another save of the same memory, with the same key.
	again := t.TempDir()
	b.process.SetState(hetcudatest.Running)
	b.park(t)
	_, err = b.Save(t.Context(), nvidia.SaveRequest{Dir: again, Parcels: []string{"p"}})
	check(t, err)
	b.runs(t, "p")
	data, err := os.ReadFile(filepath.Join(again, memfile.DataName(0)))
	check(t, err)
	check(t, os.WriteFile(filepath.Join(b.dir, memfile.DataName(0)), data, 0o600))
	if _, err := b.Load(t.Context(), request); !errors.Is(err, helperapi.ErrDamaged) {
		t.Errorf("a file of another save: %v", err)
	}
	b.clean(t, true)
}

// What a snapshot before has is left there only if it is encrypted as this one.
func TestEncryptedIncremental(t *testing.T) {
	b, file := newEncrypted(t)
	parent := t.TempDir()
	save := func(m *datapath.Mover, dir, parent string) (nvidia.Saved, error) {
		b.Mover = m
		b.park(t)
		saved, err := m.Save(t.Context(), nvidia.SaveRequest{Dir: dir, Parcels: []string{"p"}, Parent: parent})
		b.runs(t, "p")
		return saved, err
	}
	_, err := save(b.Mover, parent, "")
	check(t, err)
	b.process.Write(4, []byte("changed"), 5*mib)
	copy(b.data[4][5*mib:], "changed")
	for name, m := range map[string]*datapath.Mover{"not encrypted": b.with(""), "another key": b.with(keyFile(t, 2))} {
		if _, err := save(m, b.dir, parent); err == nil || !strings.Contains(err.Error(), "the snapshot before: it is encrypted") {
			t.Errorf("%s: %v", name, err)
		}
		b.clean(t, false)
	}
	saved, err := save(b.with(file), b.dir, parent)
	check(t, err)
	if saved.Stored != 2*mib || saved.Reused != 13*mib+8192 {
		t.Errorf("saved %+v", saved)
	}
	check(t, os.Symlink(parent, filepath.Join(b.dir, memfile.ParentName)))
	key, err := memfile.ReadKey(file)
	check(t, err)
	for _, k := range []*memfile.Key{nil, key} {
		_, err = memfile.Verify(t.Context(), b.dir, k)
		check(t, err)
	}
	_, err = b.Load(t.Context(), nvidia.LoadRequest{Dir: b.dir, Parcels: []string{"q"}})
	check(t, err)
	b.process.SetState(hetcudatest.Parked)
	b.runs(t, "q")

	plain := t.TempDir()
	_, err = save(b.with(""), plain, "")
	check(t, err)
	if _, err := save(b.with(file), t.TempDir(), plain); err == nil || !strings.Contains(err.Error(), "it is not encrypted") {
		t.Errorf("upon one that is not: %v", err)
	}
	b.clean(t, true)
}

// What was saved and is nowhere else comes back, whatever has become of the key
// file since.
func TestEncryptedStorageWithoutItsFile(t *testing.T) {
	s := newStorage(t)
	file := keyFile(t, 1)
	s.Mover = datapath.New(s, datapath.Config{SlotSize: 4 * mib, Slots: 2, Lanes: 6, Spare: mib, Idle: time.Hour, KeyFile: file})
	dir := t.TempDir()
	was := map[string][]byte{}
	for uuid, mem := range s.memory {
		was[uuid] = bytes.Clone(mem)
	}
	_, err := s.Map(t.Context(), nvidia.MapRequest{PID: 1, Parcel: "p", Devices: []string{uuid0.String(), uuid1.String()}})
	check(t, err)
	saved, err := s.Save(t.Context(), nvidia.SaveRequest{Dir: dir, Parcels: []string{"p"}})
	check(t, err)
	if saved.KeyID == "" {
		t.Error("it was not encrypted")
	}
	check(t, s.Settle(t.Context(), "p"))
	check(t, os.Remove(file))
	check(t, s.Fill(t.Context(), nvidia.FillRequest{PID: 1, Parcel: "p", Devices: []string{uuid0.String(), uuid1.String()}}))
	for uuid, mem := range s.memory {
		if !bytes.Equal(mem, was[uuid]) {
			t.Errorf("the memory on %s is another", uuid)
		}
	}
	// A restore has nothing but the files.
	s.state = checkpointed
	restore := nvidia.FillRequest{PID: 2, Parcel: "q", Dir: dir, Devices: []string{uuid0.String(), uuid1.String()}}
	if err := s.Fill(t.Context(), restore); !errors.Is(err, memfile.ErrKeyFile) {
		t.Errorf("restored without its key: %v", err)
	}
}

// Save of 256 MiB to a tmpfs, from memory that is as fast: what encryption adds
// is most there.
func BenchmarkSave(b *testing.B) {
	const size = 256 * mib
	for name, file := range map[string]string{"plain": "", "encrypted": keyFile(b, 1)} {
		b.Run(name, func(b *testing.B) {
			machine := newMachine(b, uuid0.String())
			m := datapath.New(machine, datapath.Config{SlotSize: 32 * mib, Slots: 2, Lanes: 2, Idle: time.Hour, KeyFile: file})
			err := m.Make(b.Context(), "p", uuid0.String(), 1, size, func(_ datapath.GPU, r datapath.Range) error {
				_, err := rand.NewChaCha8([32]byte{7}).Read(bytesAt(r.Address, r.Size))
				return err
			})
			if err != nil {
				b.Fatal(err)
			}
			var copied time.Duration
			b.SetBytes(size)
			for b.Loop() {
				dir, err := os.MkdirTemp("/dev/shm", "hetgpu-bench-") //nolint:usetesting // b.TempDir is on a disk
				if err != nil {
					b.Fatal(err)
				}
				saved, err := m.Save(b.Context(), nvidia.SaveRequest{Dir: dir, Parcels: []string{"p"}})
				if err := errors.Join(err, os.RemoveAll(dir)); err != nil {
					b.Fatal(err)
				}
				for _, p := range saved.Phases {
					if p.Name == "mem-copy" {
						copied += p.Duration
					}
				}
			}
			b.ReportMetric(size*float64(b.N)/copied.Seconds()/1e9, "GB/s-of-mem-copy")
		})
	}
}
