// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package ipcwatch

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
)

// effect is what a call that succeeds changes.
type effect int

const (
	opensMemory effect = iota
	closesMemory
	opensEvent
)

// changes is what the programs count of an effect.
var changes = [...]struct{ member, by int32 }{
	opensMemory:  {offMemory, 1},
	closesMemory: {offMemory, -1},
	opensEvent:   {offEvents, 1},
}

// effectOf tells what a function of libcuda changes, if it is counted.
func effectOf(name string) (_ effect, counted bool) {
	switch name {
	case "cuIpcOpenMemHandle", // CUDA 4.1
		"cuIpcOpenMemHandle_v2": // CUDA 11
		return opensMemory, true
	case "cuIpcCloseMemHandle":
		return closesMemory, true
	case "cuIpcOpenEventHandle":
		return opensEvent, true
	}
	return 0, false
}

// maxTable is the size up to which a symbol table is read; that of libcuda 580
// has 0.1 MiB.
const maxTable = 64 << 20

// symbol is a function and where its code is in the file.
type symbol struct {
	name   string
	effect effect
	offset uint64
	// code is what the file has in the place of a breakpoint.
	code []byte
}

// breakpointSize is the size of the instruction that the kernel puts there.
func breakpointSize() int {
	if runtime.GOARCH == "amd64" {
		return 1 // int3
	}
	return 4 // brk
}

// isBreakpoint tells whether code is the instruction that the kernel puts there
// (int3; BRK64_OPCODE_UPROBES in the kernel's arm64 headers).
func isBreakpoint(code []byte) bool {
	if runtime.GOARCH == "amd64" {
		return bytes.Equal(code, []byte{0xcc})
	}
	const brk, uprobes = 0xd4200000, 0x0005
	return len(code) == 4 && binary.LittleEndian.Uint32(code) == brk|uprobes<<5
}

// symbolsOf finds the functions that are counted, each place once. The library
// comes from a container, so nothing in it is taken for granted.
func symbolsOf(f io.ReaderAt) (found []symbol, err error) {
	defer func() {
		// debug/elf does not promise to survive every file.
		if r := recover(); r != nil {
			found, err = nil, fmt.Errorf("malformed ELF file: %v", r)
		}
	}()
	file, err := elf.NewFile(f)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(file.Sections, func(s *elf.Section) bool {
		return (s.Type == elf.SHT_DYNSYM || s.Type == elf.SHT_STRTAB) && max(s.Size, s.FileSize) > maxTable
	}) {
		return nil, errors.New("malformed ELF file: a symbol table of absurd size")
	}
	exported, err := file.DynamicSymbols()
	if errors.Is(err, elf.ErrNoSymbols) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, s := range exported {
		effect, counted := effectOf(s.Name)
		if !counted || s.Section == elf.SHN_UNDEF || elf.ST_TYPE(s.Info) != elf.STT_FUNC {
			continue
		}
		offset, ok := fileOffset(file, s.Value)
		if !ok {
			return nil, fmt.Errorf("%s is not in its code", s.Name)
		}
		if slices.ContainsFunc(found, func(other symbol) bool { return other.offset == offset }) {
			continue
		}
		code := make([]byte, breakpointSize())
		if _, err := f.ReadAt(code, int64(offset)); err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name, err)
		}
		found = append(found, symbol{name: s.Name, effect: effect, offset: offset, code: code})
	}
	return found, nil
}

// fileOffset is where the file has what is at an address.
func fileOffset(file *elf.File, address uint64) (uint64, bool) {
	for _, p := range file.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && address >= p.Vaddr && address-p.Vaddr < p.Filesz {
			return address - p.Vaddr + p.Off, true
		}
	}
	return 0, false
}
