// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package interp

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// Memory is a device's memory: regions of bytes at absolute addresses. The zero
// value has none. One launch uses it at a time.
type Memory struct {
	regions []region // by address
	last    region   // found last
	heap    heap
}

type region struct {
	addr  uint64
	bytes []byte
	used  func() // before each access; or nil
}

func (r region) holds(addr uint64, size int) bool {
	off := addr - r.addr
	return off <= uint64(len(r.bytes)) && uint64(size) <= uint64(len(r.bytes))-off
}

// Map makes b the memory from addr on. Programs then read and write b itself.
// It is an error if another region lies there, or if the address has bits that
// tell address spaces apart.
func (m *Memory) Map(addr uint64, b []byte) error { return m.Watch(addr, b, nil) }

// Watch is Map of memory that somebody else writes while a launch runs: used is
// called before each access to it, and may change b.
func (m *Memory) Watch(addr uint64, b []byte, used func()) error {
	end := addr + uint64(len(b))
	if len(b) == 0 || addr == 0 || end < addr || end&ir.WindowMask != 0 {
		return fmt.Errorf("interp: no memory can be at %#x, %d bytes", addr, len(b))
	}
	i, found := m.find(addr)
	if found || i > 0 && m.regions[i-1].addr+uint64(len(m.regions[i-1].bytes)) > addr ||
		i < len(m.regions) && m.regions[i].addr < end {
		return fmt.Errorf("interp: there is memory at %#x already", addr)
	}
	m.regions = slices.Insert(m.regions, i, region{addr, b, used})
	return nil
}

// find returns the index of the region that begins at an address, or where one
// would be.
func (m *Memory) find(addr uint64) (int, bool) {
	return slices.BinarySearchFunc(m.regions, addr, func(r region, a uint64) int { return cmp.Compare(r.addr, a) })
}

// Unmap removes the region that begins at addr.
func (m *Memory) Unmap(addr uint64) error {
	i := slices.IndexFunc(m.regions, func(r region) bool { return r.addr == addr })
	if i < 0 {
		return fmt.Errorf("interp: no memory begins at %#x", addr)
	}
	m.regions = slices.Delete(m.regions, i, i+1)
	m.last = region{}
	return nil
}

// At returns size bytes at an address, or nil if they are not all in one region.
func (m *Memory) At(addr uint64, size int) []byte {
	if !m.last.holds(addr, size) {
		i, found := m.find(addr)
		if !found {
			i--
		}
		if i < 0 || !m.regions[i].holds(addr, size) {
			return nil
		}
		m.last = m.regions[i]
	}
	if m.last.used != nil {
		m.last.used()
	}
	off := addr - m.last.addr
	return m.last.bytes[off : off+uint64(size) : off+uint64(size)]
}

// Load places a module's Global and Const variables one after the other from
// addr on, with their initial values, maps them, and returns where each lies.
func (m *Memory) Load(mod *ir.Module, addr uint64) (map[*ir.Var]uint64, error) {
	vars := map[*ir.Var]uint64{}
	end := addr
	for _, v := range mod.Vars {
		if v.Space != ir.Global && v.Space != ir.Const || v.Extern {
			continue
		}
		end = uint64(ir.AlignUp(int64(end), max(v.Align, 16)))
		vars[v] = end
		end += uint64(v.Size)
	}
	if len(vars) == 0 {
		return vars, nil
	}
	b := make([]byte, end-addr+1) // a variable without bytes has an address as well
	for v, at := range vars {
		copy(b[at-addr:], v.Init)
		for _, a := range v.Addresses {
			p, err := pointer(mod, a, vars)
			if err != nil {
				return nil, fmt.Errorf("interp: %s: %w", v.Name, err)
			}
			binary.LittleEndian.PutUint64(b[at-addr+uint64(a.Offset):], p)
		}
	}
	return vars, m.Map(addr, b)
}

// pointer is the value of a pointer in an initializer.
func pointer(mod *ir.Module, a ir.Address, vars map[*ir.Var]uint64) (uint64, error) {
	if a.Func != nil {
		if i := mod.FuncIndex(a.Func); i != 0 {
			return i, nil
		}
		return 0, fmt.Errorf("its initial value has the address of function %s, which is not in the module", a.Func.Name)
	}
	at, ok := vars[a.Var]
	if !ok {
		return 0, fmt.Errorf("its initial value has the address of %s, which has none", a.Var.Name)
	}
	return at + uint64(a.Addend), nil
}
