// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package fatbin finds PTX in fatbins, and in programs and libraries that have
// fatbins in them.
//
// NVIDIA documents no format. This one is what ZLUDA's dark_api.rs has of it
// (8a7931b): a header, and behind it files, each with a header of its own, which
// are PTX or machine code, plain or compressed with LZ4 or zstd. Input is
// hostile: nothing is allocated for what a header says alone.
package fatbin

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// ErrNoPTX tells that there is none: only machine code, or nothing at all.
var ErrNoPTX = errors.New("it has no PTX")

// The format's numbers.
const (
	magic         = 0xba55ed50
	minHeader     = 16
	minFileHeader = 64

	kindPTX = 1

	flagLZ4  = 0x2000
	flagZstd = 0x8000

	// maxText is more than any PTX has.
	maxText = 256 << 20
	// maxImages bounds what is kept of headers.
	maxImages = 1 << 16
)

// Image is the PTX of a module for an architecture and later ones.
type Image struct {
	// Module counts the modules that were found, from 0: several images with the
	// same number are the same program for different architectures.
	Module int
	// Arch is 80 for sm_80.
	Arch uint32

	data  []byte
	size  uint64 // when it is not compressed any more
	flags uint64
}

// Is tells whether data looks like a fatbin or an ELF file.
func Is(data []byte) bool {
	return bytes.HasPrefix(data, []byte(elf.ELFMAG)) || len(data) >= 4 && binary.LittleEndian.Uint32(data) == magic
}

// Images returns the PTX images of a fatbin or of an ELF file, in its order.
func Images(data []byte) ([]Image, error) {
	var images []Image
	var err error
	if bytes.HasPrefix(data, []byte(elf.ELFMAG)) {
		images, err = fromELF(data)
	} else {
		images, err = fromSection(nil, data)
	}
	if err == nil && len(images) == 0 {
		err = ErrNoPTX
	}
	return images, err
}

// fromELF reads the sections that nvcc and clang put fatbins into.
func fromELF(data []byte) ([]Image, error) {
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("the ELF file can't be read: %w", err)
	}
	var images []Image
	for _, s := range f.Sections {
		if s.Name != ".nv_fatbin" && s.Name != "__nv_relfatbin" || s.Type == elf.SHT_NOBITS {
			continue
		}
		section, err := s.Data()
		if err != nil {
			return nil, fmt.Errorf("section %s can't be read: %w", s.Name, err)
		}
		if images, err = fromSection(images, section); err != nil {
			return nil, fmt.Errorf("section %s: %w", s.Name, err)
		}
	}
	return images, nil
}

// fromSection reads fatbins that lie one after the other, with zeroes between.
func fromSection(images []Image, data []byte) ([]Image, error) {
	module := 0
	if n := len(images); n > 0 {
		module = images[n-1].Module + 1
	}
	for at := 0; ; module++ {
		for at < len(data) && data[at] == 0 {
			at++
		}
		if at == len(data) {
			return images, nil
		}
		rest := data[at:]
		if len(rest) < minHeader || binary.LittleEndian.Uint32(rest) != magic {
			return nil, fmt.Errorf("at byte %d is no fatbin", at)
		}
		header := uint64(binary.LittleEndian.Uint16(rest[6:]))
		size := binary.LittleEndian.Uint64(rest[8:])
		if header < minHeader || header > uint64(len(rest)) || size > uint64(len(rest))-header {
			return nil, fmt.Errorf("the fatbin at byte %d is truncated", at)
		}
		var err error
		if images, err = fromFatbin(images, module, rest[header:header+size]); err != nil {
			return nil, fmt.Errorf("the fatbin at byte %d: %w", at, err)
		}
		at += int(header + size)
	}
}

// fromFatbin reads the files of one fatbin.
func fromFatbin(images []Image, module int, data []byte) ([]Image, error) {
	for len(data) > 0 {
		if len(data) < minFileHeader {
			return nil, errors.New("a file's header is truncated")
		}
		le := binary.LittleEndian
		kind := le.Uint16(data)
		header := uint64(le.Uint32(data[4:]))
		stored, compressed := uint64(le.Uint32(data[8:])), uint64(le.Uint32(data[16:]))
		whole := header + max(stored, compressed)
		if header < minFileHeader || whole > uint64(len(data)) {
			return nil, errors.New("a file is truncated")
		}
		if kind == kindPTX {
			i := Image{Module: module, Arch: le.Uint32(data[28:]), flags: le.Uint64(data[40:]), size: le.Uint64(data[56:])}
			i.data = data[header:whole]
			if i.flags&(flagLZ4|flagZstd) != 0 {
				i.data = data[header : header+compressed]
			}
			if images = append(images, i); len(images) > maxImages {
				return nil, errors.New("there are too many files")
			}
		}
		data = data[whole:]
	}
	return images, nil
}

// Text returns the image's PTX, without the zeroes that it is padded with.
func (i *Image) Text() (string, error) {
	var text []byte
	var err error
	switch {
	case i.flags&flagLZ4 != 0:
		text, err = i.lz4()
	case i.flags&flagZstd != 0:
		text, err = i.zstd()
	default:
		text = i.data
	}
	if err != nil {
		return "", err
	}
	if end := bytes.IndexByte(text, 0); end >= 0 {
		text = text[:end]
	}
	return string(text), nil
}

// lz4 decompresses a block, which makes a byte into 255 at most.
func (i *Image) lz4() ([]byte, error) {
	if i.size > maxText || i.size > 255*uint64(len(i.data))+64 {
		return nil, fmt.Errorf("%d bytes can't become %d", len(i.data), i.size)
	}
	text := make([]byte, i.size)
	n, err := lz4.UncompressBlock(i.data, text)
	if err != nil {
		return nil, fmt.Errorf("lz4: %w", err)
	}
	return text[:n], nil
}

func (i *Image) zstd() ([]byte, error) {
	if i.size > maxText {
		return nil, fmt.Errorf("%d bytes of PTX are too many", i.size)
	}
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(max(i.size, 1)))
	if err != nil {
		return nil, err
	}
	defer d.Close()
	text, err := d.DecodeAll(i.data, nil)
	if err != nil {
		return nil, fmt.Errorf("zstd: %w", err)
	}
	return text, nil
}

// Best returns the image of each module for the newest architecture, in the
// order of the modules.
func Best(images []Image) []Image {
	var best []Image
	for _, i := range images {
		switch n := len(best); {
		case n == 0 || best[n-1].Module != i.Module:
			best = append(best, i)
		case i.Arch > best[n-1].Arch:
			best[n-1] = i
		}
	}
	return best
}
