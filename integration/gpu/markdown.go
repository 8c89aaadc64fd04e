// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// markdown is the report for people.
func (r Report) markdown(w io.Writer) {
	fmt.Fprintln(w, "# Containers on a GPU: checkpoint and restore")
	for i, run := range r.Runs {
		if len(r.Runs) > 1 {
			fmt.Fprintf(w, "\n# Run %d\n", i+1)
		}
		run.markdown(w)
	}
	if len(r.Runs) > 1 {
		fmt.Fprint(w, "\n# The times of all runs together\n\n", timingHeader)
		for _, t := range r.together() {
			t.rows(w)
		}
	}
}

const timingHeader = `| device memory, snapshot in | | n | shim | by hand | difference | target |
|---|---|---|---|---|---|---|
`

func (r *Run) markdown(w io.Writer) {
	if r.StandIn {
		fmt.Fprintln(w, "\n**A rehearsal with the stand-in, not a GPU: it shows that the suite works, and nothing about any hardware.**")
	}
	r.Host.markdown(w, r.Started)
	for _, note := range r.Notes {
		fmt.Fprintf(w, "- %s\n", cell(note))
	}
	if len(r.Rows) > 0 {
		fmt.Fprintln(w, "\n## What works\n\n| | engine | result | took | |\n|---|---|---|---|---|")
	}
	for _, row := range r.Rows {
		fmt.Fprintf(w, "| **%s**: %s | %s | %s | %.1f s | %s |\n", row.Name, row.What, row.Engine, row.Result, row.Seconds, cell(row.Detail))
	}
	if len(r.Timings) > 0 {
		r.timings(w)
	}
	r.limits(w)
	if r.Host.Doctor != "" {
		fmt.Fprintf(w, "\n## hetgpu doctor\n\n```\n%s\n```\n", strings.TrimSpace(r.Host.Doctor))
	}
}

func (h *Host) markdown(w io.Writer, started time.Time) {
	fmt.Fprintf(w, "\n%s, hetGPU %s.\n\n", started.Format(time.DateTime), h.HetGPU)
	for _, d := range h.Devices {
		fmt.Fprintf(w, "- %s, %s, %d MiB, PCI %s\n", d.Model, d.UUID, d.MemoryBytes>>20, d.PCI)
	}
	fmt.Fprintf(w, "- driver %s, CUDA %d.%d; %s; kernel %s; cgroups %s\n", h.Driver, h.API/1000, h.API%1000/10, h.OS, h.Kernel, h.Cgroups)
	fmt.Fprintf(w, "- %d x %s; %d GiB of memory; disk: %s\n", h.CPUs, h.CPU, h.Memory>>30, h.Disk)
	fmt.Fprintf(w, "- containerd %s; %s; CRIU %s\n", h.Containerd, h.Runc, strings.TrimPrefix(h.CRIU, "Version: "))
	fmt.Fprintf(w, "- first touch of memory %.1f GB/s; tmpfs write (8 files) %.1f GB/s; disk, O_DIRECT, write %.1f GB/s (4 files), read %.1f GB/s\n",
		h.TouchRate, h.TmpfsRate, h.DiskWriteRate, h.DiskReadRate)
}

// timings explains and prints the comparison.
func (r *Run) timings(w io.Writer) {
	fmt.Fprintf(w, `
## What the shim costs

One process with so much device memory, full of numbers that nobody could compress. "Shim": what a client of containerd waits for, in its calls
Pause, Checkpoint (into a directory; no archive is made) and Resume, and for a restore in Create and Start. "By hand": lock, checkpoint by the driver,
"runc checkpoint --leave-running", restore and unlock by the driver, by a program that has the driver initialized beforehand, then fsync of the files, since the shim's
snapshot is on disk, with digests, when it returns; for a restore "runc restore", then restore and unlock by the driver. Both in turns, in the same directories, the memory
touched beforehand. Medians in seconds; the target is at most %.1f s more than by hand.

%s`, maxExcess, timingHeader)
	for _, t := range r.Timings {
		t.rows(w)
	}
	r.split(w)
	fmt.Fprintln(w, "\n### Phases, medians in seconds\n\nThe shim's phases overlap in part.\n\n| | | phases |\n|---|---|---|")
	for _, t := range r.Timings {
		for _, by := range []struct {
			name    string
			samples []Sample
		}{{"shim", t.Shim}, {"by hand", t.Hand}, {"split", t.Split}} {
			if len(by.samples) == 0 {
				continue
			}
			fmt.Fprintf(w, "| %s, %s | checkpoint | %s |\n", t.Name(), by.name, phaseList(by.samples, func(s Sample) phases { return s.CheckpointPhases }))
			fmt.Fprintf(w, "| %s, %s | restore | %s |\n", t.Name(), by.name, phaseList(by.samples, func(s Sample) phases { return s.RestorePhases }))
		}
	}
	fmt.Fprintln(w)
	for _, t := range r.Timings {
		if t.LeftOut > 0 {
			fmt.Fprintf(w, "- %s: %d repetitions left out, for lack of time or after errors\n", t.Name(), t.LeftOut)
		}
		for _, e := range t.Errors {
			fmt.Fprintf(w, "- %s: **failed**: %s\n", t.Name(), cell(e))
		}
	}
}

// split compares the engines.
func (r *Run) split(w io.Writer) {
	if !slices.ContainsFunc(r.Timings, func(t *Timing) bool { return len(t.Split) > 0 }) {
		return
	}
	fmt.Fprint(w, `
## The split engine beside the driver engine and the hand

The same containers, calls and places, in turns with the above. Seconds: the median, the least and the most; n is how often by the split engine and how often beside it.
"Times" is how much faster than by hand, by the medians. GiB is all of the snapshot.

| device memory, snapshot in | | n | split | driver engine | by hand | times | split GiB | driver GiB |
|---|---|---|---|---|---|---|---|---|
`)
	for _, t := range r.Timings {
		if len(t.Split) == 0 {
			continue
		}
		for _, one := range []struct {
			what  string
			value func(Sample) float64
		}{
			{"checkpoint", func(s Sample) float64 { return s.Checkpoint }},
			{"restore", func(s Sample) float64 { return s.Restore }},
		} {
			gib := func(s Sample) float64 { return float64(s.Bytes) / (1 << 30) }
			times, driverGiB := "-", "-"
			if len(t.Hand) > 0 {
				times = fmt.Sprintf("%.1f", median(t.Hand, one.value)/median(t.Split, one.value))
			}
			if len(t.Shim) > 0 {
				driverGiB = fmt.Sprintf("%.2f", median(t.Shim, gib))
			}
			fmt.Fprintf(w, "| %s | %s | %d, %d | %s | %s | %s | %s | %.2f | %s |\n", t.Name(), one.what, len(t.Split), len(t.Hand),
				spread(t.Split, one.value), spread(t.Shim, one.value), spread(t.Hand, one.value), times, median(t.Split, gib), driverGiB)
		}
	}
}

func (t *Timing) rows(w io.Writer) {
	t.row(w, "checkpoint", t.Checkpoint)
	t.row(w, "restore", t.Restore)
}

func (t *Timing) row(w io.Writer, what string, c Comparison) {
	n := min(len(t.Shim), len(t.Hand))
	if n == 0 {
		fmt.Fprintf(w, "| %s | %s | 0 | | | | not measured |\n", t.Name(), what)
		return
	}
	verdict := "missed"
	if c.Met {
		verdict = "met"
	}
	fmt.Fprintf(w, "| %s | %s | %d | %.2f | %.2f | %+.2f | %s |\n", t.Name(), what, n, c.Shim, c.Hand, c.Excess, verdict)
}

// phaseList has the median of each phase, in the order of the first sample.
func phaseList(samples []Sample, of func(Sample) phases) string {
	var names []string
	all := map[string][]Sample{}
	for _, s := range samples {
		for _, p := range of(s) {
			if all[p.Name] == nil {
				names = append(names, p.Name)
			}
			all[p.Name] = append(all[p.Name], Sample{Checkpoint: p.Seconds})
		}
	}
	var list []string
	for _, name := range names {
		list = append(list, fmt.Sprintf("%s %.3f", name, median(all[name], func(s Sample) float64 { return s.Checkpoint })))
	}
	return strings.Join(list, ", ")
}

// cell makes a text fit a table.
func cell(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > 600 {
		text = string(runes[:600]) + " ..."
	}
	return strings.ReplaceAll(text, "|", "\\|")
}
