// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/datapath"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/driver"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
)

// result is one line of the self-test.
type result struct {
	Name    string  `json:"name"`
	Bytes   uint64  `json:"bytes"`
	Seconds float64 `json:"seconds"`
	// GBs is in 10^9 bytes a second; 0 for a check.
	GBs  float64 `json:"gb_per_s,omitempty"`
	Note string  `json:"note,omitempty"`
	Fail string  `json:"failed,omitempty"`
}

// tester measures one device.
type tester struct {
	gpu     *driver.GPU
	size    uint64
	dir     string
	lanes   int
	slot    int
	repeat  int
	results []result

	base, copy uint64
	handles    []uint64
}

// selftest checks and measures on a real device what the data path is made of.
func selftest(ctx context.Context, d *driver.Driver, args []string) error {
	flags := flag.NewFlagSet("selftest", flag.ContinueOnError)
	device := flags.String("gpu", "", "`UUID` of the device (the first)")
	gib := flags.Float64("gib", 4, "device memory to use, twice")
	dir := flags.String("dir", "", "`directory` for files; none are written without")
	own := datapath.DefaultConfig()
	lanes := flags.Int("lanes", own.Lanes, "how many lanes copy, read and write; without it as many as a checkpoint has")
	slot := flags.Int("slot-mib", own.SlotSize>>20, "pinned memory of each lane")
	keyFile := flags.String("key-file", "", "`file` with a key: files of the data path are encrypted")
	repeat := flags.Int("repeat", 3, "how often each is measured; the best counts")
	asJSON := flags.Bool("json", false, "print JSON")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *device == "" {
		uuids, err := d.GPUs()
		if err != nil {
			return err
		}
		if len(uuids) == 0 {
			return errors.New("there is no GPU")
		}
		*device = uuids[0]
	}
	start := time.Now()
	gpu, err := d.OpenGPU(*device)
	if err != nil {
		return err
	}
	size := uint64(*gib*(1<<30)) / memfile.BlockSize * memfile.BlockSize
	t := &tester{gpu: gpu, size: max(size, memfile.BlockSize), dir: *dir, lanes: *lanes, slot: *slot << 20, repeat: max(*repeat, 1)}
	t.add(result{Name: "open device, compile kernel", Seconds: time.Since(start).Seconds(), Note: gpu.UUID()})
	err = t.run(ctx)
	if err == nil && t.dir != "" {
		err = t.dataPath(ctx, datapath.New(machine{d}, datapath.Config{
			SlotSize: t.slot, Slots: t.lanes, Lanes: t.lanes, Spare: 512 << 20, Idle: time.Hour, KeyFile: *keyFile,
		}))
	}
	err = errors.Join(err, gpu.Close())
	failed := slices.ContainsFunc(t.results, func(r result) bool { return r.Fail != "" })
	if printErr := t.print(os.Stdout, *asJSON); err == nil {
		err = printErr
	}
	if err == nil && failed {
		err = errors.New("the digests of the device are not those of the format")
	}
	return err
}

func (t *tester) add(r result) { t.results = append(t.results, r) }

func (t *tester) print(w io.Writer, asJSON bool) error {
	if asJSON {
		out := json.NewEncoder(w)
		out.SetIndent("", "  ")
		return out.Encode(t.results)
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, r := range t.results {
		rate := ""
		if r.GBs > 0 {
			rate = fmt.Sprintf("%.2f GB/s", r.GBs)
		}
		verdict := r.Note
		if r.Fail != "" {
			verdict = "FAILED: " + r.Fail
		}
		fmt.Fprintf(table, "%s\t%.1f MiB\t%.4f s\t%s\t%s\n", r.Name, float64(r.Bytes)/(1<<20), r.Seconds, rate, verdict)
	}
	return table.Flush()
}

func (t *tester) run(ctx context.Context) error {
	for _, at := range []*uint64{&t.base, &t.copy} {
		if err := t.allocate(at); err != nil {
			return err
		}
	}
	steps := []func(context.Context) error{t.check, t.digest, t.within, t.ring}
	if t.dir != "" {
		steps = append(steps, t.files)
	}
	for _, step := range steps {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// allocate maps memory as the data path does.
func (t *tester) allocate(at *uint64) error {
	handle, err := t.gpu.Create(t.size)
	if err != nil {
		return err
	}
	t.handles = append(t.handles, handle)
	if *at, err = t.gpu.Reserve(t.size); err != nil {
		return err
	}
	return errors.Join(t.gpu.Map(*at, t.size, handle), t.gpu.Access(*at, t.size))
}

// best measures f a few times.
func (t *tester) best(name, note string, bytes uint64, f func() error) error {
	fastest := time.Duration(0)
	for i := range t.repeat {
		start := time.Now()
		if err := f(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if took := time.Since(start); i == 0 || took < fastest {
			fastest = took
		}
	}
	t.add(result{Name: name, Bytes: bytes, Seconds: fastest.Seconds(), GBs: float64(bytes) / fastest.Seconds() / 1e9, Note: note})
	return nil
}

// patterns are blocks that are easy to get wrong.
func patterns() map[string][]byte {
	random := make([]byte, memfile.BlockSize)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(random)
	one := func(at int, value byte) []byte {
		b := make([]byte, memfile.BlockSize)
		b[at] = value
		return b
	}
	counting := make([]byte, memfile.BlockSize)
	for i := range counting {
		counting[i] = byte(i*i>>8 ^ i)
	}
	return map[string][]byte{
		"zero": make([]byte, memfile.BlockSize), "random": random, "ones": []byte(strings.Repeat("\xff", memfile.BlockSize)),
		"first bit": one(0, 1), "last bit": one(memfile.BlockSize-1, 0x80), "a bit at 16 KiB": one(16384, 1),
		"a bit before 12 KiB": one(12287, 0x80), "a bit in warp 7": one(4095, 4), "counting": counting,
		"4 KiB": random[:4096], "8 KiB": random[4096:12288], "12 KiB": random[:12288], "16 KiB": random[:16384],
		"20 KiB": random[8192:28672], "2 MiB less 4 KiB": random[4096:], "4 KiB of zero": make([]byte, 4096),
	}
}

// check compares the device's digests with the reference's.
func (t *tester) check(context.Context) error {
	pinned, err := t.gpu.HostAlloc(memfile.BlockSize)
	if err != nil {
		return err
	}
	stream, err := t.gpu.NewStream()
	if err != nil {
		return err
	}
	for name, data := range patterns() {
		copy(pinned, data)
		err := errors.Join(stream.FromHost(t.base, pinned[:len(data)]), stream.Wait())
		if err != nil {
			return err
		}
		sums := make([]driver.Sum, 1)
		start := time.Now()
		if err := t.gpu.Digest([]driver.Range{{Address: t.base, Size: uint64(len(data))}}, sums); err != nil {
			return err
		}
		r := result{Name: "digest of " + name, Bytes: uint64(len(data)), Seconds: time.Since(start).Seconds(), Note: "ok"}
		want, zero := memfile.DigestOf(data)
		if got := memfile.NewDigest(sums[0].A, sums[0].B); got != want || (sums[0].Seen == 0) != zero {
			r.Fail = fmt.Sprintf("the device says %s, seen %#x; it is %s, zero %v", got, sums[0].Seen, want, zero)
		}
		t.add(r)
	}
	slices.SortFunc(t.results[1:], func(a, b result) int { return strings.Compare(a.Name, b.Name) })
	return errors.Join(stream.Close(), t.gpu.HostFree(pinned))
}

// fill writes random words to the device, another block each time.
func (t *tester) fill() error {
	pinned, err := t.gpu.HostAlloc(t.slot)
	if err != nil {
		return err
	}
	stream, err := t.gpu.NewStream()
	if err != nil {
		return err
	}
	source := rand.NewChaCha8([32]byte{2})
	_, _ = source.Read(pinned)
	for at := uint64(0); at < t.size; at += uint64(t.slot) {
		n := min(uint64(t.slot), t.size-at)
		// New random bytes for all of it would take longer than all the rest.
		for i := 0; i < len(pinned); i += memfile.BlockSize {
			_, _ = source.Read(pinned[i : i+64])
		}
		if err := errors.Join(stream.FromHost(t.base+at, pinned[:n]), stream.Wait()); err != nil {
			return err
		}
	}
	return errors.Join(stream.Close(), t.gpu.HostFree(pinned))
}

func (t *tester) blocks(base uint64) []driver.Range {
	ranges := make([]driver.Range, 0, t.size/memfile.BlockSize)
	for at := uint64(0); at < t.size; at += memfile.BlockSize {
		ranges = append(ranges, driver.Range{Address: base + at, Size: memfile.BlockSize})
	}
	return ranges
}

func (t *tester) sums(base uint64) ([]driver.Sum, error) {
	ranges := t.blocks(base)
	sums := make([]driver.Sum, len(ranges))
	return sums, t.gpu.Digest(ranges, sums)
}

func (t *tester) digest(context.Context) error {
	if err := t.fill(); err != nil {
		return err
	}
	return t.best("digest of all", "launch and results included", t.size, func() error {
		_, err := t.sums(t.base)
		return err
	})
}

// within copies on the device, and checks the copy.
func (t *tester) within(context.Context) error {
	stream, err := t.gpu.NewStream()
	if err != nil {
		return err
	}
	err = t.best("device to device", "", t.size, func() error {
		return errors.Join(stream.Copy(t.copy, t.base, t.size), stream.Wait())
	})
	if err := errors.Join(err, stream.Close()); err != nil {
		return err
	}
	return t.same("copy on the device")
}

// same compares the digests of the two halves.
func (t *tester) same(what string) error {
	a, err := t.sums(t.base)
	if err != nil {
		return err
	}
	b, err := t.sums(t.copy)
	if err != nil {
		return err
	}
	r := result{Name: what + " is the same", Bytes: t.size, Note: "ok"}
	if !slices.Equal(a, b) {
		r.Fail = "it is not"
	}
	t.add(r)
	return nil
}

// lane runs f for each slot of the memory, in so many lanes, each with pinned
// memory and a queue of its own.
func (t *tester) each(f func(lane int, at uint64, pinned []byte, stream *driver.Stream) error, pinned [][]byte, streams []*driver.Stream) error {
	errs := make([]error, t.lanes)
	var wg sync.WaitGroup
	for lane := range t.lanes {
		wg.Go(func() {
			for at := uint64(lane * t.slot); at < t.size && errs[lane] == nil; at += uint64(t.lanes * t.slot) {
				n := min(uint64(t.slot), t.size-at)
				errs[lane] = f(lane, at, pinned[lane][:n], streams[lane])
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// withRing makes the lanes' pinned memory.
func (t *tester) withRing(f func(pinned [][]byte, streams []*driver.Stream) error) (err error) {
	var pinned [][]byte
	var streams []*driver.Stream
	defer func() {
		for i := range streams {
			err = errors.Join(err, streams[i].Close())
		}
		for i := range pinned {
			err = errors.Join(err, t.gpu.HostFree(pinned[i]))
		}
	}()
	start := time.Now()
	for range t.lanes {
		p, err := t.gpu.HostAlloc(t.slot)
		if err != nil {
			return err
		}
		pinned = append(pinned, p)
		s, err := t.gpu.NewStream()
		if err != nil {
			return err
		}
		streams = append(streams, s)
	}
	t.add(result{Name: "pin the ring", Bytes: uint64(t.lanes * t.slot), Seconds: time.Since(start).Seconds()})
	return f(pinned, streams)
}

func (t *tester) ring(context.Context) error {
	return t.withRing(func(pinned [][]byte, streams []*driver.Stream) error {
		note := fmt.Sprintf("%d lanes of %d MiB", t.lanes, t.slot>>20)
		err := t.best("device to ring", note, t.size, func() error {
			return t.each(func(_ int, at uint64, p []byte, s *driver.Stream) error {
				return errors.Join(s.ToHost(p, t.base+at), s.Wait())
			}, pinned, streams)
		})
		if err != nil {
			return err
		}
		return t.best("ring to device", note, t.size, func() error {
			return t.each(func(_ int, at uint64, p []byte, s *driver.Stream) error {
				return errors.Join(s.FromHost(t.copy+at, p), s.Wait())
			}, pinned, streams)
		})
	})
}

// files writes and reads, first from and to the ring alone, then the device. Each
// lane has a file of its own.
func (t *tester) files(context.Context) error {
	return t.withRing(func(pinned [][]byte, streams []*driver.Stream) (err error) {
		files := make([]*os.File, t.lanes)
		kind := "O_DIRECT"
		for i := range files {
			name := filepath.Join(t.dir, fmt.Sprintf("hetgpu-selftest-%d", i))
			defer func() { _ = os.Remove(name) }()
			f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_DIRECT, 0o600)
			if errors.Is(err, unix.EINVAL) {
				kind = "page cache"
				f, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
			}
			if err != nil {
				return err
			}
			defer func() { _ = f.Close() }()
			files[i] = f
			if t.share(i) == 0 {
				continue
			}
			if err := unix.Fallocate(int(f.Fd()), 0, 0, int64(t.share(i))); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
				return err
			}
		}
		place := func(at uint64) int64 { return int64(at / uint64(t.lanes*t.slot) * uint64(t.slot)) }
		write := func(lane int, at uint64, p []byte) error {
			_, err := files[lane].WriteAt(p, place(at))
			return err
		}
		read := func(lane int, at uint64, p []byte) error {
			_, err := files[lane].ReadAt(p, place(at))
			return err
		}
		sync := func() error {
			var errs []error
			for _, f := range files {
				errs = append(errs, f.Sync())
			}
			return errors.Join(errs...)
		}
		steps := []struct {
			name string
			f    func(lane int, at uint64, p []byte, s *driver.Stream) error
		}{
			{"ring to files, with fsync", func(lane int, at uint64, p []byte, _ *driver.Stream) error { return write(lane, at, p) }},
			{"files to ring", func(lane int, at uint64, p []byte, _ *driver.Stream) error { return read(lane, at, p) }},
			{"device to files, with fsync", func(lane int, at uint64, p []byte, s *driver.Stream) error {
				return errors.Join(s.ToHost(p, t.base+at), s.Wait(), write(lane, at, p))
			}},
			{"files to device", func(lane int, at uint64, p []byte, s *driver.Stream) error {
				return errors.Join(read(lane, at, p), s.FromHost(t.copy+at, p), s.Wait())
			}},
		}
		for _, step := range steps {
			err := t.best(step.name, kind, t.size, func() error {
				if err := t.each(step.f, pinned, streams); err != nil {
					return err
				}
				if strings.HasSuffix(step.name, "fsync") {
					return sync()
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		return t.same("copy through files")
	})
}

// dataPath saves and loads memory as a checkpoint and a restore do: a parcel of
// chunks of 1 GiB at most, of which an eighth is zero.
func (t *tester) dataPath(ctx context.Context, m *datapath.Mover) error {
	// The memory of the other measurements makes room.
	for i, at := range []uint64{t.base, t.copy} {
		if err := errors.Join(t.gpu.Unmap(at, t.size), t.gpu.Release(t.handles[i])); err != nil {
			return err
		}
	}
	dir, err := os.MkdirTemp(t.dir, "hetgpu-selftest-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	chunk := min(t.size, 1<<30)
	chunks := int(t.size / chunk)
	bytes := uint64(chunks) * chunk
	uuid, names := t.gpu.UUID(), []string{"selftest"}
	timed := func(name string, bytes uint64, f func() ([]nvidia.MovePhase, error)) error {
		start := time.Now()
		phases, err := f()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		took := time.Since(start).Seconds()
		var note []string
		for _, p := range phases {
			note = append(note, fmt.Sprintf("%s %.3f s", p.Name, p.Duration.Seconds()))
		}
		t.add(result{Name: name, Bytes: bytes, Seconds: took, GBs: float64(bytes) / took / 1e9, Note: strings.Join(note, ", ")})
		return nil
	}
	return errors.Join(
		timed("data path: open, pin", 0, func() ([]nvidia.MovePhase, error) { return nil, m.Prepare(ctx, []string{uuid}) }),
		m.Make(ctx, names[0], uuid, chunks, chunk, fillRange),
		timed("data path: duplicate", bytes, func() ([]nvidia.MovePhase, error) {
			done, err := m.Duplicate(ctx, names)
			if err == nil && !done {
				t.add(result{Name: "data path: duplicate", Note: "no room: the next line is not of it"})
			}
			return nil, err
		}),
		timed("data path: save", bytes, func() ([]nvidia.MovePhase, error) {
			saved, err := m.Save(ctx, nvidia.SaveRequest{Dir: dir, Parcels: names})
			return saved.Phases, err
		}),
		timed("data path: drop", bytes, func() ([]nvidia.MovePhase, error) { return nil, m.Drop(ctx, names) }),
		timed("data path: load", bytes, func() ([]nvidia.MovePhase, error) {
			loaded, err := m.Load(ctx, nvidia.LoadRequest{Dir: dir, Parcels: names})
			return loaded.Phases, err
		}),
		m.Drop(ctx, names),
	)
}

// fillRange writes random words to a range but for its last eighth.
func fillRange(gpu datapath.GPU, r datapath.Range) error {
	const size = 8 << 20
	pinned, err := gpu.HostAlloc(size)
	if err != nil {
		return err
	}
	stream, err := gpu.NewStream()
	if err != nil {
		return err
	}
	source := rand.NewChaCha8([32]byte{4})
	_, _ = source.Read(pinned)
	random := r.Size / 8 * 7 / memfile.BlockSize * memfile.BlockSize
	for at := uint64(0); at < random && err == nil; at += size {
		_, _ = source.Read(pinned[:64])
		n := min(size, random-at)
		err = errors.Join(stream.FromHost(r.Address+at, pinned[:n]), stream.Wait())
	}
	return errors.Join(err, stream.Zero(r.Address+random, r.Size-random), stream.Wait(), stream.Close(), gpu.HostFree(pinned))
}

// share is what lane i writes.
func (t *tester) share(i int) uint64 {
	sum := uint64(0)
	for at := uint64(i * t.slot); at < t.size; at += uint64(t.lanes * t.slot) {
		sum += min(uint64(t.slot), t.size-at)
	}
	return sum
}
