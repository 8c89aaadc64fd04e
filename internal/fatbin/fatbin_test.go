// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package fatbin

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

const text = ".version 8.3\n.target sm_80\n.address_size 64\n"

// file makes one file of a fatbin.
func file(kind uint16, arch uint32, flags uint64, data []byte, size int) []byte {
	le := binary.LittleEndian
	h := make([]byte, 64)
	le.PutUint16(h, kind)
	le.PutUint16(h[2:], 0x101)
	le.PutUint32(h[4:], 64)
	padded := (len(data) + 7) &^ 7
	le.PutUint32(h[8:], uint32(padded))
	if flags != 0 {
		le.PutUint32(h[16:], uint32(len(data)))
	}
	le.PutUint32(h[28:], arch)
	le.PutUint32(h[32:], 64)
	le.PutUint64(h[40:], flags)
	le.PutUint64(h[56:], uint64(size))
	return append(append(h, data...), make([]byte, padded-len(data))...)
}

func fatbin(files ...[]byte) []byte {
	all := bytes.Join(files, nil)
	h := make([]byte, 16)
	binary.LittleEndian.PutUint32(h, magic)
	binary.LittleEndian.PutUint16(h[4:], 1)
	binary.LittleEndian.PutUint16(h[6:], 16)
	binary.LittleEndian.PutUint64(h[8:], uint64(len(all)))
	return append(h, all...)
}

func packLZ4(tb testing.TB, s string) []byte {
	tb.Helper()
	out := make([]byte, lz4.CompressBlockBound(len(s)))
	n, err := lz4.CompressBlock([]byte(s), out, nil)
	if err != nil || n == 0 {
		tb.Fatal("lz4", n, err)
	}
	return out[:n]
}

func packZstd(tb testing.TB, s string) []byte {
	tb.Helper()
	e, err := zstd.NewWriter(nil)
	if err != nil {
		tb.Fatal(err)
	}
	data := e.EncodeAll([]byte(s), nil)
	if err := e.Close(); err != nil {
		tb.Fatal(err)
	}
	return data
}

// elfFile makes a file with one section.
func elfFile(name string, data []byte) []byte {
	names := "\x00" + name + "\x00.shstrtab\x00"
	var b bytes.Buffer
	head := elf.Header64{
		Ident: [16]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_REL), Machine: uint16(elf.EM_X86_64), Version: 1,
		Ehsize: 64, Shentsize: 64, Shnum: 3, Shstrndx: 2,
	}
	head.Shoff = uint64(64 + len(data) + len(names))
	_ = binary.Write(&b, binary.LittleEndian, &head)
	b.Write(data)
	b.WriteString(names)
	_ = binary.Write(&b, binary.LittleEndian, []elf.Section64{
		{},
		{Name: 1, Type: uint32(elf.SHT_PROGBITS), Off: 64, Size: uint64(len(data)), Addralign: 1},
		{Name: uint32(len(name) + 2), Type: uint32(elf.SHT_STRTAB), Off: uint64(64 + len(data)), Size: uint64(len(names)), Addralign: 1},
	})
	return b.Bytes()
}

func TestImages(t *testing.T) {
	long := text + strings.Repeat("// the same\n", 1000)
	plain := file(1, 80, 0, []byte(text), 0)
	code := file(2, 90, 0, []byte("machine code"), 0)
	packed := file(1, 90, flagLZ4, packLZ4(t, long), len(long))
	zstd := file(1, 70, flagZstd, packZstd(t, long), len(long))
	padding := make([]byte, 24)
	two := append(append(fatbin(code, plain, packed), padding...), fatbin(zstd, code)...)
	for name, data := range map[string][]byte{
		"alone": two, "in a program": elfFile(".nv_fatbin", two), "in an object": elfFile("__nv_relfatbin", two),
	} {
		t.Run(name, func(t *testing.T) {
			if !Is(data) {
				t.Error("it is not recognized")
			}
			images, err := Images(data)
			if err != nil || len(images) != 3 {
				t.Fatal(len(images), err)
			}
			for i, want := range []struct {
				module int
				arch   uint32
				text   string
			}{{0, 80, text}, {0, 90, long}, {1, 70, long}} {
				got, err := images[i].Text()
				if err != nil || got != want.text || images[i].Module != want.module || images[i].Arch != want.arch {
					t.Errorf("image %d: module %d, sm_%d, %d bytes, %v", i, images[i].Module, images[i].Arch, len(got), err)
				}
			}
			best := Best(images)
			if len(best) != 2 || best[0].Arch != 90 || best[1].Arch != 70 {
				t.Errorf("the best are %v", best)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	whole := fatbin(file(1, 80, 0, []byte(text), 0))
	bomb := file(1, 80, flagLZ4, packLZ4(t, strings.Repeat("a", 4096)), 200<<20)
	for name, test := range map[string]struct {
		data []byte
		want string
	}{
		"nothing":        {nil, "it has no PTX"},
		"only code":      {fatbin(file(2, 80, 0, []byte("code"), 0)), "it has no PTX"},
		"other section":  {elfFile(".text", whole), "it has no PTX"},
		"truncated":      {whole[:len(whole)-1], "the fatbin at byte 0 is truncated"},
		"half a header":  {whole[:10], "at byte 0 is no fatbin"},
		"something else": {append(bytes.Clone(whole), "text"...), "at byte 128 is no fatbin"},
		"file's header":  {fatbin([]byte("0123")), "a file's header is truncated"},
		"elf":            {[]byte(elf.ELFMAG + "rest"), "the ELF file can't be read"},
	} {
		if _, err := Images(test.data); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, not %q", name, err, test.want)
		}
	}
	images, err := Images(fatbin(bomb))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := images[0].Text(); err == nil {
		t.Error("some bytes became 200 MiB")
	}
	small := file(1, 80, flagZstd, packZstd(t, strings.Repeat("a", 32<<20)), 100)
	images, err = Images(fatbin(small))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := images[0].Text(); err == nil {
		t.Error("more came out than the header says")
	}
	if _, err := Images(fatbin()); !errors.Is(err, ErrNoPTX) {
		t.Error(err)
	}
}

// FuzzImages reads anything, and decompresses what it finds.
func FuzzImages(f *testing.F) {
	f.Add([]byte{})
	f.Add(fatbin(file(1, 80, 0, []byte(text), 0)))
	f.Add(fatbin(file(1, 80, flagLZ4, packLZ4(f, text+text+text+text), 4*len(text))))
	f.Add(fatbin(file(1, 80, flagZstd, packZstd(f, text), len(text))))
	f.Add(elfFile(".nv_fatbin", fatbin(file(2, 80, 0, []byte(text), 0), file(1, 80, 0, []byte(text), 0))))
	f.Fuzz(func(_ *testing.T, data []byte) {
		images, err := Images(data)
		if err != nil {
			return
		}
		best := Best(images)
		for i := range best {
			_, _ = best[i].Text()
		}
	})
}
