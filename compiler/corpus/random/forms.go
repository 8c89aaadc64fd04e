// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package random

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/corpus"
)

// FormsParts is how many programs Forms makes: OpenCL's compilers take long for large
// kernels.
const FormsParts = 12

// Forms makes programs that have each form of each instruction that computes: every
// type and modifier, once, on numbers that are random or special. What must be in the
// buffers afterwards is not known.
func Forms(part int) (*corpus.Case, string) {
	first, end := len(ops)*part/FormsParts, len(ops)*(part+1)/FormsParts
	r := rand.New(rand.NewPCG(5, uint64(part))) //nolint:gosec // not a secret: the same program each time
	decisions := make([]byte, 100*(end-first))
	for i := range decisions {
		decisions[i] = byte(r.Uint32())
	}
	g := &generator{decisions: decisions, inputs: r, threads: 128, free: true}
	g.write(".version 8.8\n.target sm_100a\n.address_size 64\n")
	g.begin()
	g.emit(".reg .pred %%op<2>; .reg .b16 %%oh<4>; .reg .b32 %%or<2>, %%tid_; .reg .b64 %%od<2>, %%in, %%out;")
	g.emit("mov.u32 %%tid_, %%tid.x;")
	g.emit("ld.param.u64 %%in, [in];")
	g.emit("ld.param.u64 %%out, [out];")
	g.emit("mad.wide.u32 %%in, %%tid_, %d, %%in;", slot)
	g.emit("mad.wide.u32 %%out, %%tid_, 8, %%out;")
	g.emit("ld.global.v2.b64 {%%d0, %%d1}, [%%in];")
	g.emit("ld.global.v2.b64 {%%d2, %%d3}, [%%in+16];")
	g.fill()
	stored := 0
	g.emit("bar.sync 0;") // so that it can be paused
	for _, op := range ops[first:end] {
		fields := strings.Fields(op)
		list := []string{results(fields[1])}
		for _, pattern := range fields[2:] {
			list = append(list, g.operands(pattern))
		}
		g.emit("%s %s;", fields[0], strings.Join(list, ", "))
		g.oneNaN(fields[0], list[0])
		count := map[rune]int{}
		for _, kind := range fields[1] {
			store := map[rune]string{'r': "b32", 'h': "b16", 'd': "b64"}[kind]
			reg := fmt.Sprintf("%%o%c%d", kind, count[kind])
			count[kind]++
			switch {
			case kind == 'p':
				g.emit("selp.b32 %%t0, 1, 2, %s;", reg)
				store, reg = "b32", "%t0"
			case store == "":
				continue
			}
			g.emit("st.global.%s [%%out+%d], %s;", store, 8*int(g.threads)*stored, reg)
			stored++
		}
	}
	g.end(".visible .entry k(.param .u64 in, .param .u64 out)")
	in := &corpus.Buffer{Name: "in", Elem: corpus.U64, Init: g.input(int(g.threads) * slot / 8)}
	out := &corpus.Buffer{Name: "out", Elem: corpus.U64, Init: make([]byte, 8*int(g.threads)*stored)}
	for _, b := range []*corpus.Buffer{in, out} {
		b.Want = slices.Clone(b.Init)
	}
	return &corpus.Case{
		Name: "forms", File: "forms", Buffers: []*corpus.Buffer{in, out},
		Launches: []corpus.Launch{{Kernel: "k", Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{g.threads, 1, 1}, Args: []any{in, out}}},
	}, g.text.String()
}

// results are registers that nothing else reads, for a pattern such as "{r,r}".
func results(pattern string) string {
	var s strings.Builder
	count := map[rune]int{}
	for _, c := range pattern {
		if !strings.ContainsRune("phrd", c) {
			s.WriteRune(c)
			continue
		}
		fmt.Fprintf(&s, "%%o%c%d", c, count[c])
		count[c]++
	}
	return s.String()
}
