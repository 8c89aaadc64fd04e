// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package corpus has the programs that the compiler is tested with: CUDA kernels
// (kernels/*.cu) with the PTX that clang makes of them, launches with random but
// fixed inputs, and what must be in memory afterwards, which plain Go tells and no
// back end does.
//
// It knows nothing of how a kernel is compiled or run; harness does.
package corpus

//go:generate kernels/generate.sh

import (
	"embed"
	"fmt"
	"hash/fnv"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
)

//go:embed kernels/*.ptx kernels/*.cu kernels/*.h
var kernels embed.FS

// Case is a program: launches over buffers, one after another.
type Case struct {
	Name string
	// File is the name of the kernels' file in kernels/, without its ending.
	File     string
	Buffers  []*Buffer
	Launches []Launch
	// Output is what the launches print, its lines sorted: threads print in any
	// order.
	Output []string
}

// Launch is one launch of a kernel.
type Launch struct {
	Kernel      string
	Grid, Block [3]uint32
	// Shared is the dynamic shared memory, in bytes.
	Shared uint32
	// Args are *Buffer (its address), integers and floats of the parameter's size,
	// and []byte for structures.
	Args []any
}

// Buffer is memory of the device.
type Buffer struct {
	Name string
	// Var: the buffer is the module's variable of that name, and not memory of its
	// own.
	Var  bool
	Addr uint64 // given by Place, or by who places the module's variables
	Init []byte // nil for a variable: what the module says
	// Pointers are put into Init when all buffers have their places.
	Pointers []Pointer
	// Want is what must be there in the end; if nil, Init, unchanged.
	Want []byte
	// Elem is how differences are told and measured.
	Elem Elem
	// Errors are how far floats may be off, for results of approximate functions:
	// element i has Errors[i%len(Errors)]. None: not a bit. Each use has its reason.
	Errors []Error
}

// Error allows |got - want| <= Abs + Rel*|want|.
type Error struct{ Abs, Rel float64 }

// Pointer is an address of a buffer in another's memory.
type Pointer struct {
	Offset int
	To     *Buffer
	Addend uint64
}

// All returns every case, the same each time. A case belongs to its caller, who
// may place it and change its buffers.
func All() []*Case {
	all := make([]*Case, 0, len(table))
	for _, e := range table {
		all = append(all, e.make())
	}
	return all
}

// Get returns the case of that name, or nil.
func Get(name string) *Case {
	for _, e := range table {
		if e.name == name {
			return e.make()
		}
	}
	return nil
}

// Files returns the names of all files of kernels, sorted, without their ending.
func Files() []string {
	entries, err := kernels.ReadDir("kernels")
	if err != nil {
		panic("BUG: " + err.Error())
	}
	var names []string
	for _, e := range entries {
		if name, is := strings.CutSuffix(e.Name(), ".ptx"); is {
			names = append(names, name)
		}
	}
	return names
}

// Sources has the kernels' CUDA C++, with what it includes.
func Sources() fs.FS {
	sources, err := fs.Sub(kernels, "kernels")
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return sources
}

// PTX returns the text of a file of kernels.
func PTX(file string) (string, error) {
	text, err := kernels.ReadFile("kernels/" + file + ".ptx")
	return string(text), err
}

// entry is how a case is made: of random numbers that depend on its name only.
type entry struct {
	name  string
	build func(*rand.Rand) *Case
}

var table = slices.Concat(basicCases, arithmeticCases, reduceCases, warpCases, atomicCases,
	gridCases, matrixCases, graphCases, numericCases, controlCases, barrierCases)

func (e entry) make() *Case {
	h := fnv.New64a()
	_, _ = h.Write([]byte(e.name))
	c := e.build(rand.New(rand.NewPCG(h.Sum64(), 1))) //nolint:gosec // not a secret: the same inputs each time
	c.Name = e.name
	if c.File == "" {
		c.File = e.name
	}
	for i := range c.Launches {
		l := &c.Launches[i]
		if l.Kernel == "" {
			l.Kernel = c.File
		}
		for d := range 3 {
			l.Grid[d], l.Block[d] = max(1, l.Grid[d]), max(1, l.Block[d])
		}
		for _, a := range l.Args {
			if b, ok := a.(*Buffer); ok && !slices.Contains(c.Buffers, b) {
				c.Buffers = append(c.Buffers, b)
			}
		}
	}
	for i, b := range c.Buffers {
		if b.Name == "" {
			b.Name = fmt.Sprintf("buffer %d", i)
		}
		if b.Want == nil {
			b.Want = slices.Clone(b.Init)
		}
	}
	return c
}

// launch is the usual one: one dimension, and the kernel that has the file's name.
func launch(grid, block uint32, args ...any) Launch {
	return Launch{Grid: [3]uint32{grid}, Block: [3]uint32{block}, Args: args}
}
