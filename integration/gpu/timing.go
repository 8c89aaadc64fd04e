// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

const (
	// sampleTimeout bounds one checkpoint and restore, with more for each GiB.
	sampleTimeout, sampleTimeoutPerGiB = 45 * time.Second, 6 * time.Second
	// maxErrors is after how many failures nothing more is timed: what fails
	// twice fails always, and takes long to do so.
	maxErrors = 2
	// firstPair is the guess of how long the first pair takes, before there is
	// anything to tell it from: a start, and for each GiB twice what the driver
	// and CRIU need (facts/measured.md).
	firstPairFixed, firstPairPerGiB = 12.0, 5.0
	// firstAloneFixed and firstAlonePerGiB are the same for the split engine
	// alone: it starts one container and is held up by the disk at worst.
	firstAloneFixed, firstAlonePerGiB = 8.0, 1.5
)

// timeAll times the shim and the hand in turns, in an order by which a run that
// has to stop early has something of each series.
func (s *suite) timeAll(ctx context.Context) {
	for _, round := range schedule(s.series) {
		s.timePair(ctx, round)
	}
	s.run.judge()
	if err := s.save(); err != nil {
		s.say("write the report: %v", err)
	}
}

// timePair takes one repetition by the shim, with each engine, and one by hand,
// if its turn has peers; which of them is first changes each time.
func (s *suite) timePair(ctx context.Context, one turn) {
	timing := s.run.timing(one.series)
	if s.run.errors() >= maxErrors {
		timing.LeftOut++
		return
	}
	if need := s.expect(one); time.Now().Add(need).After(s.deadline) {
		s.say("%s: left out, it would take %s", timing.Name(), need.Round(time.Second))
		timing.LeftOut++
		return
	}
	type method struct {
		engine string
		take   func(context.Context, *test, series) (Sample, error)
		into   *[]Sample
	}
	var methods []method
	if one.peers {
		methods = append(methods, method{engineDriver, timeShim, &timing.Shim}, method{engineDriver, timeHand, &timing.Hand})
	}
	if slices.Contains(s.engines, engineSplit) {
		methods = append(methods, method{engineSplit, timeShim, &timing.Split})
	}
	if len(methods) == 0 {
		return
	}
	first := len(timing.Shim) % len(methods)
	start := time.Now()
	for i := range methods {
		m := methods[(i+first)%len(methods)]
		var sample Sample
		_, err := s.attempt(ctx, row{timeout: s.sampleTimeout(one.series), test: func(ctx context.Context, t *test) (string, error) {
			var err error
			sample, err = m.take(ctx, t, one.series)
			return "", err
		}}, m.engine)
		if errors.Is(err, errTimeUp) {
			timing.LeftOut++
			break
		}
		if err != nil {
			timing.Errors = append(timing.Errors, err.Error())
			s.say("%s: %v", timing.Name(), err)
			break
		}
		*m.into = append(*m.into, sample)
		s.say("%s %s: checkpoint %.2f s, restore %.2f s", timing.Name(), sample.By, sample.Checkpoint, sample.Restore)
	}
	took := timing.took(one.peers)
	*took = max(*took, time.Since(start))
	if err := s.save(); err != nil {
		s.say("write the report: %v", err)
	}
}

func (s *suite) sampleTimeout(one series) time.Duration {
	timeout := sampleTimeout + time.Duration(one.mib)*sampleTimeoutPerGiB/1024
	if s.gpu.machine != nil {
		timeout *= 5 // a GPU that is one thread of a busy machine
	}
	return timeout
}

// expect is how long a turn will take, by the ones that were timed.
func (s *suite) expect(one turn) time.Duration {
	if took := *s.run.timing(one.series).took(one.peers); took > 0 {
		return took
	}
	fixed, perGiB := firstAloneFixed, firstAlonePerGiB
	if one.peers {
		fixed, perGiB = firstPairFixed, firstPairPerGiB
	}
	guess := time.Duration((fixed + perGiB*float64(one.mib)/1024) * float64(time.Second))
	for _, t := range s.run.Timings {
		if took := *t.took(one.peers); took > 0 && (t.Place == onDisk || !one.disk) {
			// A larger one takes no more than in proportion.
			guess = min(guess, time.Duration(float64(took)*max(1, float64(one.mib)/float64(t.MiB))))
		}
	}
	return guess
}

// place returns a directory for a snapshot that is not there yet.
func (t *test) place(one series) string {
	if !one.disk {
		return t.directory("timing")
	}
	dir := filepath.Join(t.disk, t.id("timing"))
	t.cleanup(func(context.Context) error { return os.RemoveAll(dir) })
	return dir
}

// timeShim times a checkpoint that leaves the container running, and a restore
// of the same container.
func timeShim(ctx context.Context, t *test, one series) (Sample, error) {
	sample := Sample{By: "shim, " + t.engine}
	l, err := t.start(ctx, 1, "-b", strconv.Itoa(one.mib))
	if err != nil {
		return sample, err
	}
	dir := t.place(one)
	sample.Warm = warm(ctx, 2*one.mib+one.mib/5)
	saved, err := l.Checkpoint(ctx, dir, false)
	if err != nil {
		return sample, err
	}
	sample.Checkpoint = saved.Total().Seconds()
	sample.CheckpointPhases.add("pause", saved.Pause.Seconds())
	m, err := snapshot.ReadManifest(dir)
	if err != nil {
		return sample, err
	}
	sample.CheckpointPhases = append(sample.CheckpointPhases, m.Phases...)
	sample.CheckpointPhases.add("resume", saved.Resume.Seconds())
	sample.Bytes = sizeOf(dir)
	last := l.last()
	if err := errors.Join(l.more(ctx, 1), l.Kill(ctx), t.shimGone(ctx, l.ID)); err != nil {
		return sample, err
	}
	warm(ctx, one.mib+one.mib/5)
	offset := t.logSize()
	took, err := l.Restore(ctx, dir)
	if err != nil {
		return sample, err
	}
	sample.Restore = (took.Create + took.Start).Seconds()
	if sample.RestorePhases, err = t.loggedPhases(offset); err != nil {
		return sample, err
	}
	sample.RestorePhases = append(phases{{Name: "create", Seconds: took.Create.Seconds()}, {Name: "start", Seconds: took.Start.Seconds()}}, sample.RestorePhases...)
	return sample, errors.Join(l.more(ctx, 1), atLeast(l, last))
}

// timeHand does the same by hand.
func timeHand(ctx context.Context, t *test, one series) (Sample, error) {
	sample := Sample{By: "hand"}
	h, err := t.startByHand(ctx, "-b", strconv.Itoa(one.mib))
	if err != nil {
		return sample, err
	}
	dir := t.place(one)
	sample.Warm = warm(ctx, 2*one.mib+one.mib/5)
	if sample.CheckpointPhases, err = h.save(ctx, dir); err != nil {
		return sample, err
	}
	sample.Checkpoint, sample.Bytes = sample.CheckpointPhases.total(), sizeOf(dir)
	last := h.last()
	if err := errors.Join(h.more(ctx, 1), h.end(ctx)); err != nil {
		return sample, err
	}
	warm(ctx, one.mib+one.mib/5)
	if sample.RestorePhases, err = h.restore(ctx, dir); err != nil {
		return sample, err
	}
	sample.Restore = sample.RestorePhases.total()
	return sample, errors.Join(h.more(ctx, 1), atLeast(h.load, last))
}

// atLeast makes sure that what was restored is not a program that began anew.
func atLeast(l *load, last map[int]uint64) error {
	ranks, err := parse(l.Out.Lines())
	if err != nil {
		return err
	}
	for rank := range l.ranks {
		// The last tick that was seen may have been printed after the dump.
		if first := ranks[rank][0].n; first <= warmup || first > last[rank]+1 {
			return fmt.Errorf("the restored program began with tick %d, and the saved one had come to %d", first, last[rank])
		}
	}
	return nil
}
