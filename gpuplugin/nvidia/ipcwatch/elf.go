// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package ipcwatch

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"runtime"
)

// symbol is a function and where its code is in the file.
type symbol struct {
	name   string
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

// symbolsOf finds the functions that are counted. The library comes from a
// container, so nothing in it is taken for granted.
func symbolsOf(f io.ReaderAt) ([]symbol, error) {
	file, err := elf.NewFile(f)
	if err != nil {
		return nil, err
	}
	exported, err := file.DynamicSymbols()
	if errors.Is(err, elf.ErrNoSymbols) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var found []symbol
	for _, s := range exported {
		if _, wanted := functions[s.Name]; !wanted || s.Section == elf.SHN_UNDEF || elf.ST_TYPE(s.Info) != elf.STT_FUNC {
			continue
		}
		offset, ok := fileOffset(file, s.Value)
		if !ok {
			return nil, fmt.Errorf("%s is not in its code", s.Name)
		}
		code := make([]byte, breakpointSize())
		if _, err := f.ReadAt(code, int64(offset)); err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name, err)
		}
		found = append(found, symbol{name: s.Name, offset: offset, code: code})
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
