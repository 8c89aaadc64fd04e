// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package opencl_test

import (
	"encoding/binary"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/opencl"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/pause"
)

var update = flag.Bool("update", false, "write the texts in testdata")

// module reads a program of testdata.
func module(t *testing.T, name string) (*ir.Module, map[*ir.Func]*pause.Plan) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".ir"))
	if err != nil {
		t.Fatal(err)
	}
	m, plans := parse(t, string(text))
	for f := range plans {
		plans[f] = pause.New(m, f)
	}
	return m, plans
}

// randomWords are n words of random numbers below a limit; 0: any.
func randomWords(n int, limit uint32) []byte {
	r := rand.New(rand.NewPCG(7, uint64(n)))
	var b []byte
	for range n {
		v := r.Uint32()
		if limit > 0 {
			v %= limit
		}
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return b
}

// programs are those of testdata, each with a launch.
var programs = []struct {
	name string
	mode opencl.Mode
	launch
}{
	{"spaces", opencl.Natural, launch{grid: [3]uint32{1, 1, 1}, block: [3]uint32{96, 1, 1}, dynamic: 512, params: []uint64{0x123456789}, data: randomWords(200, 0)}},
	{"sregs", opencl.Natural, launch{grid: [3]uint32{3, 2, 2}, block: [3]uint32{5, 3, 4}, data: make([]byte, 12*60*64)}},
	{"reduce", opencl.Natural, launch{grid: [3]uint32{4, 1, 1}, block: [3]uint32{64, 1, 1}, params: []uint64{20}, data: randomWords(256, 0)}},
	{"collatz", opencl.Natural, launch{grid: [3]uint32{4, 1, 1}, block: [3]uint32{48, 1, 1}, params: []uint64{3}, data: make([]byte, 8*4*48)}},
	{"warp", opencl.Natural, launch{grid: [3]uint32{1, 1, 1}, block: [3]uint32{128, 1, 1}, data: randomWords(32*128, 0)}},
	{"divergent", opencl.General, launch{grid: [3]uint32{1, 1, 1}, block: [3]uint32{128, 1, 1}, data: randomWords(8*128, 50)}},
	{"gather", opencl.Natural, launch{grid: [3]uint32{1, 1, 1}, block: [3]uint32{64, 1, 1}, data: randomWords(64, 0)}},
	{"print", opencl.Natural, launch{grid: [3]uint32{1, 1, 1}, block: [3]uint32{5, 1, 1}, data: make([]byte, 20)}},
	{"atomics", opencl.Natural, launch{grid: [3]uint32{1, 1, 1}, block: [3]uint32{256, 1, 1}, data: append(make([]byte, 4096), append(randomWords(256, 0), make([]byte, 36000)...)...)}},
}

func TestPrograms(t *testing.T) {
	d := openDevice(t)
	for i := range programs {
		c := &programs[i]
		t.Run(c.name, func(t *testing.T) {
			m, plans := module(t, c.name)
			p := write(t, m, plans)
			golden(t, c.name, p.Text)
			k := kernelOf(t, p, c.name)
			if k.Mode != c.mode {
				t.Errorf("mode %v: %s", k.Mode, k.Reason)
			}
			if log, err := d.Build(opencl.Options, p.Text); err != nil {
				t.Fatalf("%v\n%s", err, log)
			}
			got, _ := onDevice(t, d, m, k, k.Entry, &c.launch, nil, nil)
			printed := c.printed
			want, _ := onInterp(t, m, k.Plan, &c.launch, nil)
			differ(t, c.name, got, want)
			if printed != c.printed {
				t.Errorf("printed %q, want %q", printed, c.printed)
			}
		})
	}
}

// golden compares a text, without the helpers, with the one of testdata.
func golden(t *testing.T, name, text string) {
	t.Helper()
	if i := strings.Index(text, "__kernel"); i >= 0 {
		text = text[i:]
	}
	file := filepath.Join("testdata", name+".cl")
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("the text is not that of %s; go test -update writes it:\n%s", file, text)
	}
}
