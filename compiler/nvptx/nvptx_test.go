// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package nvptx_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/corpus"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/interp"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/lower"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/nvptx"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/passes"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/pause"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ptx"
)

// program is a file of the corpus, and what the back end made of it.
type program struct {
	module *ir.Module // prepared
	plans  map[string]*pause.Plan
	text   string
	anew   *ir.Module // text, through the front end again
}

func compile(t *testing.T, file string) *program {
	t.Helper()
	text, err := corpus.PTX(file)
	if err != nil {
		t.Fatal(err)
	}
	return compileText(t, text)
}

func compileText(t *testing.T, text string) *program {
	t.Helper()
	src, err := ptx.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	p := &program{plans: map[string]*pause.Plan{}}
	if p.module, err = lower.Lower(src); err != nil {
		t.Fatal(err)
	}
	if err := passes.Prepare(p.module); err != nil {
		t.Fatal(err)
	}
	var plans []*pause.Plan
	for _, f := range p.module.Funcs {
		if f.Kernel && len(f.Blocks) > 0 {
			plan := pause.New(p.module, f)
			p.plans[f.Name] = plan
			plans = append(plans, plan)
		}
	}
	if p.text, err = nvptx.Module(src, p.module, plans); err != nil {
		t.Fatal(err)
	}
	again, err := ptx.Parse(p.text)
	if err != nil {
		t.Fatalf("our PTX: %v\n%s", err, p.text)
	}
	if p.anew, err = lower.Lower(again); err != nil {
		t.Fatalf("our PTX: %v\n%s", err, p.text)
	}
	return p
}

// Where things are in the tests' memory.
const (
	varsAt    = 0x2000_0000_0000
	buffersAt = 0x2000_1000_0000
	launchAt  = 0x2000_4000_0000
	flagAt    = 0x2000_4000_1000
	listAt    = 0x2000_4001_0000
	stateAt   = 0x2000_5000_0000
)

// rounds is how often a launch is told to pause.
const rounds = 60

// seeds is how many times each case is paused in other places.
const seeds = 8

// machine runs one case.
type machine struct {
	*program
	c      *corpus.Case
	memory interp.Memory
	vars   map[*ir.Var]uint64 // of anew
	old    map[*ir.Var]uint64 // of module, at the same addresses
	out    bytes.Buffer

	flag   []byte
	state  []byte
	launch []byte
	list   []byte
	// looks is after how many looks at the flag it is set; negative: never.
	looks int
	stops int // how often a block was found paused
}

func newMachine(t *testing.T, p *program, c *corpus.Case) *machine {
	t.Helper()
	m := &machine{program: p, c: c, flag: make([]byte, 4), launch: make([]byte, 128), list: make([]byte, 1<<16), looks: -1}
	var err error
	if m.vars, err = m.memory.Load(p.anew, varsAt); err != nil {
		t.Fatal(err)
	}
	m.old = map[*ir.Var]uint64{}
	for _, v := range p.module.Vars {
		for w, at := range m.vars {
			if w.Name == v.Name {
				m.old[v] = at
			}
		}
	}
	c.Place(buffersAt)
	for _, b := range c.Buffers {
		if b.Var {
			for v, at := range m.vars {
				if v.Name == b.Name {
					b.Addr = at
				}
			}
			copy(m.memory.At(b.Addr, len(b.Want)), b.Init)
			continue
		}
		m.must(t, m.memory.Map(b.Addr, bytes.Clone(b.Init)))
	}
	m.must(t, m.memory.Map(launchAt, m.launch))
	m.must(t, m.memory.Map(listAt, m.list))
	m.must(t, m.memory.Watch(flagAt, m.flag, func() {
		if m.looks == 0 {
			m.flag[0] = 1
		}
		m.looks--
	}))
	return m
}

func (m *machine) must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// describe fills in the launch's description.
func (m *machine) describe(l *corpus.Launch, state uint64) {
	clear(m.launch)
	le := binary.LittleEndian
	le.PutUint64(m.launch[8:], state)
	le.PutUint64(m.launch[16:], listAt)
	le.PutUint64(m.launch[24:], flagAt)
	for i := range 3 {
		le.PutUint32(m.launch[48+4*i:], l.Grid[i])
		le.PutUint32(m.launch[60+4*i:], l.Block[i])
	}
	le.PutUint32(m.launch[72:], l.Shared)
}

func (m *machine) run(kernel string, grid [3]uint32, l *corpus.Launch) error {
	f := m.anew.Func(kernel)
	if f == nil {
		return fmt.Errorf("there is no kernel %s", kernel)
	}
	params := l.Params()
	if last := f.Params[len(f.Params)-1]; last.Name == nvptx.LaunchParam {
		params = append(params, make([]byte, int(last.Offset)+8-len(params))...)
		binary.LittleEndian.PutUint64(params[last.Offset:], launchAt)
	}
	return interp.Run(context.Background(), &interp.Launch{
		Module: m.anew, Kernel: f, Grid: grid, Block: l.Block, DynamicShared: l.Shared,
		Params: params, Vars: m.vars, Memory: &m.memory, Out: &m.out, MaxSteps: 200_000_000,
	})
}

func (m *machine) check(t *testing.T) {
	t.Helper()
	err := m.c.Check(func(b *corpus.Buffer) ([]byte, error) { return m.memory.At(b.Addr, len(b.Want)), nil })
	if err := errors.Join(err, m.c.CheckOutput(m.out.String())); err != nil {
		t.Error(err)
	}
}

func eachCase(t *testing.T, run func(t *testing.T, p *program, c *corpus.Case)) {
	programs := map[string]*program{}
	for _, c := range corpus.All() {
		t.Run(c.Name, func(t *testing.T) {
			p := programs[c.File]
			if p == nil {
				p = compile(t, c.File)
				programs[c.File] = p
			}
			run(t, p, c)
		})
	}
}

// TestCorpus: our PTX, nobody pausing, computes what the program's does.
func TestCorpus(t *testing.T) {
	eachCase(t, func(t *testing.T, p *program, c *corpus.Case) {
		m := newMachine(t, p, c)
		for i := range c.Launches {
			l := &c.Launches[i]
			m.describe(l, 0)
			m.must(t, m.run(l.Kernel, l.Grid, l))
		}
		m.check(t)
	})
}

// TestPause: stopped again and again, resumed by our PTX or by the interpreter's
// own way, and then the same.
func TestPause(t *testing.T) {
	stops := 0
	eachCase(t, func(t *testing.T, p *program, c *corpus.Case) {
		if !slices.ContainsFunc(c.Launches, func(l corpus.Launch) bool { return nvptx.Pausable(p.module, p.plans[l.Kernel]) == nil }) {
			t.Skip("no kernel of it can be paused")
		}
		for seed := range uint64(seeds) {
			c := corpus.Get(c.Name)
			r := rand.New(rand.NewPCG(seed, 7)) //nolint:gosec // the same each time
			m := newMachine(t, p, c)
			for i := range c.Launches {
				l := &c.Launches[i]
				plan := p.plans[l.Kernel]
				if nvptx.Pausable(p.module, plan) != nil {
					m.must(t, m.run(l.Kernel, l.Grid, l))
					continue
				}
				m.pausing(t, r, l, plan)
			}
			m.check(t)
			stops += m.stops
			if t.Failed() {
				t.Fatalf("seed %d, %d blocks were paused", seed, m.stops)
			}
		}
	})
	if stops < 1000 {
		t.Errorf("only %d times a block was paused", stops)
	}
	t.Logf("%d times a block was paused", stops)
}

// pausing runs a launch with pauses.
func (m *machine) pausing(t *testing.T, r *rand.Rand, l *corpus.Launch, plan *pause.Plan) {
	t.Helper()
	blocks := int64(l.Grid[0]) * int64(l.Grid[1]) * int64(l.Grid[2])
	threads := int64(l.Block[0]) * int64(l.Block[1]) * int64(l.Block[2])
	state := make([]byte, plan.StateBytes(blocks, threads, int64(l.Shared)))
	m.must(t, m.memory.Map(stateAt, state))
	defer func() { m.must(t, m.memory.Unmap(stateAt)) }()
	m.describe(l, stateAt)
	for round := 0; ; round++ {
		byStatus := map[uint32][]uint32{}
		for b := range uint32(blocks) {
			if s := binary.LittleEndian.Uint32(state[4*b:]); s != pause.Done {
				byStatus[s] = append(byStatus[s], b)
			}
		}
		if len(byStatus) == 0 {
			return
		}
		m.flag[0], m.looks = 0, -1
		if round < rounds {
			m.looks = r.IntN(5)
		}
		for s, blocks := range byStatus {
			if s != pause.NotStarted {
				m.stops += len(blocks)
			}
		}
		if round%3 == 2 && m.c.Output == nil { // the other way
			old := &interp.Launch{
				Module: m.module, Kernel: plan.Func, Grid: l.Grid, Block: l.Block, DynamicShared: l.Shared,
				Params: l.Params(), Vars: m.old, Memory: &m.memory, Plan: plan, State: state, MaxSteps: 200_000_000,
				Pause: func(uint32, int) bool { return round < rounds && r.IntN(20) == 0 },
			}
			m.must(t, interp.Run(context.Background(), old))
			continue
		}
		var statuses []uint32
		for s := range byStatus {
			statuses = append(statuses, s)
		}
		slices.Sort(statuses)
		for _, s := range statuses {
			kernel := nvptx.ResumeName(l.Kernel, int(s))
			if s == pause.ThreadPoints {
				kernel = nvptx.ThreadsName(l.Kernel)
			}
			if round == 0 {
				m.must(t, m.run(l.Kernel, l.Grid, l))
				break
			}
			for i, b := range byStatus[s] {
				binary.LittleEndian.PutUint32(m.list[4*i:], b)
			}
			m.must(t, m.run(kernel, [3]uint32{uint32(len(byStatus[s])), 1, 1}, l))
		}
	}
}

// TestDeterministic: the same text each time.
func TestDeterministic(t *testing.T) {
	a, b := compile(t, "matmul_tiled"), compile(t, "matmul_tiled")
	if a.text != b.text || !strings.Contains(a.text, "bar.red.popc") {
		t.Errorf("%s\n\n%s", a.text, b.text)
	}
}
