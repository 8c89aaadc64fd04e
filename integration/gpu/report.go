// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/rig"
)

// maxExcess is how much more than by hand the shim may take (issue 2).
const maxExcess = 0.3 // seconds

// Result is what became of a row.
type Result string

// The results of a row.
const (
	Passed  Result = "pass"
	Failed  Result = "FAIL"
	Skipped Result = "not run"
	// Cut is a row that the run had no more time for.
	Cut Result = "cut short"
)

// Report is report.json: one run, or several that were merged.
type Report struct {
	Runs []Run `json:"runs"`
}

// Run is one run of the suite.
type Run struct {
	// StandIn says that there was no GPU: nothing here is about one.
	StandIn bool      `json:"stand_in"`
	Started time.Time `json:"started"`
	Host    Host      `json:"host"`
	Notes   []string  `json:"notes,omitempty"`
	Rows    []Row     `json:"rows"`
	Timings []*Timing `json:"timings"`
	// Ceilings is what the machine can do.
	Ceilings []Ceiling `json:"ceilings,omitempty"`
}

// Row is what was tried and what came of it.
type Row struct {
	Name    string  `json:"name"`
	Engine  string  `json:"engine"`
	What    string  `json:"what"`
	Result  Result  `json:"result"`
	Seconds float64 `json:"seconds"`
	Detail  string  `json:"detail"`
}

// Where snapshots go.
const (
	inMemory = "memory"
	onDisk   = "disk"
)

// Timing is one size of device memory and one place for the snapshot.
type Timing struct {
	MiB   int    `json:"mib"`
	Place string `json:"place"`
	// Shim, Hand and Split have a sample for each repetition: the shim with the
	// driver engine, the same steps by hand, the shim with the split engine.
	Shim  []Sample `json:"shim"`
	Hand  []Sample `json:"hand"`
	Split []Sample `json:"split,omitempty"`
	// Medians in seconds, and what the shim takes more.
	Checkpoint Comparison `json:"checkpoint"`
	Restore    Comparison `json:"restore"`
	// LeftOut counts the repetitions for which there was no time.
	LeftOut int      `json:"left_out,omitempty"`
	Errors  []string `json:"errors,omitempty"`

	// pair and alone are how long a repetition took, with and without peers.
	pair, alone time.Duration
}

func (t *Timing) took(peers bool) *time.Duration {
	if peers {
		return &t.pair
	}
	return &t.alone
}

// Sample is one checkpoint and one restore.
type Sample struct {
	By         string  `json:"by"`
	Checkpoint float64 `json:"checkpoint_s"`
	Restore    float64 `json:"restore_s"`
	// Phases overlap in part, so their sum is more than the time above.
	CheckpointPhases phases `json:"checkpoint_phases"`
	RestorePhases    phases `json:"restore_phases"`
	Bytes            int64  `json:"snapshot_bytes"`
	// Warm is the rate at which the memory was touched beforehand, GB/s.
	Warm float64 `json:"warm_gb_s"`
}

// Comparison is the shim beside the hand.
type Comparison struct {
	Shim   float64 `json:"shim_s"`
	Hand   float64 `json:"hand_s"`
	Excess float64 `json:"excess_s"`
	Met    bool    `json:"met"`
}

func (r *Run) begin(standIn bool) {
	*r = Run{StandIn: standIn, Started: time.Now().UTC(), Rows: []Row{}, Timings: []*Timing{}}
}

// Failed says that a row failed or that a timing could not be taken. A target
// that was missed is no failure of the suite: the report says it.
func (r *Run) Failed() bool {
	for _, row := range r.Rows {
		if row.Result == Failed {
			return true
		}
	}
	return r.errors() > 0
}

// errors counts the timings that could not be taken.
func (r *Run) errors() int {
	n := 0
	for _, t := range r.Timings {
		n += len(t.Errors)
	}
	return n
}

// timing returns the entry of a series, a new one if there is none.
func (r *Run) timing(one series) *Timing {
	place := inMemory
	if one.disk {
		place = onDisk
	}
	for _, t := range r.Timings {
		if t.MiB == one.mib && t.Place == place {
			return t
		}
	}
	t := &Timing{MiB: one.mib, Place: place, Shim: []Sample{}, Hand: []Sample{}}
	r.Timings = append(r.Timings, t)
	return t
}

// Name is the size and the place.
func (t *Timing) Name() string {
	size := fmt.Sprintf("%d MiB", t.MiB)
	if t.MiB%1024 == 0 {
		size = fmt.Sprintf("%d GiB", t.MiB/1024)
	}
	return size + ", " + t.Place
}

// judge computes the medians and compares them.
func (r *Run) judge() {
	for _, t := range r.Timings {
		t.Checkpoint = compare(t, func(s Sample) float64 { return s.Checkpoint })
		t.Restore = compare(t, func(s Sample) float64 { return s.Restore })
	}
}

func compare(t *Timing, value func(Sample) float64) Comparison {
	if len(t.Shim) == 0 || len(t.Hand) == 0 {
		return Comparison{}
	}
	c := Comparison{Shim: median(t.Shim, value), Hand: median(t.Hand, value)}
	c.Excess = c.Shim - c.Hand
	c.Met = c.Excess <= maxExcess
	return c
}

// spread is the median with the least and the most, "-" if there is no sample.
func spread(samples []Sample, value func(Sample) float64) string {
	if len(samples) == 0 {
		return "-"
	}
	byValue := func(a, b Sample) int { return cmp.Compare(value(a), value(b)) }
	return fmt.Sprintf("%.2f (%.2f to %.2f)", median(samples, value), value(slices.MinFunc(samples, byValue)), value(slices.MaxFunc(samples, byValue)))
}

// spreadOf is the same of plain numbers.
func spreadOf(values []float64) string {
	var samples []Sample
	for _, v := range values {
		samples = append(samples, Sample{Checkpoint: v})
	}
	return spread(samples, func(s Sample) float64 { return s.Checkpoint })
}

func median(samples []Sample, value func(Sample) float64) float64 {
	var all []float64
	for _, s := range samples {
		all = append(all, value(s))
	}
	return rig.Median(all)
}

// Write writes report.json and report.md.
func (r Report) Write(dir string) error {
	for i := range r.Runs {
		r.Runs[i].judge()
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	var text strings.Builder
	r.markdown(&text)
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "report.json"), append(data, '\n'), 0o644),
		os.WriteFile(filepath.Join(dir, "report.md"), []byte(text.String()), 0o644))
}

// together has the samples of all runs.
func (r Report) together() []*Timing {
	var all Run
	for _, run := range r.Runs {
		for _, t := range run.Timings {
			into := all.timing(series{mib: t.MiB, disk: t.Place == onDisk})
			into.Shim, into.Hand, into.Split = append(into.Shim, t.Shim...), append(into.Hand, t.Hand...), append(into.Split, t.Split...)
		}
	}
	all.judge()
	return all.Timings
}

// mergeReports writes one report from several.
func mergeReports(files []string, out string) error {
	var all Report
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		var one Report
		if err := json.Unmarshal(data, &one); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		all.Runs = append(all.Runs, one.Runs...)
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	return all.Write(out)
}
