// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package datapath_test

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/hetcuda"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/hetcuda/hetcudatest"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
)

// hostile has a process with these chunks, and holds it.
func (b *bench) hostile(t *testing.T, chunks ...hetcudatest.Chunk) {
	t.Helper()
	b.control = t.TempDir()
	b.process = hetcudatest.Start(t, b.control, chunks...)
	b.data = map[uint64][]byte{}
	for _, c := range chunks {
		b.data[c.ID] = b.process.Read(c.ID)
	}
	check(t, b.Hold(t.Context(), b.control, os.Getpid(), time.Second))
}

// another is the same memory once more, as another chunk.
func another(t *testing.T, c hetcudatest.Chunk, id uint64, flags uint32) hetcudatest.Chunk {
	t.Helper()
	fd, err := unix.FcntlInt(uintptr(c.FD), unix.F_DUPFD_CLOEXEC, 0)
	check(t, err)
	c.ID, c.Address, c.FD, c.Flags = id, id<<30, fd, flags
	return c
}

// What a process can't have is refused when it says so: it has its memory still,
// and no device has been touched.
func TestParkBeyondTheLimits(t *testing.T) {
	own := func(id uint64, uuid memfile.UUID, mibs int) hetcudatest.Chunk {
		return hetcudatest.NewChunk(t, id, id<<30, uuid, contents()[:mibs*mib])
	}
	imported := own(1, uuid2, 1)
	imported.Flags = hetcuda.Imported
	big := own(1, uuid0, 9)
	for name, test := range map[string]struct {
		chunks []hetcudatest.Chunk
		text   string
	}{
		"a device of others":           {[]hetcudatest.Chunk{own(1, uuid0, 1), own(2, uuid2, 1)}, "chunk 2 is said to be on " + uuid2.String()},
		"imported from such a device":  {[]hetcudatest.Chunk{imported}, "chunk 1 is said to be on " + uuid2.String()},
		"more than the device has":     {[]hetcudatest.Chunk{own(1, uuid1, 9), own(2, uuid1, 8)}, "has 16777216"},
		"the same memory many times":   {[]hetcudatest.Chunk{big, another(t, big, 2, 0)}, "has 16777216"},
		"the same, said to be shared":  {[]hetcudatest.Chunk{own(1, uuid0, 9), another(t, big, 2, hetcuda.Exported)}, "has 16777216"},
		"more chunks than descriptors": {slices.Repeat([]hetcudatest.Chunk{own(1, uuid0, 1)}, 200), "200 pieces of memory, each with a descriptor, beside 0: at most 128"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			var before unix.Rlimit
			check(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
			t.Cleanup(func() { check(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &before)) })
			b.hostile(t, test.chunks...)
			check(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 256, Max: before.Max}))
			if _, err := b.Park(t.Context(), b.request()); err == nil || !strings.Contains(err.Error(), test.text) {
				t.Errorf("err = %v", err)
			}
			check(t, b.Release(t.Context(), b.control, os.Getpid()))
			if b.process.State() == hetcudatest.Parked {
				t.Error("the process is parked")
			}
			for uuid, g := range b.machine.gpus {
				if g.opens > 0 {
					t.Errorf("%s was opened", uuid)
				}
			}
		})
	}
}

// Processes that each say little enough are refused together, and go on.
func TestSaveBeyondTheLimits(t *testing.T) {
	for _, duplicate := range []bool{false, true} {
		b := newBench(t)
		c := hetcudatest.NewChunk(t, 1, 1<<30, uuid0, contents()[:6*mib])
		names := []string{"0", "1", "2"}
		var benches []*bench
		chunks := []hetcudatest.Chunk{c, another(t, c, 1, 0), another(t, c, 1, 0)}
		for i := range names {
			one := *b
			one.hostile(t, chunks[i])
			req := one.request()
			req.Parcel = names[i]
			_, err := one.take(t.Context(), req)
			check(t, err)
			benches = append(benches, &one)
		}
		var err error
		if duplicate {
			_, err = b.Duplicate(t.Context(), names)
		} else {
			_, err = b.Save(t.Context(), nvidia.SaveRequest{Dir: b.dir, Parcels: names})
		}
		if err == nil || !strings.Contains(err.Error(), "18874368 bytes") {
			t.Errorf("err = %v", err)
		}
		for i, one := range benches {
			one.runs(t, names[i])
		}
		b.clean(t, false)
	}
}

// What is said to be imported and is not, nobody gets.
func TestImportedFromNobody(t *testing.T) {
	b := newBench(t)
	first := hetcudatest.NewChunk(t, 1, 1<<30, uuid0, contents()[:6*mib])
	first.Flags = hetcuda.Exported
	stranger := hetcudatest.NewChunk(t, 2, 2<<30, uuid0, contents()[:6*mib])
	stranger.Flags = hetcuda.Imported
	b.hostile(t, first, stranger)
	if _, err := b.take(t.Context(), b.request()); err == nil || !strings.Contains(err.Error(), "a process that is not saved with it") {
		t.Errorf("err = %v", err)
	}
	check(t, b.Unpark(t.Context(), b.control, os.Getpid(), "p"))
	check(t, b.Release(t.Context(), b.control, os.Getpid()))
	for id, data := range b.data {
		if !bytes.Equal(b.process.Read(id), data) {
			t.Errorf("chunk %d has changed", id)
		}
	}
	b.clean(t, false)
}

// A process may have imported what it has made itself.
func TestImportedFromItself(t *testing.T) {
	b := newBench(t)
	first := hetcudatest.NewChunk(t, 1, 1<<30, uuid0, contents()[:6*mib])
	first.Flags = hetcuda.Exported
	b.hostile(t, another(t, first, 3, hetcuda.Imported), first)
	_, err := b.take(t.Context(), b.request())
	check(t, err)
	saved, err := b.Save(t.Context(), nvidia.SaveRequest{Dir: b.dir, Parcels: []string{"p"}})
	check(t, err)
	if saved.Bytes != 6*mib || saved.Stored != 6*mib {
		t.Errorf("saved %+v", saved)
	}
	index, err := memfile.Verify(t.Context(), b.dir, nil)
	check(t, err)
	for _, c := range index.Processes[0].Chunks {
		if c.Shared != 1 || c.Imported != (c.ID == 3) {
			t.Errorf("chunk %d: shared %d, imported %t", c.ID, c.Shared, c.Imported)
		}
	}
	b.runs(t, "p")
	b.clean(t, true)
}

// A descriptor of no memory is found out when it is to be read, keeps nobody, and
// stays the process's.
func TestStrangeDescriptor(t *testing.T) {
	b := newBench(t)
	fd, relent := hetcudatest.Reluctant(t)
	b.control = t.TempDir()
	b.process = hetcudatest.Start(t, b.control, hetcudatest.Chunk{ID: 1, Address: 1 << 30, Size: mib, Device: uuid0, FD: fd})
	check(t, b.Hold(t.Context(), b.control, os.Getpid(), time.Second))
	_, err := b.take(t.Context(), b.request())
	check(t, err)
	if _, err := b.Duplicate(t.Context(), []string{"p"}); err == nil || !strings.Contains(err.Error(), "is of no memory") {
		t.Errorf("err = %v", err)
	}
	if _, err := b.Save(t.Context(), nvidia.SaveRequest{Dir: b.dir, Parcels: []string{"p"}}); err == nil {
		t.Error("it was saved")
	}
	check(t, b.Drop(t.Context(), []string{"p"}))
	relent()
	b.clean(t, false)
}
