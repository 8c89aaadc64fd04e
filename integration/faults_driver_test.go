// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/standin"
)

// The helper dies in each of its calls: before the driver is asked, while it is
// at it, and before the helper could say what came out. What has to be undone
// is undone by the next helper; what has to be done, once the dump is complete,
// too.
func TestFaultsHelperKilled(t *testing.T) {
	for _, tc := range []struct {
		op   string
		when []string
		says []string // nothing: the checkpoint succeeds
	}{
		{"nvml", []string{"before"}, []string{"preflight", "device helper died"}},
		{"state", []string{"before", "after"}, []string{"preflight", "device helper died"}},
		{"lock", []string{"before", "during", "after"}, []string{"gpu-lock", "device helper died"}},
		{"checkpoint", []string{"before", "during", "after"}, []string{"gpu-suspend", "device helper died"}},
		{"restore", []string{"before", "during", "after"}, nil},
		{"unlock", []string{"before", "during", "after"}, nil},
	} {
		for _, when := range tc.when {
			t.Run(tc.op+" "+when, func(t *testing.T) {
				d := onGPUs(t)
				ctx := d.testContext(t)
				p := d.patient(ctx, t, d.toy("-n", "2"), 2)
				rule := fmt.Sprintf("%s comm=toy0 crash times=1 when=%s", tc.op, when)
				if tc.op == "nvml" { // is of no process
					rule = "nvml crash times=1"
				}
				d.faults(t, rule)
				if err := p.checkpointDirectly(ctx, false); p.expectOutcome(err, tc.says) {
					readManifest(t, p.dir)
					p.startOver()
				}
				d.faults(t)
				p.expectRecovered(ctx)
			})
		}
	}
}

// It dies while CRIU dumps and nobody calls it: the next one brings the
// processes back.
func TestFaultsHelperKilledDuringDump(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	h := d.held(ctx, t, func(p *patient) error { return p.checkpointDirectly(ctx, false) })
	killHelpers(t, d)
	h.release()
	if err := h.result(ctx); err != nil {
		t.Errorf("the checkpoint: %v", err)
	}
	readManifest(t, h.dir)
	h.startOver()
	h.expectRecovered(ctx)
}

// The same in the calls of a pause and of the resume after it.
func TestFaultsHelperKilledInPause(t *testing.T) {
	for _, when := range []string{"before", "during", "after"} {
		t.Run(when, func(t *testing.T) {
			d := onGPUs(t)
			ctx := d.testContext(t)
			p := d.patient(ctx, t, d.toy("-n", "2"), 2)
			d.faults(t, "lock crash times=1 when="+when)
			expectError(t, p.task.Pause(ctx), "pause", "device helper died")
			p.expectUnharmed(ctx)
			d.faults(t, "unlock crash times=1 when="+when)
			if err := p.task.Pause(ctx); err != nil {
				t.Fatal(err)
			}
			if err := p.task.Resume(ctx); err != nil {
				t.Errorf("resume: %v", err)
			}
			d.faults(t)
			p.expectRecovered(ctx)
		})
	}
}

// One of four processes fails, for once or for good. Whatever can be brought
// back is brought back.
func TestFaultsOneOfFour(t *testing.T) {
	for _, tc := range []struct {
		rule string
		says []string
	}{
		{"lock comm=toy2 error=999", []string{"gpu-lock", "lock of process", "CUDA_ERROR_UNKNOWN"}},
		{"lock comm=toy2 error=600", []string{"gpu-lock", "tries", "time-out of 2s"}},
		{"checkpoint comm=toy2 error=999", []string{"gpu-suspend", "GPU checkpoint of process", "CUDA_ERROR_UNKNOWN"}},
		{"checkpoint comm=toy2 when=after error=2", []string{"gpu-suspend", "GPU checkpoint of process", "CUDA_ERROR_OUT_OF_MEMORY"}},
		{"restore comm=toy2 times=1 error=999", nil},
		{"restore comm=toy2 times=1 when=after error=999", nil},
		{"unlock comm=toy2 times=1 error=999", nil},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			d := onGPUs(t)
			ctx := d.testContext(t)
			s := d.toy("-n", "4")
			s.opts = append(s.opts, annotated("io.hetgpu.checkpoint.timeout", "2s"))
			p := d.patient(ctx, t, s, 4)
			d.faults(t, tc.rule)
			err := p.checkpointDirectly(ctx, false)
			if tc.says != nil {
				expectError(t, err, tc.says...)
			} else if err != nil {
				t.Errorf("the checkpoint failed: %v", err)
			} else {
				p.startOver()
			}
			d.faults(t)
			p.expectRecovered(ctx)
		})
	}
}

// A process whose GPU state can't be put back after the dump is a loss, but the
// snapshot has it: it is kept, the error says so, and it restores.
func TestFaultsOneOfFourNotBroughtBack(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	s := d.toy("-n", "4")
	p := d.patient(ctx, t, s, 4)
	d.faults(t, "restore comm=toy2 error=999")
	expectError(t, p.checkpointDirectly(ctx, false), "gpu-resume", "snapshot in "+p.dir+" is complete and was kept")
	d.faults(t)
	if state := p.freezerState(); state != "thawed" {
		t.Errorf("the freezer is %s", state)
	}
	p.stop(ctx)
	r := d.restore(ctx, t, s, p.dir)
	r.expectGoesOn(ctx, 4)
	r.stop(ctx)
}

// The driver does not answer: each call on another container, at the same time.
// All come to an end soon after their time-out, and to no harm.
func TestFaultsDriverHangs(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	hangs := []struct {
		op string
		// paused means that the client pauses it first, which locks it.
		paused bool
		says   []string
	}{
		{"state", false, []string{"preflight"}},
		{"lock", false, []string{"gpu-lock"}},
		{"lock", true, []string{"pause"}},
		{"checkpoint", false, []string{"gpu-suspend", "time-out of 4s"}},
		{"checkpoint", true, []string{"gpu-suspend", "time-out of 4s"}},
		{"restore", false, []string{"gpu-resume", "GPU restore", "time-out of 4s"}},
		{"unlock", false, []string{"gpu-resume", "GPU unlock", "time-out of 4s"}},
	}
	patients := make([]*patient, len(hangs))
	rules := make([]string, len(hangs))
	for i, h := range hangs {
		s := d.toy()
		s.opts = append(s.opts, annotated("io.hetgpu.checkpoint.timeout", "4s"))
		patients[i] = d.patient(ctx, t, s, 1)
		rules[i] = fmt.Sprintf("%s pid=%d times=1 hang", h.op, patients[i].gpuProcesses(ctx)[0])
	}
	d.faults(t, rules...)
	errs := make([]error, len(hangs))
	var wg sync.WaitGroup
	for i, h := range hangs {
		wg.Go(func() {
			start := time.Now()
			if h.paused {
				errs[i] = patients[i].checkpoint(ctx)
			} else {
				errs[i] = patients[i].checkpointDirectly(ctx, false)
			}
			// A call that can't be taken back has five seconds to end by itself.
			if took := time.Since(start); took > 14*time.Second {
				t.Errorf("%s: it took %s", h.op, took)
			}
		})
	}
	wg.Wait()
	d.faults(t)
	for i, h := range hangs {
		expectError(t, errs[i], h.says...)
		patients[i].expectUnharmed(ctx)
	}
	for i, p := range patients {
		if err := p.checkpoint(ctx); err != nil {
			t.Errorf("%s: the next checkpoint: %v", hangs[i].op, err)
		}
		p.expectRunsOn(ctx)
	}
	for _, p := range patients {
		p.stop(ctx)
		p.remove()
	}
	d.expectNothingLeft(t)
}

// A restore during which the driver fails leaves nothing behind: a process
// never runs without its GPU state.
func TestFaultsDriverAtRestore(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	s := d.toy("-n", "4")
	s.opts = append(s.opts, annotated("io.hetgpu.checkpoint.timeout", "2s"))
	dir, last := d.saved(ctx, t, s, 4)
	for _, rule := range []string{
		"restore comm=toy2 error=999",
		"restore comm=toy2 when=after error=2",
		"restore comm=toy2 crash",
		"restore comm=toy2 when=during crash",
		"restore comm=toy2 hang",
		"unlock error=999", // of all: one that is unlocked goes on until it is killed
		"unlock crash",
		"state comm=toy2 error=999",
		"state comm=toy2 crash",
		"nvml crash",
	} {
		t.Run(rule, func(t *testing.T) {
			d.logIfFailed(t)
			ctx := d.testContext(t)
			d.faults(t, rule)
			d.expectRestoreFails(ctx, t, s, dir)
			d.faults(t)
		})
	}
	r := d.restore(ctx, t, s, dir)
	r.expectGoesOn(ctx, 4)
	if first := r.firstTick(); first <= last[0]-3 {
		t.Errorf("it went on at tick %d after %v", first, last)
	}
	r.stop(ctx)
}

// Device memory that fills up between the check and the restore.
func TestFaultsMemoryGoneAtRestore(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	h, withHook := newHook(t)
	s := d.toy("-b", "33554432")
	dir, _ := d.saved(ctx, t, s, 1)
	s.opts = append(s.opts, withHook)
	full := withGPU(usual, func(g *standin.GPU) { g.Used = 48 * mib })
	reached := h.holdAt(t, "pre-restore")
	var c *container
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err = d.tryRestore(ctx, t, s, dir)
	}()
	reached.wait(ctx)
	d.change(t, full)
	reached.release()
	<-done
	expectError(t, err, "gpu-resume", "CUDA_ERROR_OUT_OF_MEMORY")
	expectNoProcess(ctx, t, c)
	c.remove()
	d.expectNothingLeft(t)
	d.expectUsed(t, usual.GPUs[0], 0)
}
