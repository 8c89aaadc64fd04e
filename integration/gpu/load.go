// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/pkg/oci"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/rig"
	hetoci "github.com/hetgpu/containerd-shim-hetgpu/oci"
)

const (
	// warmup is how many ticks a program has done before anything is tried on
	// it.
	warmup = 3
	// tickTimeout is how long a program may take for them: each takes 0.1 s,
	// and the first one comes when the driver is ready and the memory is full.
	tickTimeout = 20 * time.Second
	// standInTickTimeout is for a GPU that is one thread of a busy machine.
	standInTickTimeout = 2 * time.Minute
)

// tick is a line of gpuload: so much the numbers on the device added up to.
type tick struct {
	n   uint64
	sum string
}

// book has what each rank printed at each tick, whichever container it ran in.
// Programs with the same memory print the same; one that went on from a
// snapshot has to go on with the same too.
type book map[int]map[uint64]string

// parse reads the output of a gpuload; whatever is no tick, or not the one
// after the tick before it, is an error.
func parse(lines []string) (map[int][]tick, error) {
	ranks := map[int][]tick{}
	for _, line := range lines {
		var rank int
		var t tick
		if strings.HasPrefix(line, "beat ") {
			continue
		}
		if _, err := fmt.Sscanf(line, "rank %d tick %d sum %s", &rank, &t.n, &t.sum); err != nil {
			return nil, fmt.Errorf("the program says %q", line)
		}
		if before := ranks[rank]; len(before) > 0 && t.n != before[len(before)-1].n+1 {
			return nil, fmt.Errorf("rank %d went from tick %d to %d", rank, before[len(before)-1].n, t.n)
		}
		ranks[rank] = append(ranks[rank], t)
	}
	return ranks, nil
}

// enter compares with what was printed before, and remembers it.
func (b book) enter(ranks map[int][]tick) error {
	for rank, ticks := range ranks {
		if b[rank] == nil {
			b[rank] = map[uint64]string{}
		}
		for _, t := range ticks {
			if known, ok := b[rank][t.n]; ok && known != t.sum {
				return fmt.Errorf("rank %d: the sum at tick %d is %s, and was %s", rank, t.n, t.sum, known)
			}
			b[rank][t.n] = t.sum
		}
	}
	return nil
}

// load is a container that runs gpuload.
type load struct {
	*rig.Container
	args        []string
	annotations map[string]string
	ranks       int
	book        book
	patience    time.Duration
}

func newLoad(ranks int, args ...string) *load {
	return &load{args: append([]string{"/gpu/gpuload", "-n", strconv.Itoa(ranks)}, args...), ranks: ranks, book: book{}}
}

// start runs gpuload in a new container on the first GPU, and waits until it is
// at work.
func (t *test) start(ctx context.Context, ranks int, args ...string) (*load, error) {
	l := newLoad(ranks, args...)
	return l, t.launch(ctx, l)
}

// launch starts the program in a container of its own and waits until it is at
// work.
func (t *test) launch(ctx context.Context, l *load) error {
	if err := t.create(ctx, l, 0); err != nil {
		return err
	}
	if err := l.NewTask(ctx, ""); err != nil {
		return err
	}
	if err := l.Start(ctx); err != nil {
		return err
	}
	return l.more(ctx, warmup)
}

// annotations ask for the engine that the row is about.
func (t *test) annotations() map[string]string {
	return map[string]string{hetoci.AnnotationEngine: t.engine}
}

// patience is how long a program may take for its next ticks.
func (t *test) patience() time.Duration {
	if t.gpu.machine != nil {
		return standInTickTimeout
	}
	return tickTimeout
}

func (t *test) create(ctx context.Context, l *load, gpu int) error {
	l.patience = t.patience()
	opts, err := t.container(gpu)
	if err != nil {
		return err
	}
	opts = append(opts, oci.WithAnnotations(t.annotations()), oci.WithAnnotations(l.annotations))
	l.Container, err = rig.New(ctx, t.d, rig.Spec{ID: t.id("gpu"), Runtime: runtimeName, Image: t.image, Args: l.args, Opts: opts})
	if err == nil {
		t.cleanup(l.Remove)
	}
	return err
}

// restored restores the snapshot of a program into a new container with another
// ID, and waits until it is at work again.
func (t *test) restored(ctx context.Context, of *load, dir string, gpu int) (*load, rig.Restored, error) {
	var took rig.Restored
	l := &load{args: of.args, annotations: of.annotations, ranks: of.ranks, book: of.book}
	err := t.create(ctx, l, gpu)
	if err == nil {
		took, err = l.Restore(ctx, dir)
	}
	if err == nil {
		err = l.more(ctx, warmup)
	}
	return l, took, err
}

// more waits until each rank has done n more ticks, and checks all of them.
func (l *load) more(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, l.patience, fmt.Errorf("no %d ticks in %s", n, l.patience))
	defer cancel()
	before, err := parse(l.Out.Lines())
	if err != nil {
		return err
	}
	err = l.Wait(ctx, fmt.Sprintf("%d more ticks", n), func(lines []string) (bool, error) {
		now, err := parse(lines)
		if err != nil {
			return false, err
		}
		for rank := range l.ranks {
			if len(now[rank]) < len(before[rank])+n {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	return l.check()
}

// check compares everything that was printed so far.
func (l *load) check() error {
	ranks, err := parse(l.Out.Lines())
	if err != nil {
		return fmt.Errorf("%s: %w", l.ID, err)
	}
	if err := l.book.enter(ranks); err != nil {
		return fmt.Errorf("%s: %w", l.ID, err)
	}
	return nil
}

// last returns the newest tick of each rank.
func (l *load) last() map[int]uint64 {
	ranks, _ := parse(l.Out.Lines()) // check has seen them
	last := map[int]uint64{}
	for rank, ticks := range ranks {
		last[rank] = ticks[len(ticks)-1].n
	}
	return last
}

// wentOn tells whether a restored program went on where the saved one was:
// after the ticks that had been printed before the checkpoint and, if the saved
// program ended with it, right after its last one.
func (l *load) wentOn(before map[int]uint64, exactly bool) error {
	ranks, err := parse(l.Out.Lines())
	if err != nil {
		return err
	}
	for rank := range l.ranks {
		first := ranks[rank][0].n
		if first <= before[rank] || exactly && first != before[rank]+1 {
			return fmt.Errorf("rank %d of %s began with tick %d after it was saved at tick %d", rank, l.ID, first, before[rank])
		}
	}
	return nil
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
