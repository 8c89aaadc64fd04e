// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/corpus"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/corpus/curun"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/corpus/harness"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/nvptx"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/pause"
)

const (
	// benchWindow is the memory of benchmarks and loops, states at its half.
	benchWindow = 4 << 30
	// rounds of one benchmark, own and ours in turns.
	rounds = 31
	// resumes is how often a benchmark's kernel is stopped and goes on.
	resumes = 12
	// stops is how often a loop is stopped.
	stops = 30
)

// Bench is what checks cost in one of the corpus' kernels, at a size that fills a GPU.
type Bench struct {
	Name   string     `json:"name"`
	Kernel string     `json:"kernel"`
	Class  string     `json:"class"`
	Worst  bool       `json:"worst_case,omitempty"`
	Grid   [3]uint32  `json:"grid"`
	Block  [3]uint32  `json:"block"`
	Own    []float64  `json:"own_ms"`
	Ours   []float64  `json:"ours_ms"`
	Cost   float64    `json:"cost"` // of the medians: 0.01 is 1%
	Regs   [2]uint64  `json:"registers"`
	Local  [2]uint64  `json:"local"`
	Stops  []StopTime `json:"stops,omitempty"`
	Error  string     `json:"error,omitempty"`
	NotRun string     `json:"not_run,omitempty"`
}

// StopTime is how soon a kernel ended after its flag, in microseconds: after the call
// that sends it, and after it was seen to have been copied.
type StopTime struct {
	Sent  float64 `json:"sent_us"`
	There float64 `json:"there_us"`
}

// Loop is a loop without an end in sight that is stopped.
type Loop struct {
	Name   string     `json:"name"`
	Class  string     `json:"class"`
	Grid   [3]uint32  `json:"grid"`
	Block  [3]uint32  `json:"block"`
	Stops  []StopTime `json:"stops"`
	Error  string     `json:"error,omitempty"`
	NotRun string     `json:"not_run,omitempty"`
}

// A case of this program's own has no expected result: the program's own PTX
// makes it.
type size struct {
	name, file  string
	kernel      string // if not the file
	grid, block [3]uint32
	shared      uint32
	worst       bool
	args        []any // as corpus.Launch has them
}

type filled struct {
	n    int // bytes
	fill func(*rand.Rand, []byte)
}

func words(r *rand.Rand, b []byte) {
	for i := 0; i+8 <= len(b); i += 8 {
		v := r.Uint64()
		for j := range 8 {
			b[i+j] = byte(v >> (8 * j))
		}
	}
}

// floats are between -1 and 1, a mantissa of random bits.
func floats(r *rand.Rand, b []byte) {
	words(r, b)
	for i := 0; i+4 <= len(b); i += 4 {
		b[i+3] = b[i+3]&0x80 | 0x3e
	}
}

func doubles(r *rand.Rand, b []byte) {
	words(r, b)
	for i := 0; i+8 <= len(b); i += 8 {
		b[i+7], b[i+6] = b[i+7]&0x80|0x3f, b[i+6]|0xe0
	}
}

func zeros(*rand.Rand, []byte) {}

func in(n int, fill func(*rand.Rand, []byte)) filled { return filled{n, fill} }
func out(n int) filled                               { return filled{n, zeros} }

// sizes are the benchmarks, of about 2 to 20 ms on an H200. scale divides grids.
func sizes(scale int) []size {
	g := func(n int) uint32 { return uint32(max(1, n/scale)) }
	n := func(n int) int { return max(1, n/scale) }
	side := uint32(max(16, 2048/scale))
	return []size{
		{
			name: "matmul_tiled", grid: [3]uint32{side / 8, side / 8, 1}, block: [3]uint32{8, 8, 1},
			args: []any{in(int(4*side*side), floats), in(int(4*side*side), floats), out(int(4 * side * side)), side},
		},
		{name: "nbody", grid: [3]uint32{g(1024)}, block: [3]uint32{32}, args: []any{in(16*32*n(1024), floats), out(16 * 32 * n(1024)), 32 * g(1024), float32(0.01)}},
		{
			name: "attention", grid: [3]uint32{g(1024)}, block: [3]uint32{32},
			args: []any{in(64*32*n(1024), floats), in(64*16*n(128), floats), in(64*16*n(128), floats), out(64 * 32 * n(1024)), 16 * g(128)},
		},
		{name: "fft", grid: [3]uint32{g(65536)}, block: [3]uint32{64}, args: []any{in(1024*n(65536), floats), out(1024 * n(65536)), in(512, floats)}},
		{name: "heat", grid: [3]uint32{g(8192)}, block: [3]uint32{16, 16}, args: []any{in(1024*n(8192), floats), uint32(200)}},
		{name: "reduce_shared", grid: [3]uint32{g(65536)}, block: [3]uint32{256}, args: []any{in(1024*n(65536), words), out(4 * n(65536)), 256 * g(65536)}},
		{name: "scan_hillis", grid: [3]uint32{g(131072)}, block: [3]uint32{128}, args: []any{in(512*n(131072), words), out(512 * n(131072))}},
		{name: "scan_blelloch", grid: [3]uint32{g(65536)}, block: [3]uint32{128}, shared: 1024, args: []any{in(1024*n(65536), words), out(1024 * n(65536))}},
		{name: "bitonic", grid: [3]uint32{g(65536)}, block: [3]uint32{256}, args: []any{in(1024*n(65536), words)}},
		{name: "softmax", grid: [3]uint32{g(16384)}, block: [3]uint32{256}, args: []any{in(4096*n(16384), floats), out(4096 * n(16384)), uint32(1024)}},
		{name: "stencil1d", grid: [3]uint32{g(131072)}, block: [3]uint32{128}, args: []any{in(512*n(131072), words), out(512 * n(131072)), 128 * g(131072)}},
		{
			name: "transpose", grid: [3]uint32{side / 8, side / 8, 1}, block: [3]uint32{16, 16, 1},
			args: []any{in(int(16*side*side), words), out(int(16 * side * side)), 2 * side, 2 * side},
		},
		{name: "histogram_shared", grid: [3]uint32{g(1056)}, block: [3]uint32{256}, args: []any{in(n(1<<26), words), out(1024), g(1 << 26)}},
		{name: "gauss", grid: [3]uint32{g(8192)}, block: [3]uint32{32}, args: []any{in(4800*n(8192), doubles), out(192 * n(8192))}},
		{name: "crc32", grid: [3]uint32{g(256)}, block: [3]uint32{256}, args: []any{in(256*1024*n(256), words), out(1024 * n(256)), uint32(1024)}},
		{
			name: "long_loop", worst: true, grid: [3]uint32{g(4224)}, block: [3]uint32{64},
			args: []any{in(256*n(4224), words), out(512 * n(4224)), uint32(2000), uint32(1 << 12)},
		},

		{
			name: "mandelbrot", grid: [3]uint32{side / 8, side / 8, 1}, block: [3]uint32{16, 16, 1},
			args: []any{out(int(8 * side * side)), 2 * side, 2 * side, 2.5 / float32(2*side), uint32(1000)},
		},
		{
			name: "matmul_plain", grid: [3]uint32{side / 32, side / 32, 1}, block: [3]uint32{16, 16, 1},
			args: []any{in(int(2*side*side), doubles), in(int(2*side*side), doubles), out(int(2 * side * side)), side / 2, side / 2, side / 2},
		},
		{name: "ranksort", grid: [3]uint32{g(512)}, block: [3]uint32{128}, args: []any{in(512*n(512), words), out(512 * n(512)), 128 * g(512)}},
		{name: "collatz", grid: [3]uint32{g(65536)}, block: [3]uint32{128}, args: []any{in(512*n(65536), words), out(512 * n(65536)), 128 * g(65536), uint32(1000)}},
		{name: "free_loop", grid: [3]uint32{g(8192)}, block: [3]uint32{128}, args: []any{in(1024*n(8192), words), out(1024 * n(8192)), uint32(4000)}},
		{name: "chacha", grid: [3]uint32{g(8192)}, block: [3]uint32{128}, args: []any{in(44, words), in(64*128*n(8192), words), 128 * g(8192)}},
		{name: "saxpy", grid: [3]uint32{g(1056)}, block: [3]uint32{256}, args: []any{float32(2), in(n(1<<26), floats), in(n(1<<26), floats), g(1 << 24)}},
		{
			name: "layernorm", grid: [3]uint32{g(2048)}, block: [3]uint32{256},
			args: []any{in(4096*8*n(2048), floats), out(4096 * 8 * n(2048)), in(4096, floats), uint32(1024)},
		},
	}
}

// endless are the loops: seconds long, if nobody stops them.
func endless(scale int) []size {
	g := func(n int) uint32 { return uint32(max(1, n/scale)) }
	n := func(n int) int { return max(1, n/scale) }
	most := uint32(4 << 20)
	if scale > 1 {
		most = 4000
	}
	return []size{
		{
			name: "a loop with a barrier, blocks of 64", file: "long_loop", grid: [3]uint32{g(4224)}, block: [3]uint32{64},
			args: []any{in(256*n(4224), words), out(512 * n(4224)), most, uint32(1 << 12)},
		},
		{
			name: "the same, one block on each multiprocessor", file: "long_loop", grid: [3]uint32{g(132)}, block: [3]uint32{64},
			args: []any{in(256*n(132), words), out(512 * n(132)), most, uint32(1 << 12)},
		},
		{name: "heat, blocks of 256", file: "heat", grid: [3]uint32{g(1056)}, block: [3]uint32{16, 16}, args: []any{in(1024*n(1056), floats), most}},
		{
			name: "a loop without barriers that reads memory", file: "ranksort", grid: [3]uint32{g(1056)}, block: [3]uint32{256},
			args: []any{in(4<<20, words), out(4 << 20), g(1 << 20)},
		},
		{
			name: "a loop without barriers that computes", file: "mandelbrot", grid: [3]uint32{g(128), g(128), 1}, block: [3]uint32{16, 16, 1},
			args: []any{out(2 * 2048 * 2048), 16 * g(128), 16 * g(128), 2.5 / float32(16*g(128)), most},
		},
	}
}

// work is a benchmark or loop with its program and device.
type work struct {
	size
	program *harness.Program
	launch  *harness.Launch
	cuda    *harness.CUDA
	plan    *pause.Plan
}

// place makes a program of a size, with our PTX in slot 0 of the device.
func (s *suite) place(d *curun.Device, z size) (*work, error) {
	if z.file == "" {
		z.file = z.name
	}
	if z.kernel == "" {
		z.kernel = z.file
	}
	r := random(z.name, "data")
	c := &corpus.Case{Name: z.name, File: z.file}
	l := corpus.Launch{Kernel: z.kernel, Shared: z.shared}
	for i := range 3 {
		l.Grid[i], l.Block[i] = max(1, z.grid[i]), max(1, z.block[i])
	}
	for i, a := range z.args {
		if f, ok := a.(filled); ok {
			b := &corpus.Buffer{Name: fmt.Sprint("argument ", i), Init: make([]byte, f.n)}
			f.fill(r, b.Init)
			b.Want = b.Init
			c.Buffers = append(c.Buffers, b)
			a = b
		}
		l.Args = append(l.Args, a)
	}
	c.Launches = []corpus.Launch{l}
	text, err := corpus.PTX(z.file)
	if err != nil {
		return nil, err
	}
	m, err := harness.Prepare(text)
	if err != nil {
		return nil, err
	}
	w := &work{size: z}
	var end uint64
	if w.program, end, err = harness.New(c, m, d.Base+harness.ProgramOffset); err != nil {
		return nil, err
	}
	if end > d.Base+benchWindow/2 {
		return nil, fmt.Errorf("its memory ends at %#x", end)
	}
	w.program.Text = text
	w.program.Plans = map[*ir.Func]*pause.Plan{}
	for _, f := range m.Funcs {
		if f.Kernel {
			w.program.Plans[f] = pause.New(m, f)
		}
	}
	// The state's areas are on the device only: the host has the status words.
	if w.launch, err = w.program.LaunchOn(0); err != nil {
		return nil, err
	}
	w.plan = w.launch.Plan
	full := w.plan.StateBytes(int64(w.launch.Blocks()), int64(w.launch.Threads()), int64(w.launch.Shared))
	if full > benchWindow/2 {
		return nil, fmt.Errorf("its state has %d bytes", full)
	}
	if text, err = harness.NVPTX(w.program, nvptx.Checks{}); err != nil {
		return nil, err
	}
	var o Outcome
	code, err := compile(d, text, &o)
	if err != nil {
		return nil, err
	}
	w.cuda = &harness.CUDA{Device: d, Code: code, State: d.Base + benchWindow/2}
	return w, w.cuda.Load(w.launch)
}

// begin makes memory and statuses what they are at the beginning.
func (w *work) begin() error {
	clear(w.launch.State)
	return w.cuda.Load(w.launch)
}

// results reads all buffers.
func (w *work) results() ([][]byte, error) {
	var all [][]byte
	for _, r := range w.program.Memory {
		b, err := w.cuda.Device.Read(r.Addr, uint64(len(r.Bytes)))
		if err != nil {
			return nil, err
		}
		all = append(all, b)
	}
	return all, nil
}

func same(got, want [][]byte) error {
	for i := range want {
		if bytes.Equal(got[i], want[i]) {
			continue
		}
		for j := range want[i] {
			if got[i][j] != want[i][j] {
				return fmt.Errorf("buffer %d: byte %d of %d is %#x, and %#x with the program's own PTX", i, j, len(want[i]), got[i][j], want[i][j])
			}
		}
	}
	return nil
}

func (w *work) run() curun.Run {
	return curun.Run{Slot: 1, Kernel: w.launch.Kernel.Name, Grid: w.launch.Grid, Block: w.launch.Block, Shared: w.launch.Shared, Params: w.launch.Params()}
}

// bench measures one benchmark.
func (s *suite) bench(d *curun.Device, z size, b *Bench) error {
	w, err := s.place(d, z)
	if err != nil {
		return err
	}
	b.Kernel, b.Class, b.Grid, b.Block = w.kernel, w.plan.Class.String(), w.launch.Grid, w.launch.Block
	if err := nvptx.Pausable(w.program.Module, w.plan); err != nil {
		b.NotRun = err.Error()
		return nil
	}
	var o Outcome
	code, err := compile(d, w.program.Text, &o)
	if err != nil {
		return err
	}
	if err := d.Load(1, code); err != nil {
		return err
	}
	for i, slot := range []int{1, 0} {
		f, err := d.Function(slot, w.kernel)
		if err != nil {
			return err
		}
		b.Regs[i], b.Local[i] = f.Registers, f.Local
	}
	if _, err := d.Run(w.run()); err != nil {
		return fmt.Errorf("own: %w", err)
	}
	want, err := w.results()
	if err != nil {
		return err
	}
	if err := w.begin(); err != nil {
		return err
	}
	if err := w.cuda.Step(w.launch, nil); err != nil {
		return fmt.Errorf("ours: %w", err)
	}
	got, err := w.results()
	if err != nil {
		return err
	}
	if err := same(got, want); err != nil {
		return fmt.Errorf("ours: %w", err)
	}
	if err := w.time(b); err != nil {
		return err
	}
	return w.resume(b, want)
}

// time runs both in turns.
func (w *work) time(b *Bench) error {
	own, ours := w.run(), w.run()
	ours.Slot = 0
	var err error
	if ours.Params, err = w.cuda.Params(w.launch, 0); err != nil {
		return err
	}
	// The clock is up when the GPU has been busy for a while.
	warm := time.Now()
	for time.Since(warm) < 200*time.Millisecond {
		if _, err := w.cuda.Device.Bench(3, own, ours); err != nil {
			return err
		}
	}
	times, err := w.cuda.Device.Bench(rounds, own, ours)
	if err != nil {
		return err
	}
	b.Own, b.Ours = times[0], times[1]
	b.Cost = median(b.Ours)/median(b.Own) - 1
	return nil
}

// resume stops the kernel at any time, and it goes on, until it is done. Its
// result is that of a run which nobody stops.
func (w *work) resume(b *Bench, want [][]byte) error {
	r := random(w.name, "stops")
	for len(w.cuda.Stops) < resumes {
		before := len(w.cuda.Stops)
		if err := w.begin(); err != nil {
			return err
		}
		for n := 0; !w.launch.Done(); n++ {
			stop := r
			if n >= 4 {
				stop = nil
			}
			if n > 6 {
				return errors.New("it does not end")
			}
			if err := w.cuda.Step(w.launch, stop); err != nil {
				return err
			}
		}
		got, err := w.results()
		if err != nil {
			return err
		}
		if err := same(got, want); err != nil {
			return fmt.Errorf("after %d stops: %w", len(w.cuda.Stops)-before, err)
		}
		if len(w.cuda.Stops) == before {
			break // it is over before a flag can go up
		}
	}
	b.Stops = stopTimes(w.cuda.Stops)
	return nil
}

func stopTimes(all []harness.Stop) []StopTime {
	us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
	var times []StopTime
	for _, s := range all {
		times = append(times, StopTime{us(s.Sent), us(s.There)})
	}
	return times
}

// loop stops one loop.
func (s *suite) loop(d *curun.Device, z size, l *Loop) error {
	w, err := s.place(d, z)
	if err != nil {
		return err
	}
	l.Class, l.Grid, l.Block = w.plan.Class.String(), w.launch.Grid, w.launch.Block
	// A flag goes up within this time of the launch.
	w.cuda.Took = map[string]time.Duration{w.kernel: 5 * time.Millisecond}
	r := random(w.name, "stops")
	for range stops {
		if err := w.begin(); err != nil {
			return err
		}
		if err := w.cuda.Step(w.launch, r); err != nil {
			return err
		}
	}
	l.Stops = stopTimes(w.cuda.Stops)
	return nil
}

// onDevice runs each of some things on a device, a new one after each error.
func (s *suite) onDevice(ctx context.Context, all []size, notRun func(size, string), do func(*curun.Device, size) error) {
	var d *curun.Device
	for _, z := range all {
		if !s.wants(z.name) {
			continue
		}
		if ctx.Err() != nil {
			notRun(z, noTime)
			continue
		}
		var err error
		if d == nil {
			if d, err = s.start(ctx, benchWindow); err != nil {
				notRun(z, err.Error())
				continue
			}
		}
		if err = do(d, z); err != nil {
			s.say("%s: %v", z.name, err)
			_ = d.Close() // its kernel may have broken it
			d = nil
		}
	}
	if d != nil {
		_ = d.Close() // nothing is left to do
	}
}

func (s *suite) benchmarks(ctx context.Context) {
	s.onDevice(ctx, sizes(s.scale), func(z size, why string) {
		s.report.Benches = append(s.report.Benches, &Bench{Name: z.name, NotRun: why})
	}, func(d *curun.Device, z size) error {
		b := &Bench{Name: z.name, Worst: z.worst}
		s.report.Benches = append(s.report.Benches, b)
		err := s.bench(d, z, b)
		if err != nil {
			b.Error = err.Error()
		}
		return err
	})
}

func (s *suite) loops(ctx context.Context) {
	s.onDevice(ctx, endless(s.scale), func(z size, why string) {
		s.report.Loops = append(s.report.Loops, &Loop{Name: z.name, NotRun: why})
	}, func(d *curun.Device, z size) error {
		l := &Loop{Name: z.name}
		s.report.Loops = append(s.report.Loops, l)
		err := s.loop(d, z, l)
		if err != nil {
			l.Error = err.Error()
		}
		return err
	})
}

func median(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}

// spread is the median and the largest of some times.
func spread(all []StopTime, of func(StopTime) float64) (middle, most float64) {
	var values []float64
	for _, s := range all {
		values = append(values, of(s))
		most = max(most, of(s))
	}
	return median(values), most
}

func stopCells(all []StopTime) string {
	if len(all) == 0 {
		return "| | | |"
	}
	m, most := spread(all, func(s StopTime) float64 { return s.Sent })
	there, _ := spread(all, func(s StopTime) float64 { return s.There })
	return fmt.Sprintf("| %d | %.0f, %.0f | %.0f |", len(all), m, most, there)
}

// The limits (issue 5).
const (
	barrierLimit  = 0.015
	backEdgeLimit = 0.05
	stopLimit     = 200 // microseconds
)

func (r *Report) loops(w io.Writer) {
	fmt.Fprintf(w, "\n## How soon loops stop\n\nMicroseconds from the host's call that sends the flag to when the host sees that the kernel has ended: median, most. \"There\": from when the flag was seen to be copied, median. The limit is %d.\n\n",
		stopLimit)
	fmt.Fprint(w, "| loop | class | grid, block | n | sent | there | limit |\n|---|---|---|---|---|---|---|\n")
	for _, l := range r.Loops {
		verdict := "missed"
		if _, most := spread(l.Stops, func(s StopTime) float64 { return s.Sent }); len(l.Stops) > 0 && most <= stopLimit {
			verdict = "met"
		}
		if l.Error+l.NotRun != "" {
			verdict = l.Error + l.NotRun
		}
		fmt.Fprintf(w, "| %s | %s | %v, %v %s %s |\n", l.Name, l.Class, l.Grid, l.Block, stopCells(l.Stops), cell(verdict))
	}
}

func (r *Report) benches(w io.Writer) {
	fmt.Fprintf(w, "\n## What the checks cost\n\nThe program's own kernel and ours in turns, %d times each, by events; medians in milliseconds. Nobody sets the flag. The limits are %.1f%% at barriers and %.0f%% at back-edges. Results of both are the same, to the bit, also when the kernel is stopped and goes on.\nStops: number, microseconds from the call that sends the flag (median, most), and from when it was seen to be copied (median).\n\n",
		rounds, barrierLimit*100, backEdgeLimit*100)
	fmt.Fprint(w, "| kernel | class | grid, block | registers | local | own | ours | cost | limit | stops | sent | there |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, b := range r.Benches {
		verdict := b.verdict()
		fmt.Fprintf(w, "| %s | %s | %v, %v | %d, %d | %d, %d | %.3f | %.3f | %+.1f%% | %s %s\n", b.Name, b.Class, b.Grid, b.Block,
			b.Regs[0], b.Regs[1], b.Local[0], b.Local[1], median(b.Own), median(b.Ours), b.Cost*100, cell(verdict), stopCells(b.Stops))
	}
}

func (b *Bench) verdict() string {
	limit := barrierLimit
	if strings.HasPrefix(b.Class, "back-edge") {
		limit = backEdgeLimit
	}
	switch {
	case b.Error+b.NotRun != "":
		return b.Error + b.NotRun
	case b.Worst:
		return "worst case: nothing but barriers"
	case b.Cost <= limit:
		return "met"
	}
	return "missed"
}
