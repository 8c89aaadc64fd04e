// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package random makes programs in PTX that nobody wrote: arithmetic of every type,
// branches, loops, shared memory between barriers, warp operations, local arrays,
// calls. They are valid, they end, and what they leave in memory depends on their
// input only, however their threads are interleaved: so all ways of running one must
// give the same bits.
//
// What keeps them so: loops count down; a thread writes to places of its own, others
// read them between two barriers; several threads add to one place only by one
// operation, whose order doesn't matter; barriers are where all threads of a block
// are together, warp operations where all of a warp are.
package random

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/corpus"
)

// Program makes a program of decisions, one a byte; behind their end all are 0, which
// is always the simplest. The same bytes give the same program. What must be in the
// buffers afterwards is not known.
func Program(decisions []byte) (*corpus.Case, string) {
	h := fnv.New64a()
	_, _ = h.Write(decisions)
	g := &generator{decisions: decisions, inputs: rand.New(rand.NewPCG(h.Sum64(), 1))} //nolint:gosec // not a secret
	g.threads = [...]uint32{64, 32, 40, 96, 1, 70, 128}[g.n(7)]
	g.quiet = g.n(8) != 7
	switch g.n(8) {
	case 4:
		g.phased = true
	case 5:
		g.mayExit = true
	case 6:
		g.free = true
	case 7:
		g.mayExit, g.free = true, true
	}
	g.functions()
	g.together()
	g.kernel()
	const grid = 2
	total := int(grid * g.threads)
	in := &corpus.Buffer{Name: "in", Elem: corpus.U64, Init: g.input(total * slot / 8)}
	out := &corpus.Buffer{Name: "out", Elem: corpus.U64, Init: make([]byte, total*8*outputs)}
	counts := &corpus.Buffer{Name: "counts", Elem: corpus.U32, Init: make([]byte, 4*len(reductions))}
	for _, b := range []*corpus.Buffer{in, out, counts} {
		b.Want = slices.Clone(b.Init)
	}
	return &corpus.Case{
		Name: "random", File: "random", Buffers: []*corpus.Buffer{in, out, counts},
		Launches: []corpus.Launch{{
			Kernel: "k", Grid: [3]uint32{grid, 1, 1}, Block: [3]uint32{g.threads, 1, 1}, Shared: g.threads * 16,
			Args: []any{in, out, counts, uint32(g.inputs.IntN(5)), g.inputs.Uint64()},
		}},
	}, g.text.String()
}

const (
	slot = 128 // bytes of a thread in global memory
	// Registers of each kind that programs compute with.
	numP, numH, numR, numD, numU = 4, 4, 6, 4, 3
	outputs                      = numP + numH + numR + numD + 2*numU
)

// together tells which threads surely run the same instructions here.
type together uint8

const (
	alone together = iota // perhaps one thread
	warp                  // all of a warp
	block                 // all of a block
)

type generator struct {
	decisions []byte
	inputs    *rand.Rand
	threads   uint32
	mayExit   bool // threads may end early: then nothing is done by whole warps
	quiet     bool // loops don't depend on global memory, so that blocks surely don't wait for one another
	phased    bool // the kernel is phases
	free      bool // threads have nothing to do with one another: no barriers, no shared memory
	text      strings.Builder
	callees   int // functions that threads call alone
	meetings  int // functions that all of a block call together

	// The function at hand.
	body   strings.Builder
	labels int
	loops  int  // registers that count
	size   int  // statements
	inside bool // a function that threads call alone
	small  bool // one that all of a block call together
	// uniform are registers that are the same for a block; perWarp for a warp.
	uniform, perWarp []string
	// nest is how deep statements are nested, rounds how deep loops are.
	nest, rounds int
	// leave is the label behind the innermost loop, if threads may go there.
	leave string
	// leaveTogether is who goes there.
	leaveTogether together
	// called: the function has called another one already.
	called bool
}

// n decides between 0 and k-1.
func (g *generator) n(k int) int {
	if len(g.decisions) == 0 {
		return 0
	}
	v := int(g.decisions[0])
	g.decisions = g.decisions[1:]
	if k > 256 && len(g.decisions) > 0 {
		v = v<<8 | int(g.decisions[0])
		g.decisions = g.decisions[1:]
	}
	return v % k
}

func pick[T any](g *generator, from []T) T { return from[g.n(len(from))] }

// emit writes a line of the function.
func (g *generator) emit(format string, args ...any) { fmt.Fprintf(&g.body, "\t"+format+"\n", args...) }

func (g *generator) label() string {
	g.labels++
	return fmt.Sprintf("L%d", g.labels)
}

func (g *generator) place(label string) { fmt.Fprintf(&g.body, "%s:\n", label) }

// input is random bits and what is special in some format.
func (g *generator) input(words int) []byte {
	var b []byte
	for range words {
		b = binary.LittleEndian.AppendUint64(b, g.value())
	}
	return b
}

func (g *generator) value() uint64 {
	r := g.inputs
	single := func(f float32) uint64 { return uint64(math.Float32bits(f)) }
	special := []float64{0, math.Copysign(0, -1), 1, -1, 0.5, 2.5, math.Inf(1), math.Inf(-1), math.NaN(), 1e-310, 1e-40, 65504, 1 << 31, 1 << 63, -(1 << 31), 3e38}
	switch r.IntN(6) {
	case 0:
		return uint64(r.Int64N(64) - 32)
	case 1:
		return math.Float64bits(special[r.IntN(len(special))])
	case 2:
		return single(float32(special[r.IntN(len(special))])) | single(float32(special[r.IntN(len(special))]))<<32
	case 3:
		return single(float32(r.NormFloat64())) | single(float32(r.NormFloat64()))<<32
	case 4:
		return math.Float64bits(r.NormFloat64())
	}
	return r.Uint64()
}

var pools = map[byte]int{'p': numP, 'h': numH, 'r': numR, 'd': numD}

func (g *generator) reg(kind byte) string { return fmt.Sprintf("%%%c%d", kind, g.n(pools[kind])) }

// word is a register of 32 bits that threads of any kind may read here.
func (g *generator) word() string {
	others := slices.Concat(g.uniform, g.perWarp)
	if k := g.n(numR + len(others)); k >= numR {
		return others[k-numR]
	}
	return g.reg('r')
}

// operand is one of what ops describes.
func (g *generator) operand(kind byte) string {
	switch kind {
	case 'p', 'h', 'd', 'r':
		return g.reg(kind)
	case 'b':
		return fmt.Sprint(g.n(256))
	}
	register := g.n(4) != 3
	switch kind {
	case 'i':
		if register {
			return g.word()
		}
		return pick(g, []string{"0", "1", "-1", "31", "32", "0x80000000", "0x7fffffff", "0xff00ff00", "7", "-32768"})
	case 'j':
		if register {
			return g.reg('d')
		}
		return pick(g, []string{"0", "1", "-1", "0x8000000000000000", "0x123456789abcdef", "63", "0xffffffff"})
	case 'k':
		if register {
			return g.reg('h')
		}
		return pick(g, []string{"0", "1", "-1", "0x7fff", "0x8000", "15"})
	case 'f':
		if register {
			return g.reg('r')
		}
		return pick(g, []string{"0f00000000", "0f80000000", "0f3F800000", "0fBF000000", "0f7F800000", "0f00000001", "0f7FC00000", "0f4B000001"})
	case 'g':
		if register {
			return g.reg('d')
		}
		return pick(g, []string{"0d0000000000000000", "0d8000000000000000", "0d3FF0000000000000", "0dFFF0000000000000", "0d0000000000000001", "0d7FF8000000000000"})
	}
	panic(fmt.Sprintf("BUG: operand %c", kind))
}

// operands writes out a pattern such as "{r,r}" or "r|p". Results are different
// registers.
func (g *generator) operands(pattern string) string {
	var s strings.Builder
	used := map[string]bool{}
	for _, c := range []byte(pattern) {
		if c < 'a' || c > 'z' {
			s.WriteByte(c)
			continue
		}
		o := g.operand(c)
		for len(pattern) > 1 && used[o] {
			o = nextRegister(o)
		}
		used[o] = true
		s.WriteString(o)
	}
	return s.String()
}

// nextRegister is another one of the same kind.
func nextRegister(o string) string {
	n := int(o[2]-'0') + 1
	return fmt.Sprintf("%s%d", o[:2], n%pools[o[1]])
}

// guard is a predicate before an instruction, or none.
func (g *generator) guard() string {
	switch g.n(8) {
	case 6:
		return "@" + g.reg('p') + " "
	case 7:
		return "@!" + g.reg('p') + " "
	}
	return ""
}

// compute emits an operation of ops.
func (g *generator) compute() {
	fields := strings.Fields(ops[g.n(len(ops))])
	guard := g.guard()
	list := make([]string, 0, 5)
	for _, pattern := range fields[1:] {
		list = append(list, g.operands(pattern))
	}
	g.emit("%s%s %s;", guard, fields[0], strings.Join(list, ", "))
	g.oneNaN(fields[0], list[0])
}

// oneNaN makes one of all NaNs that an operation on f64 gives: which of its operands'
// it passes on is a device's own (docs/opencl.md).
func (g *generator) oneNaN(opcode, result string) {
	op, mods, _ := strings.Cut(opcode, ".")
	double := strings.HasSuffix(mods, "f64") && op != "cvt" && op != "set" || op == "cvt" && strings.Contains(mods, "f64.f")
	if !double || result[len(result)-2] != 'd' {
		return
	}
	g.emit("testp.notanumber.f64 %%q2, %s;", result)
	g.emit("@%%q2 mov.b64 %s, 0x7ff8000000000000;", result)
}
