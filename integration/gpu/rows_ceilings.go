// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
)

// ceilingsGiB is how much is moved to tell what the machine can do, in memory and
// on the disk, which takes ten times as long.
var ceilingsGiB = map[string]float64{inMemory: 8, onDisk: 4}

// Ceiling is a rate that the data path can't exceed, with as many lanes as it has.
type Ceiling struct {
	// Place is where the files are, Name what "hetgpu-gpu selftest" calls it, and
	// Note how it was done.
	Place string  `json:"place"`
	Name  string  `json:"name"`
	Note  string  `json:"note"`
	GBs   float64 `json:"gb_per_s"`
}

// The rates of "hetgpu-gpu selftest" that bound a checkpoint and a restore: copies
// between the device and pinned memory, and files written from that and read to it.
const (
	toPinned, fromPinned = "device to ring", "ring to device"
	toFiles, fromFiles   = "ring to files, with fsync", "files to ring"
)

// ceilings measures what the machine can do, by the device helper's self-test: the
// same lanes, pinned memory and files as a checkpoint has.
func ceilings(ctx context.Context, t *test) (string, error) {
	t.run.Ceilings = nil
	for _, place := range []string{inMemory, onDisk} {
		dir := map[string]string{inMemory: t.ram, onDisk: t.disk}[place]
		gib := ceilingsGiB[place]
		if t.gpu.machine != nil {
			gib /= 256
		}
		warm(ctx, int(gib*1024)*2)
		dir, err := os.MkdirTemp(dir, "ceilings")
		if err != nil {
			return "", err
		}
		t.cleanup(func(context.Context) error { return os.RemoveAll(dir) })
		out, err := t.d.Exec(ctx, "hetgpu-gpu", "selftest", "-json", "-repeat", "2", "-gib", strconv.FormatFloat(gib, 'f', -1, 64), "-dir", dir)
		if err != nil {
			return "", err
		}
		var results []struct {
			Ceiling
			Failed string `json:"failed"`
		}
		if err := json.Unmarshal([]byte(out), &results); err != nil {
			return "", fmt.Errorf("%w in %q", err, out)
		}
		for _, r := range results {
			if r.Failed != "" {
				return "", fmt.Errorf("%s: %s", r.Name, r.Failed)
			}
			if r.Place = place; r.GBs > 0 {
				t.run.Ceilings = append(t.run.Ceilings, r.Ceiling)
			}
		}
		t.note("%s: to files %.1f GB/s, from files %.1f GB/s; from the device %.1f GB/s, to it %.1f GB/s", place,
			t.run.ceiling(place, toFiles), t.run.ceiling(place, fromFiles), t.run.ceiling(place, toPinned), t.run.ceiling(place, fromPinned))
	}
	return "", nil
}

// ceiling is a rate in GB/s, 0 if it was not measured.
func (r *Run) ceiling(place, name string) float64 {
	for _, c := range r.Ceilings {
		if c.Place == place && c.Name == name {
			return c.GBs
		}
	}
	return 0
}

// What the copies of the split engine have to reach (issue 3): so much of what the
// machine can do, and on top of that so many seconds.
const (
	minCopy, minDisk, minSource = 0.8, 0.9, 0.8
	besides                     = 1.0
	// minTimes is how much faster than by hand a checkpoint into memory has to be.
	minTimes = 8.0
)

// target is one of them beside what was measured.
type target struct {
	what, limit, measured string
	met                   bool
}

// targets compares the timings of the split engine with the ceilings, as far as both
// were measured.
func (r *Run) targets() []target {
	var all []target
	for _, t := range r.Timings {
		if len(t.Split) == 0 {
			continue
		}
		gb := float64(t.MiB) * (1 << 20) / 1e9
		add := func(what, limit, unit string, measured func(Sample) float64, bound float64, atLeast bool) {
			m := median(t.Split, measured)
			if math.IsInf(bound, 0) || math.IsInf(m, 0) || bound == 0 || m == 0 {
				return // one of them was not measured
			}
			compared, met := "at most", m <= bound
			if atLeast {
				compared, met = "at least", m >= bound
			}
			all = append(all, target{
				what: t.Name() + ": " + what, limit: fmt.Sprintf("%s %.2f%s: %s", compared, bound, unit, limit),
				measured: fmt.Sprintf("%s%s, %d times", spread(t.Split, measured), unit, len(t.Split)), met: met,
			})
		}
		checkpoint := func(s Sample) float64 { return s.Checkpoint }
		if len(t.Hand) > 0 && t.Place == inMemory {
			add("checkpoint", fmt.Sprintf("by hand %s s, divided by %.0f", spread(t.Hand, checkpoint), minTimes), " s", checkpoint, median(t.Hand, checkpoint)/minTimes, false)
		}
		pinned, files := r.ceiling(t.Place, toPinned), r.ceiling(t.Place, toFiles)
		if t.Place == onDisk {
			add("checkpoint", fmt.Sprintf("at %.0f%% of %.2f GB/s into files, and %.0f s", 100*minDisk, files, besides), " s", checkpoint, gb/(minDisk*files)+besides, false)
		} else {
			drain := func(s Sample) float64 { return gb / s.CheckpointPhases.of("gpu-drain") }
			add("its copy", fmt.Sprintf("%.0f%% of the lower of %.2f GB/s into pinned memory and %.2f GB/s into files", 100*minCopy, pinned, files), " GB/s", drain, minCopy*min(pinned, files), true)
		}
		source := min(r.ceiling(t.Place, fromFiles), r.ceiling(t.Place, fromPinned))
		add("restore", fmt.Sprintf("at %.0f%% of %.2f GB/s out of files, and %.0f s", 100*minSource, source, besides), " s",
			func(s Sample) float64 { return s.Restore }, gb/(minSource*source)+besides, false)
	}
	return all
}

// of is the time of a phase, 0 if there was none.
func (p phases) of(name string) float64 {
	for _, phase := range p {
		if phase.Name == name {
			return phase.Seconds
		}
	}
	return 0
}

// limits prints what the machine can do and the targets that depend on it.
func (r *Run) limits(w io.Writer) {
	if len(r.Ceilings) > 0 {
		fmt.Fprint(w, `
## What the machine can do

By "hetgpu-gpu selftest", with the lanes, the pinned memory and the kind of files that a checkpoint has. "Ring" is pinned memory. GB/s, the best of two.

| files in | what | GB/s | |
|---|---|---|---|
`)
	}
	for _, c := range r.Ceilings {
		fmt.Fprintf(w, "| %s | %s | %.2f | %s |\n", c.Place, c.Name, c.GBs, cell(c.Note))
	}
	all := r.targets()
	if len(all) == 0 {
		return
	}
	fmt.Fprint(w, "\n### The targets that depend on it\n\nThe split engine's median, with the least and the most.\n\n| what | target | measured | |\n|---|---|---|---|\n")
	for _, one := range all {
		fmt.Fprintf(w, "| %s | %s | %s | %s |\n", one.what, one.limit, strings.TrimSpace(one.measured), verdict(one.met))
	}
}
