// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package hetcuda_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/hetcuda"
)

// call is one thing that a thread of a rank does.
type call struct {
	kind kind
	// stream is where the work goes, or what is waited for.
	stream int
	// meeting is what all ranks have to come to, by communicator and number, or
	// the name of a barrier.
	meeting string
	// ticks is how long the work takes, or the thread.
	ticks int
}

type kind int

const (
	local      kind = iota // a kernel of its own
	collective             // a kernel that waits for those of the other ranks
	compute                // the thread makes no call
	wait                   // it waits in the driver for a stream
	barrier                // it waits for the other ranks' threads
	never                  // it waits for something that does not come
)

// thread does one call after the other.
type thread struct {
	calls   []call
	busy    int // ticks
	arrived bool
	inside  bool
}

// rank is a process that may be stepped.
type rank struct {
	w       *ranks
	pid     int
	threads []*thread
	streams [2][]call
	stepped bool
	held    bool
	gone    bool
	left    uint32
	passed  uint64
	steps   []uint32
}

// ranks are processes that communicate, on devices that a goroutine drives.
type ranks struct {
	mu       sync.Mutex
	rng      *rand.Rand
	all      []*rank
	arrived  map[string]int
	launched map[string]int
}

const tick = 100 * time.Microsecond

func (w *ranks) run(ctx context.Context) {
	for ctx.Err() == nil {
		w.mu.Lock()
		for _, r := range w.all {
			for _, t := range r.threads {
				r.advance(t)
			}
			for i := range r.streams {
				r.execute(i)
			}
		}
		w.mu.Unlock()
		<-time.After(tick)
	}
}

// advance lets a thread do its next call, if it may.
func (r *rank) advance(t *thread) {
	for n := 0; n < 10 && len(t.calls) > 0; n++ {
		if t.busy > 0 {
			t.busy--
			return
		}
		c := t.calls[0]
		switch c.kind {
		case local, collective:
			if r.held || r.stepped && r.left == 0 || len(r.streams[c.stream]) > 50 {
				return
			}
			if r.stepped {
				r.left--
				r.passed++
			}
			r.streams[c.stream] = append(r.streams[c.stream], c)
			if c.kind == collective {
				r.w.launched[c.meeting]++
			}
		case compute:
			t.busy = r.w.rng.IntN(c.ticks + 1)
		case wait:
			if r.held && !t.inside {
				return
			}
			if t.inside = len(r.streams[c.stream]) > 0; t.inside {
				return
			}
		case barrier:
			if !t.arrived {
				t.arrived = true
				r.w.arrived[c.meeting]++
			}
			if r.w.arrived[c.meeting] < len(r.w.all) {
				return
			}
			t.arrived = false
		case never:
			return
		}
		t.calls = t.calls[1:]
	}
}

// execute is a tick of a stream.
func (r *rank) execute(i int) {
	s := r.streams[i]
	switch {
	case len(s) == 0 || s[0].kind == collective && r.w.launched[s[0].meeting] < len(r.w.all):
	case s[0].ticks > 0:
		s[0].ticks--
	default:
		r.streams[i] = s[1:]
	}
}

func (r *rank) idle() bool { return len(r.streams[0]) == 0 && len(r.streams[1]) == 0 }

func (r *rank) PID() int { return r.pid }

func (r *rank) status() hetcuda.Status {
	s := hetcuda.Status{Left: r.left, Passed: r.passed}
	if r.idle() && r.left == 0 {
		s.Device = hetcuda.Idle
	}
	return s
}

func (r *rank) ask() error {
	if r.gone {
		return &helperapi.Error{Class: helperapi.Class_CLASS_GONE}
	}
	return nil
}

func (r *rank) Step(_ context.Context, count uint32) (hetcuda.Status, error) {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	r.stepped, r.left = true, count
	r.steps = append(r.steps, count)
	return r.status(), r.ask()
}

func (r *rank) Status(_ context.Context, wait time.Duration) (hetcuda.Status, error) {
	for end := time.Now().Add(wait); ; <-time.After(tick) {
		r.w.mu.Lock()
		s, err := r.status(), r.ask()
		r.w.mu.Unlock()
		if err != nil || s.Device == hetcuda.Idle || !time.Now().Before(end) {
			return s, err
		}
	}
}

func (r *rank) Hold(_ context.Context, timeout time.Duration) error {
	r.w.mu.Lock()
	r.held = true
	r.w.mu.Unlock()
	for end := time.Now().Add(timeout); ; <-time.After(tick) {
		r.w.mu.Lock()
		inside := slices.ContainsFunc(r.threads, func(t *thread) bool { return t.inside }) || !r.idle()
		r.w.mu.Unlock()
		if !inside {
			return nil
		}
		if !time.Now().Before(end) {
			return &helperapi.Error{Class: helperapi.Class_CLASS_NOT_READY, Detail: "busy"}
		}
	}
}

// release lets all go on, as the end of the connections does.
func (w *ranks) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.all {
		r.held, r.stepped, r.left = false, false, 0
	}
}

// done tells how many calls are left to all.
func (w *ranks) left() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, r := range w.all {
		for _, t := range r.threads {
			n += len(t.calls)
		}
	}
	return n
}

func (w *ranks) steppers() []hetcuda.Stepper {
	var out []hetcuda.Stepper
	for _, r := range w.all {
		out = append(out, r)
	}
	return out
}

// idle fails unless every device is at rest and all are held.
func (w *ranks) expectHeld(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.all {
		if !r.gone && (!r.held || !r.idle()) {
			t.Errorf("process %d: held %t, idle %t", r.pid, r.held, r.idle())
		}
	}
}

// program makes the calls of one rank: iterations with kernels of its own
// between collectives, which all ranks have in the same order.
type program func(rng *rand.Rand, iteration int) []call

// training has collectives of two communicators on two streams.
func training(rng *rand.Rand, i int) []call {
	var calls []call
	for layer := range 6 {
		for range 20 + rng.IntN(20) {
			calls = append(calls, call{kind: local, ticks: rng.IntN(2)})
			if rng.IntN(10) == 0 {
				calls = append(calls, call{kind: compute, ticks: 5})
			}
		}
		calls = append(calls, call{kind: collective, stream: layer % 2, meeting: fmt.Sprintf("%d.%d", i, layer), ticks: 2})
	}
	return append(calls, call{kind: wait}, call{kind: wait, stream: 1}, call{kind: compute, ticks: 20})
}

// tight is nothing but collectives.
func tight(rng *rand.Rand, i int) []call {
	var calls []call
	for n := range 40 {
		calls = append(calls, call{kind: collective, meeting: fmt.Sprintf("%d.%d", i, n), ticks: rng.IntN(3)}, call{kind: compute, ticks: 8})
	}
	return append(calls, call{kind: wait})
}

// barriers has threads that wait for those of the other ranks in between.
func barriers(rng *rand.Rand, i int) []call {
	var calls []call
	for n := range 8 {
		calls = append(calls, call{kind: compute, ticks: 30}, call{kind: local, ticks: rng.IntN(4)},
			call{kind: collective, meeting: fmt.Sprintf("%d.%d", i, n)})
		if n%3 == 2 {
			calls = append(calls, call{kind: barrier, meeting: fmt.Sprintf("host %d.%d", i, n)})
		}
	}
	return calls
}

// communicating starts n ranks, each with a thread for each of the programs.
func communicating(t *testing.T, seed uint64, n, iterations int, programs ...program) *ranks {
	t.Helper()
	w := &ranks{rng: rand.New(rand.NewPCG(seed, 1)), arrived: map[string]int{}, launched: map[string]int{}}
	for i := range n {
		r := &rank{w: w, pid: 10 + i}
		for k, p := range programs {
			rng, th := rand.New(rand.NewPCG(seed, uint64(100*k+i))), &thread{}
			for iteration := range iterations {
				for _, c := range p(rng, iteration) {
					if c.meeting != "" && k > 0 {
						c.meeting = fmt.Sprintf("thread %d: %s", k, c.meeting)
					}
					if k > 0 {
						c.stream = 1
					}
					th.calls = append(th.calls, c)
				}
			}
			r.threads = append(r.threads, th)
		}
		w.all = append(w.all, r)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return w
}

// Ranks that communicate are held, each time, and go on; when each is held by
// itself they mostly are not.
func TestTogether(t *testing.T) {
	for name, tc := range map[string]struct {
		ranks    int
		programs []program
		// limit is how long a stop may take, on these devices.
		limit time.Duration
	}{
		"two ranks":        {2, []program{training}, 10 * time.Second},
		"four ranks":       {4, []program{training}, 10 * time.Second},
		"eight ranks":      {8, []program{training}, 10 * time.Second},
		"only collectives": {4, []program{tight}, 10 * time.Second},
		"host barriers":    {4, []program{barriers}, 10 * time.Second},
		"two threads":      {2, []program{tight, barriers}, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			longest, steps, byChance, tries := time.Duration(0), 0, 0, 0
			for seed := range uint64(4) {
				synctest.Test(t, func(t *testing.T) {
					w := communicating(t, seed, tc.ranks, 20, tc.programs...)
					rng := rand.New(rand.NewPCG(seed, 7))
					for w.left() > 400 {
						<-time.After(time.Duration(rng.IntN(40)) * time.Millisecond)
						// As it was before there were steps.
						tries++
						var wg sync.WaitGroup
						var mu sync.Mutex
						failed := 0
						for _, r := range w.all {
							wg.Go(func() {
								if r.Hold(t.Context(), 25*time.Millisecond) != nil {
									mu.Lock()
									defer mu.Unlock()
									failed++
								}
							})
						}
						wg.Wait()
						if failed == 0 {
							byChance++
						}
						w.release()
						<-time.After(time.Duration(rng.IntN(20)) * time.Millisecond)

						begin := time.Now()
						if err := hetcuda.HoldSteppers(t.Context(), w.steppers(), tc.limit); err != nil {
							t.Fatalf("seed %d: %v", seed, err)
						}
						longest = max(longest, time.Since(begin))
						w.expectHeld(t)
						before := w.left()
						<-time.After(10 * time.Millisecond)
						if after := w.left(); after < before-50 { // barriers and computing need no call
							t.Errorf("held, %d calls were made", before-after)
						}
						for _, r := range w.all {
							steps, r.passed = max(steps, int(r.passed)), 0
						}
						w.release()
					}
				})
			}
			t.Logf("%d stops, the longest took %v and at most %d steps of one; by chance %d of %d", tries, longest, steps, byChance, tries)
			if byChance > tries*3/4 {
				t.Errorf("%d of %d tries without steps succeeded: these programs show nothing", byChance, tries)
			}
		})
	}
}

// Who keeps whom waiting is said in time.
func TestTogetherTooLate(t *testing.T) {
	const timeout = 3 * time.Second
	for name, tc := range map[string]struct {
		change func(w *ranks)
		says   []string
		never  string
	}{
		"a rank that does not come": {func(w *ranks) { w.all[1].threads[0].calls = []call{{kind: never}} }, []string{
			"after 3s the GPU of process 10 was busy all the time", "the GPU of process 11 was at rest after 0 steps",
		}, "ended"},
		"a rank that ends": {func(w *ranks) { w.all[1].gone = true; w.all[1].threads[0].calls = nil }, []string{
			"the GPU of process 10 was busy all the time", "process 11 had ended",
		}, "steps"},
		"a kernel that does not end": {func(w *ranks) {
			w.all[0].threads[0].calls = []call{{kind: local, ticks: 1 << 30}}
			w.all[1].threads[0].calls = slices.Repeat([]call{{kind: local, ticks: 1}}, 1<<16)
		}, []string{"the GPU of process 10 was busy all the time", "the GPU of process 11 was", " steps"}, "ended"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := communicating(t, 1, 2, 10, tight)
				<-time.After(2 * time.Millisecond)
				w.mu.Lock()
				tc.change(w)
				w.mu.Unlock()
				<-time.After(20 * time.Millisecond)
				begin := time.Now()
				err := hetcuda.HoldSteppers(t.Context(), w.steppers(), timeout)
				if !errors.Is(err, helperapi.ErrNotReady) || time.Since(begin) > timeout+time.Second {
					t.Fatalf("after %v: %v", time.Since(begin), err)
				}
				for _, text := range tc.says {
					if !strings.Contains(err.Error(), text) {
						t.Errorf("error is %q, without %q", err, text)
					}
				}
				if strings.Contains(err.Error(), tc.never) {
					t.Errorf("error is %q, with %q", err, tc.never)
				}
			})
		})
	}
}

// What is no question of time ends it at once.
func TestTogetherFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := communicating(t, 1, 2, 10, tight)
		<-time.After(5 * time.Millisecond)
		broken := &broken{w.all[1]}
		err := hetcuda.HoldSteppers(t.Context(), []hetcuda.Stepper{w.all[0], broken}, time.Hour)
		if !errors.Is(err, unix.EPROTO) || errors.Is(err, helperapi.ErrNotReady) || !strings.Contains(err.Error(), "process 11") {
			t.Errorf("error is %v", err)
		}
		if w.all[0].held || w.all[1].held {
			t.Error("it went on to hold")
		}
	})
}

type broken struct{ *rank }

func (b *broken) Status(context.Context, time.Duration) (hetcuda.Status, error) {
	return hetcuda.Status{}, unix.EPROTO
}
