// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package memfile_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile/indexpb"
)

var device = memfile.UUID{0xaa, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}

// build writes two processes' memory: each chunk is what its list says, a block
// of zeros or one of random words, in two files.
func build(tb testing.TB, dir string) *memfile.Index {
	tb.Helper()
	x := &memfile.Index{}
	var data [2][]byte
	seed := uint64(0)
	chunk := func(id, address, size uint64, zero ...bool) memfile.Chunk {
		c := memfile.Chunk{ID: id, Address: address, Size: size, Device: device}
		for i, z := range zero {
			block := make([]byte, c.BlockLen(i))
			b := memfile.Block{}
			if !z {
				seed++
				block = random(seed, len(block))
				file := i % len(data)
				b.File, b.Offset = uint32(file+1), uint64(len(data[file]))
				data[file] = append(data[file], block...)
			}
			b.Digest, _ = memfile.DigestOf(block)
			c.Blocks = append(c.Blocks, b)
		}
		return c
	}
	x.Processes = []memfile.Process{
		{Chunks: []memfile.Chunk{
			chunk(1, 0x7e0000000000, memfile.BlockSize+8192, false, false),
			chunk(7, 0x7e0000400000, 2*memfile.BlockSize, true, false),
		}},
		{},
		{Chunks: []memfile.Chunk{chunk(1, 0, 4096, true)}},
	}
	for i, d := range data {
		x.Files = append(x.Files, memfile.DataFile{Name: memfile.DataName(i), Size: uint64(len(d))})
		if err := os.WriteFile(filepath.Join(dir, memfile.DataName(i)), d, 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	if _, err := memfile.WriteIndex(dir, x, nil); err != nil {
		tb.Fatal(err)
	}
	return x
}

func TestRoundTrip(t *testing.T) {
	dir := t.TempDir()
	x := build(t, dir)
	got, err := memfile.Verify(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, x) {
		t.Errorf("read %+v, wrote %+v", got, x)
	}
	want := memfile.Sizes{Memory: 3*memfile.BlockSize + 8192 + 4096, Zero: memfile.BlockSize + 4096, Stored: 2*memfile.BlockSize + 8192}
	if s := got.Sizes(); s != want {
		t.Errorf("sizes %+v, want %+v", s, want)
	}
}

func TestWriteIndexOnlyOnce(t *testing.T) {
	dir := t.TempDir()
	x := build(t, dir)
	if _, err := memfile.WriteIndex(dir, x, nil); !errors.Is(err, os.ErrExist) {
		t.Errorf("err = %v", err)
	}
}

func TestVerifyInParent(t *testing.T) {
	parent, dir := t.TempDir(), t.TempDir()
	x := build(t, parent)
	if err := os.Symlink(parent, filepath.Join(dir, memfile.ParentName)); err != nil {
		t.Fatal(err)
	}
	for i := range x.Files {
		x.Files[i].Generation++
	}
	if _, err := memfile.WriteIndex(dir, x, nil); err != nil {
		t.Fatal(err)
	}
	got, err := memfile.Verify(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if s := got.Sizes(); s.Stored != 0 || s.Reused != 2*memfile.BlockSize+8192 {
		t.Errorf("sizes %+v", s)
	}
}

// A bit of any byte of the index, and a bit anywhere in the data, is found.
func TestDamageIsFound(t *testing.T) {
	dir := t.TempDir()
	build(t, dir)
	index, err := os.ReadFile(filepath.Join(dir, memfile.IndexName))
	if err != nil {
		t.Fatal(err)
	}
	for bit := range 8 * len(index) {
		index[bit/8] ^= 1 << (bit % 8)
		if _, err := memfile.Decode(index); !errors.Is(err, memfile.ErrDamaged) {
			t.Fatalf("bit %d of the index: %v", bit, err)
		}
		index[bit/8] ^= 1 << (bit % 8)
	}
	for n := range len(index) {
		if _, err := memfile.Decode(index[:n]); !errors.Is(err, memfile.ErrDamaged) {
			t.Fatalf("index cut at %d: %v", n, err)
		}
	}
	for _, at := range []int64{0, 4096, memfile.BlockSize - 1, memfile.BlockSize + 4096} {
		flip(t, filepath.Join(dir, memfile.DataName(1)), at)
		_, err := memfile.Verify(t.Context(), dir, nil)
		flip(t, filepath.Join(dir, memfile.DataName(1)), at)
		if !errors.Is(err, memfile.ErrDamaged) || !strings.Contains(err.Error(), "hetgpu-mem-1.img at ") {
			t.Errorf("byte %d: %v", at, err)
		}
	}
	if _, err := memfile.Verify(t.Context(), dir, nil); err != nil {
		t.Errorf("after all: %v", err)
	}
}

func flip(t *testing.T, name string, at int64) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 0x10
	if _, err := f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
}

func TestVerifyFails(t *testing.T) {
	tests := map[string]struct {
		damage func(t *testing.T, file string)
		is     error
		text   string
	}{
		"missing": {func(t *testing.T, file string) { remove(t, file) }, memfile.ErrDamaged, "no such file"},
		"shorter": {func(t *testing.T, file string) { check(t, os.Truncate(file, 4096)) }, memfile.ErrDamaged, "has 4096 bytes"},
		"longer":  {func(t *testing.T, file string) { check(t, os.Truncate(file, 64<<20)) }, memfile.ErrDamaged, "bytes, and the index says"},
		"a link": {func(t *testing.T, file string) {
			check(t, os.Rename(file, file+".moved"))
			check(t, os.Symlink(file+".moved", file))
		}, memfile.ErrDamaged, "too many levels"},
		"a directory": {func(t *testing.T, file string) {
			remove(t, file)
			check(t, os.Mkdir(file, 0o700))
		}, memfile.ErrDamaged, "no regular file"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			build(t, dir)
			test.damage(t, filepath.Join(dir, memfile.DataName(0)))
			_, err := memfile.Verify(t.Context(), dir, nil)
			if !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.text) {
				t.Errorf("err = %v", err)
			}
		})
	}
	t.Run("canceled", func(t *testing.T) {
		dir := t.TempDir()
		build(t, dir)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := memfile.Verify(ctx, dir, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("err = %v", err)
		}
	})
	t.Run("zeros with another digest", func(t *testing.T) {
		dir := t.TempDir()
		x := build(t, dir)
		x.Processes[2].Chunks[0].Blocks[0].Digest[3] ^= 1
		remove(t, filepath.Join(dir, memfile.IndexName))
		if _, err := memfile.WriteIndex(dir, x, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := memfile.Verify(t.Context(), dir, nil); !errors.Is(err, memfile.ErrDamaged) || !strings.Contains(err.Error(), "process 2, chunk 1, block 0 (zeros)") {
			t.Errorf("err = %v", err)
		}
	})
}

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func remove(t *testing.T, file string) {
	t.Helper()
	check(t, os.Remove(file))
}

// What is encoded correctly and says something that no reader may believe.
func TestDecodeRefuses(t *testing.T) {
	valid := func() *indexpb.Index {
		return &indexpb.Index{
			BlockSize: memfile.BlockSize,
			Files:     []*indexpb.DataFile{{Name: "hetgpu-mem-0.img", Size: 8192}},
			Processes: []*indexpb.Process{{Chunks: []*indexpb.Chunk{
				{Id: 1, Address: 4096, Size: 4096, Device: make([]byte, 16), Places: []uint32{1}, Offsets: []uint64{1}, Digests: make([]byte, 16)},
				{Id: 2, Address: 8192, Size: 4096, Device: make([]byte, 16), Places: []uint32{0}, Digests: make([]byte, 16)},
			}}},
		}
	}
	if _, err := memfile.Decode(envelope(t, 1, valid())); err != nil {
		t.Fatal(err)
	}
	chunk := func(x *indexpb.Index) *indexpb.Chunk { return x.GetProcesses()[0].GetChunks()[0] }
	tests := map[string]func(x *indexpb.Index){
		"no block size":          func(x *indexpb.Index) { x.BlockSize = 0 },
		"other blocks":           func(x *indexpb.Index) { x.BlockSize = 4096 },
		"a path for a file":      func(x *indexpb.Index) { x.Files[0].Name = "../hetgpu-mem-0.img" },
		"CRIU's file":            func(x *indexpb.Index) { x.Files[0].Name = "pages-1.img" },
		"the index as data":      func(x *indexpb.Index) { x.Files[0].Name = "hetgpu-mem.img" },
		"a number spelled twice": func(x *indexpb.Index) { x.Files[0].Name = "hetgpu-mem-00.img" },
		"a number below 0":       func(x *indexpb.Index) { x.Files[0].Name = "hetgpu-mem--1.img" },
		"a file twice":           func(x *indexpb.Index) { x.Files = append(x.Files, x.Files[0]) },
		"far generation":         func(x *indexpb.Index) { x.Files[0].Generation = 65 },
		"far, far generation":    func(x *indexpb.Index) { x.Files[0].Generation = 1<<32 - 1 },
		"odd file size":          func(x *indexpb.Index) { x.Files[0].Size = 8193 },
		"huge file":              func(x *indexpb.Index) { x.Files[0].Size = 1 << 63 },
		"chunk twice":            func(x *indexpb.Index) { x.Processes[0].Chunks[1].Id = 1 },
		"chunks at one place":    func(x *indexpb.Index) { x.Processes[0].Chunks[1].Address = 4096 },
		"no size":                func(x *indexpb.Index) { chunk(x).Size = 0 },
		"odd size":               func(x *indexpb.Index) { chunk(x).Size = 4095 },
		"huge size":              func(x *indexpb.Index) { chunk(x).Size = 1<<64 - 4096 },
		"end of the addresses":   func(x *indexpb.Index) { chunk(x).Address = 1<<64 - 4096 },
		"odd address":            func(x *indexpb.Index) { chunk(x).Address = 5 },
		"no device":              func(x *indexpb.Index) { chunk(x).Device = nil },
		"long device":            func(x *indexpb.Index) { chunk(x).Device = make([]byte, 17) },
		"no places":              func(x *indexpb.Index) { chunk(x).Places, chunk(x).Offsets = nil, nil },
		"too many places":        func(x *indexpb.Index) { chunk(x).Places = []uint32{1, 1} },
		"place after the files":  func(x *indexpb.Index) { chunk(x).Places = []uint32{2} },
		"last place":             func(x *indexpb.Index) { chunk(x).Places = []uint32{1<<32 - 1} },
		"no offset":              func(x *indexpb.Index) { chunk(x).Offsets = nil },
		"too many offsets":       func(x *indexpb.Index) { chunk(x).Offsets = []uint64{0, 0} },
		"offset after the file":  func(x *indexpb.Index) { chunk(x).Offsets = []uint64{2} },
		"offset that wraps":      func(x *indexpb.Index) { chunk(x).Offsets = []uint64{1 << 52} },
		"offset at the end":      func(x *indexpb.Index) { chunk(x).Offsets = []uint64{1<<52 - 1} },
		"short digests":          func(x *indexpb.Index) { chunk(x).Digests = make([]byte, 15) },
		"no digests":             func(x *indexpb.Index) { chunk(x).Digests = nil },
		"a key in version 1": func(x *indexpb.Index) {
			x.Encryption = &indexpb.Encryption{KeyId: "0123456789abcdef", Salt: make([]byte, 32)}
		},
		"a salt in version 1": func(x *indexpb.Index) { x.Files[0].Salt = make([]byte, 32) },
		"sums in version 1":   func(x *indexpb.Index) { chunk(x).Sums = []uint32{1} },
		"tags in version 1":   func(x *indexpb.Index) { chunk(x).Tags = make([]byte, 16) },
		"unknown field":       func(x *indexpb.Index) { x.ProtoReflect().SetUnknown([]byte{0x78, 1}) },
		"unknown in a chunk":  func(x *indexpb.Index) { chunk(x).ProtoReflect().SetUnknown([]byte{0x78, 1}) },
		"many files":          func(x *indexpb.Index) { x.Files = make([]*indexpb.DataFile, memfile.MaxFiles+1) },
		"many processes":      func(x *indexpb.Index) { x.Processes = make([]*indexpb.Process, memfile.MaxProcesses+1) },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			x := valid()
			change(x)
			if got, err := memfile.Decode(envelope(t, 1, x)); !errors.Is(err, memfile.ErrDamaged) {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
	t.Run("too new", func(t *testing.T) {
		if _, err := memfile.Decode(envelope(t, 3, valid())); !errors.Is(err, memfile.ErrNewerVersion) {
			t.Errorf("err = %v", err)
		}
	})
	t.Run("version 0", func(t *testing.T) {
		if _, err := memfile.Decode(envelope(t, 0, valid())); !errors.Is(err, memfile.ErrDamaged) {
			t.Errorf("err = %v", err)
		}
	})
}

// envelope wraps an index as docs/formats.md says.
func envelope(tb testing.TB, version uint32, x *indexpb.Index) []byte {
	tb.Helper()
	body, err := proto.Marshal(x)
	if err != nil {
		tb.Fatal(err)
	}
	data := binary.LittleEndian.AppendUint32([]byte("hetgpumm"), version)
	data = binary.LittleEndian.AppendUint32(data, 0)
	data = binary.LittleEndian.AppendUint64(data, uint64(len(body)))
	sum := sha256.Sum256(append(slices.Clip(data), body...))
	return append(append(data, sum[:]...), body...)
}

func TestUUID(t *testing.T) {
	u, err := memfile.ParseUUID("GPU-aa010203-0405-0607-0809-0a0b0c0d0e0f")
	if err != nil || u != device || u.String() != "GPU-aa010203-0405-0607-0809-0a0b0c0d0e0f" {
		t.Errorf("%v, %v", u, err)
	}
	for _, bad := range []string{"", "GPU-", "aa010203-0405-0607-0809-0a0b0c0d0e0f", "GPU-aa01020304050607-0809-0a0b0c0d0e0f", "GPU-xx010203-0405-0607-0809-0a0b0c0d0e0f"} {
		if u, err := memfile.ParseUUID(bad); err == nil {
			t.Errorf("%q is %v", bad, u)
		}
	}
}

func TestIsName(t *testing.T) {
	for name, want := range map[string]bool{
		"hetgpu-mem.img": true, "hetgpu-mem-0.img": true, "hetgpu-mem-4095.img": true, "hetgpu-mem-4096.img": false,
		"hetgpu-mem-.img": false, "hetgpu-mem-01.img": false, "hetgpu-mem-1.imgx": false, "0.img": false, "hetgpu.json": false,
	} {
		if memfile.IsName(name) != want {
			t.Errorf("%s: %v", name, !want)
		}
	}
}

// FuzzDecode checks that what is accepted is written again the same, and that
// nothing else happens. The envelope is made anew around what the fuzzer finds:
// it would not guess a digest.
func FuzzDecode(f *testing.F) {
	x := build(f, f.TempDir())
	data, err := memfile.Encode(x, nil)
	if err != nil {
		f.Fatal(err)
	}
	const before = 8 + 4 + 4 + 8 + 32
	f.Add(data[before:])
	f.Add([]byte{})
	f.Add([]byte{0x08, 0x80, 0x80, 0x80, 0x01})
	f.Add([]byte{0x08, 0x80, 0x80, 0x80, 0x01, 0x1a, 0x00, 0x1a, 0x02, 0x0a, 0x00})
	f.Fuzz(func(t *testing.T, body []byte) {
		data := binary.LittleEndian.AppendUint32([]byte("hetgpumm"), 1)
		data = binary.LittleEndian.AppendUint32(data, 0)
		data = binary.LittleEndian.AppendUint64(data, uint64(len(body)))
		sum := sha256.Sum256(append(slices.Clip(data), body...))
		x, err := memfile.Decode(append(append(data, sum[:]...), body...))
		if err != nil {
			if !errors.Is(err, memfile.ErrDamaged) {
				t.Fatalf("err = %v", err)
			}
			return
		}
		again, err := memfile.Encode(x, nil)
		if err != nil {
			t.Fatal(err)
		}
		y, err := memfile.Decode(again)
		if err != nil || !reflect.DeepEqual(x, y) {
			t.Fatalf("%+v and %+v, %v", x, y, err)
		}
	})
}
