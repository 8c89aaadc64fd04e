// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/corpus"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/corpus/random"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/nvptx"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/pause"
)

// written has the interpreter run a program as it is written, for what all other ways
// of running it have to get.
func written(ctx context.Context, c *corpus.Case, text string) error {
	m, err := Lower(text)
	if err != nil {
		return err
	}
	p, _, err := New(c, m, base+ProgramOffset)
	if err != nil {
		return err
	}
	l, err := p.Launch(0)
	if err != nil {
		return err
	}
	if err := (Interpreter{}).Run(ctx, l, nil); err != nil {
		return err
	}
	for _, b := range c.Buffers {
		b.Want = bytes.Clone(p.at(b.Addr, len(b.Want)))
	}
	return nil
}

// agree runs a program as it is written, behind the passes, as PTX that can be
// paused, stopped at random, and so on more devices, if there are some: all must
// leave the same in memory. It returns how often the kernel was stopped.
func agree(t *testing.T, c *corpus.Case, text string, more ...Device) int {
	t.Helper()
	if err := written(t.Context(), c, text); err != nil {
		t.Fatalf("as it is written: %v\n%s", err, text)
	}
	ways := []struct {
		name string
		stop bool
		on   []Device
	}{
		{"behind the passes", false, []Device{Interpreter{}}},
		{"our PTX", false, []Device{&Interpreted{}}},
		{"stopped", true, []Device{Interpreter{First: true}}},
		{"our PTX, stopped", true, []Device{&Interpreted{}}},
		{"moved", true, append([]Device{Interpreter{}, &Interpreted{}}, more...)},
	}
	for i := range more {
		ways = append(ways, struct {
			name string
			stop bool
			on   []Device
		}{fmt.Sprintf("device %d", i), false, more[i : i+1]})
	}
	prepared, err := Prepared(c, text, base, pause.Prepare)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	stopped := 0
	for i, way := range ways {
		p, err := prepared.again(c, base)
		if err != nil {
			t.Fatal(err)
		}
		var path Path
		if way.stop {
			path, err = Move(t.Context(), p, rand.New(rand.NewPCG(uint64(i), uint64(len(text)))), way.on...)
			stopped += path.Inside["k"]
		} else {
			var l *Launch
			if l, err = p.Launch(0); err == nil {
				err = way.on[0].Run(t.Context(), l, nil)
			}
		}
		if err == nil {
			err = p.Check()
		}
		if err != nil {
			t.Fatalf("%s: %v; path: %s\n%s", way.name, err, strings.Join(path.Legs, ", "), text)
		}
	}
	return stopped
}

// decisions are random ones.
func decisions(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 99))
	d := make([]byte, n)
	for i := range d {
		d[i] = byte(r.Uint32())
	}
	return d
}

// TestRandom: random programs do the same in every way of running them, some on PoCL
// too, which takes seconds for each.
func TestRandom(t *testing.T) {
	const programs, onPoCL = 24, 3
	var ran, stopped atomic.Int64
	t.Run("programs", func(t *testing.T) {
		for seed := range uint64(programs) {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				ran.Add(1)
				if seed < onPoCL {
					c, text := random.Program(decisions(seed, 200))
					stopped.Add(int64(agree(t, c, text, pocl.take(t))))
				} else {
					c, text := random.Program(decisions(seed, 1000))
					stopped.Add(int64(agree(t, c, text)))
				}
			})
		}
	})
	if stopped.Load() < ran.Load() {
		t.Errorf("%d programs were stopped %d times only", ran.Load(), stopped.Load())
	}
}

// TestForms: every form of every instruction that computes gives the same bits in every
// way of running it, and is printed as PTX again.
func TestForms(t *testing.T) {
	for part := range random.FormsParts {
		t.Run(fmt.Sprint(part), func(t *testing.T) {
			t.Parallel()
			c, text := random.Forms(part)
			p, err := Prepared(c, text, base)
			if err != nil {
				t.Fatal(err)
			}
			for _, plan := range p.Plans {
				if err := nvptx.Pausable(p.Module, plan); err != nil {
					t.Error(err)
				}
			}
			agree(t, c, text, pocl.take(t))
		})
	}
}

// FuzzRandom: the same for whatever decisions.
func FuzzRandom(f *testing.F) {
	f.Add([]byte{})
	for seed := range uint64(4) {
		f.Add(decisions(1000+seed, 600))
	}
	f.Fuzz(func(t *testing.T, decisions []byte) {
		if len(decisions) < 4096 {
			c, text := random.Program(decisions)
			agree(t, c, text)
		}
	})
}
