// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package corpus

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Elem is the type of a buffer's elements.
type Elem uint8

// The types. Bytes are unsigned integers.
const (
	U8 Elem = iota
	U16
	U32
	U64
	F16
	BF16
	F32
	F64
)

// Size is in bytes.
func (e Elem) Size() int { return [...]int{1, 2, 4, 8, 2, 2, 4, 8}[e] }

type number interface {
	uint8 | int8 | uint16 | int16 | uint32 | int32 | uint64 | int64 | float32 | float64
}

func elemOf[T number]() Elem {
	var zero T
	switch any(zero).(type) {
	case float32:
		return F32
	case float64:
		return F64
	}
	return map[int]Elem{1: U8, 2: U16, 4: U32, 8: U64}[binary.Size(zero)]
}

func encode(v any) []byte {
	var b bytes.Buffer
	if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
		panic("BUG: " + err.Error())
	}
	return b.Bytes()
}

// in is a buffer that no launch may change.
func in[T number](values []T) *Buffer { return &Buffer{Init: encode(values), Elem: elemOf[T]()} }

// out is a buffer of which launches fill every element.
func out[T number](want []T) *Buffer {
	b := inout(make([]T, len(want)), want)
	for i := range b.Init {
		b.Init[i] = 0xa5
	}
	return b
}

// inout is a buffer that launches change.
func inout[T number](init, want []T) *Buffer {
	return &Buffer{Init: encode(init), Want: encode(want), Elem: elemOf[T]()}
}

// variable says that the buffer is the module's variable.
func (b *Buffer) variable(name string) *Buffer {
	b.Name, b.Var = name, true
	return b
}

// of says that the elements are 16-bit floats.
func (b *Buffer) of(e Elem) *Buffer {
	b.Elem = e
	return b
}

// within is for results of approximate functions.
func (b *Buffer) within(errs ...Error) *Buffer {
	b.Errors = errs
	return b
}

// Spacing is between the end of a buffer and the next one's page: an access that
// is a little outside hits no other buffer.
const (
	page    = 4096
	Spacing = page
)

// Place gives each buffer that is no variable an address from base on, and
// returns the first address behind them, a multiple of the page.
func (c *Case) Place(base uint64) uint64 {
	for _, b := range c.Buffers {
		if b.Var {
			continue
		}
		b.Addr = base
		base += (uint64(len(b.Init))+page-1)/page*page + Spacing
	}
	for _, b := range c.Buffers {
		for _, p := range b.Pointers {
			binary.LittleEndian.PutUint64(b.Init[p.Offset:], p.To.Addr+p.Addend)
			binary.LittleEndian.PutUint64(b.Want[p.Offset:], p.To.Addr+p.Addend)
		}
	}
	return base
}

// Params returns the launch's parameter block, after Place: each argument aligned
// to its size, structures to 8 bytes.
func (l *Launch) Params() []byte {
	var block []byte
	for _, a := range l.Args {
		var value []byte
		align := 8
		switch a := a.(type) {
		case *Buffer:
			value = encode(a.Addr)
		case []byte:
			value = a
		default:
			value = encode(a)
			align = len(value)
		}
		for len(block)%align != 0 {
			block = append(block, 0)
		}
		block = append(block, value...)
	}
	return block
}

// Check compares what is in the buffers with what must be there.
func (c *Case) Check(read func(*Buffer) ([]byte, error)) error {
	for _, b := range c.Buffers {
		got, err := read(b)
		if err != nil {
			return fmt.Errorf("%s: %w", b.Name, err)
		}
		if err := b.Compare(got, b.Want); err != nil {
			return fmt.Errorf("%s: %w", b.Name, err)
		}
	}
	return nil
}

// CheckOutput compares what the launches printed.
func (c *Case) CheckOutput(printed string) error {
	var lines []string
	if printed != "" {
		lines = strings.Split(strings.TrimSuffix(printed, "\n"), "\n")
	}
	slices.Sort(lines)
	if !slices.Equal(lines, c.Output) {
		return fmt.Errorf("printed %q, want %q", lines, c.Output)
	}
	return nil
}

// Compare tells the first difference between two contents of the buffer. All NaNs
// are equal: IEEE 754 doesn't say which one an operation gives.
func (b *Buffer) Compare(got, want []byte) error {
	if bytes.Equal(got, want) {
		return nil
	}
	if len(got) != len(want) {
		return fmt.Errorf("has %d bytes, want %d", len(got), len(want))
	}
	size, wrong, first := b.Elem.Size(), 0, ""
	for i := 0; i+size <= len(want); i += size {
		g, w := got[i:i+size], want[i:i+size]
		if bytes.Equal(g, w) || b.Elem >= F16 && b.allowed(i/size).near(b.Elem.float(g), b.Elem.float(w)) {
			continue
		}
		if wrong++; wrong == 1 {
			first = fmt.Sprintf("[%d] is %s, want %s", i/size, b.Elem.format(g), b.Elem.format(w))
		}
	}
	if wrong == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d elements are wrong; %s", wrong, len(want)/size, first)
}

func (b *Buffer) allowed(i int) Error {
	if len(b.Errors) == 0 {
		return Error{}
	}
	return b.Errors[i%len(b.Errors)]
}

func (e Error) near(got, want float64) bool {
	if math.IsNaN(want) {
		return math.IsNaN(got)
	}
	if e == (Error{}) || math.IsInf(want, 0) {
		return got == want && math.Signbit(got) == math.Signbit(want)
	}
	return math.Abs(got-want) <= e.Abs+e.Rel*math.Abs(want)
}

// float reads an element that is a float.
func (e Elem) float(b []byte) float64 {
	switch e {
	case F16:
		return half.value(binary.LittleEndian.Uint16(b))
	case BF16:
		return bfloat.value(binary.LittleEndian.Uint16(b))
	case F32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	case F64:
		return math.Float64frombits(binary.LittleEndian.Uint64(b))
	}
	panic("BUG: an integer")
}

func (e Elem) format(b []byte) string {
	bits := uint64(0)
	for _, v := range slices.Backward(b) {
		bits = bits<<8 | uint64(v)
	}
	if e >= F16 {
		return fmt.Sprintf("%g (%#x)", e.float(b), bits)
	}
	return fmt.Sprintf("%d (%#x)", bits, bits)
}
