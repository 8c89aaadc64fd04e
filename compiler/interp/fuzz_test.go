// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package interp

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/pause"
)

// maxFuzzed bounds the size of what a fuzzed program declares.
const maxFuzzed = 1 << 16

// small tells whether a module asks for little memory.
func small(m *ir.Module) bool {
	vars := append([]*ir.Var{}, m.Vars...)
	for _, f := range m.Funcs {
		vars = append(vars, f.Vars...)
		for _, p := range append(append([]*ir.Parameter{}, f.Params...), f.Results...) {
			if p.Offset < 0 || p.Offset > maxFuzzed {
				return false
			}
			vars = append(vars, &p.Var)
		}
	}
	for _, v := range vars {
		if v.Size > maxFuzzed || v.Align > maxFuzzed {
			return false
		}
	}
	return true
}

// FuzzRun: whatever the verifier accepts runs, or ends with an error; paused and
// resumed too.
func FuzzRun(f *testing.F) {
	for _, glob := range []string{"../ir/testdata/*.ir", "../passes/testdata/*.txt", "../pause/testdata/*.txt"} {
		files, err := filepath.Glob(glob)
		if err != nil || len(files) == 0 {
			f.Fatalf("no files %s: %v", glob, err)
		}
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(string(b))
		}
	}
	f.Add(kernel(barrierMemory, barriers))
	f.Add(kernel("", loops))
	f.Add(kernel("  var param $a 4 align 4\n  var param $b 4 align 4", "  call @fib($a) -> ($b)\n  exit\n") + functions)
	f.Fuzz(func(t *testing.T, text string) {
		m, err := ir.Parse(text)
		if err != nil || ir.Verify(m) != nil || !small(m) {
			return
		}
		for _, k := range m.Funcs {
			if !k.Kernel || len(k.Blocks) == 0 {
				continue
			}
			mem := &Memory{}
			if err := mem.Map(bufferAddress, make([]byte, 4096)); err != nil {
				t.Fatal(err)
			}
			vars, err := mem.Load(m, 0x1000000)
			if err != nil {
				return
			}
			l := &Launch{Module: m, Kernel: k, Grid: [3]uint32{2}, Block: [3]uint32{37}, Memory: mem, Vars: vars, MaxSteps: 3000}
			l.Params = make([]byte, maxFuzzed*2)
			le.PutUint64(l.Params, bufferAddress)
			_ = Run(t.Context(), l)
			l.Plan = pause.New(m, k)
			if n := l.Plan.StateBytes(2, 37, 0); n < 1<<24 {
				l.State = make([]byte, n)
				asked := 0
				l.Pause = func(uint32, int) bool { asked++; return asked%3 != 0 }
				for range 4 {
					_ = Run(t.Context(), l)
				}
			}
		}
	})
}
