// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestSchedule(t *testing.T) {
	all, err := parseSeries("1,2,1:disk", "3,2,1", "3,1,0")
	if err != nil {
		t.Fatal(err)
	}
	if want := []series{{mib: 1, repetitions: 3, peers: 3}, {mib: 2, repetitions: 2, peers: 1}, {mib: 1, disk: true, repetitions: 1}}; !slices.Equal(all, want) {
		t.Fatalf("the series are %v, not %v", all, want)
	}
	small, large, disk := all[0], all[1], all[2]
	want := []turn{{small, true}, {small, true}, {large, true}, {disk, false}, {large, false}, {small, true}}
	if got := schedule(all); !slices.Equal(got, want) {
		t.Errorf("the order is %v, not %v", got, want)
	}
	if got := largest(all); got != 2 {
		t.Errorf("the largest has %d MiB", got)
	}
}

func TestBadSeries(t *testing.T) {
	for _, one := range [][3]string{
		{"1", "1,2", "1"}, {"1,2", "1,2", "1"}, {"0", "1", "1"}, {"1", "0", "0"}, {"1", "1", "-1"}, {"1:tape", "1", "1"}, {"", "1", "1"}, {"1", "", "1"},
	} {
		if all, err := parseSeries(one[0], one[1], one[2]); err == nil {
			t.Errorf("%q is taken as %v", one, all)
		}
	}
}

func sample(by string, checkpoint, restore float64) Sample {
	return Sample{By: by, Checkpoint: checkpoint, Restore: restore, CheckpointPhases: phases{{Name: "dump", Seconds: checkpoint}}}
}

func TestReport(t *testing.T) {
	var run Run
	run.begin(true)
	run.Rows = []Row{
		{Name: "one", Engine: "split", What: "a thing", Result: Passed, Seconds: 1.25, Detail: "a | b\nc"},
		{Name: "two", Engine: "driver", What: "another", Result: Skipped},
	}
	timing := run.timing(series{mib: 2048})
	timing.Shim = []Sample{sample("shim", 2, 1), sample("shim", 3, 1), sample("shim", 9, 1)}
	timing.Hand = []Sample{sample("hand", 2.8, 0.5), sample("hand", 2.8, 0.5)}
	timing.Split = []Sample{sample("split", 0.7, 0.25)}
	timing.Split[0].CheckpointPhases.add("gpu-drain", 0.25)
	run.timing(series{mib: 32768}).Split = []Sample{sample("split", 0.7, 0.25)}
	run.timing(series{mib: 2048, disk: true}).LeftOut = 2

	run.Ceilings = []Ceiling{
		{inMemory, toPinned, "12 lanes", 50}, {inMemory, fromPinned, "", 50}, {inMemory, toFiles, "", 10}, {inMemory, fromFiles, "", 20},
	}

	dir := t.TempDir()
	if err := (Report{Runs: []Run{run}}).Write(dir); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "report.json")
	if err := mergeReports([]string{file, file}, filepath.Join(dir, "merged")); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "merged", "report.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"# Run 2", "not a GPU", "# The times of all runs together",
		"| **one**: a thing | split | pass | 1.2 s | a \\| b c |",
		"| **two**: another | driver | not run |",
		"| 2 GiB, memory | checkpoint | 2 | 3.00 | 2.80 | +0.20 | met |",
		"| 2 GiB, memory | restore | 2 | 1.00 | 0.50 | +0.50 | missed |",
		"| 2 GiB, memory | restore | 4 | 1.00 | 0.50 | +0.50 | missed |",
		"| 2 GiB, disk | checkpoint | 0 | | | | not measured |",
		"| 2 GiB, memory, shim | checkpoint | dump 3.000 |",
		"| 2 GiB, memory | checkpoint | 1, 2 | 0.70 (0.70 to 0.70) | 3.00 (2.00 to 9.00) | 2.80 (2.80 to 2.80) | 4.0 | 0.00 | 0.00 |",
		"| 32 GiB, memory | restore | 1, 0 | 0.25 (0.25 to 0.25) | - | - | - | 0.00 | - |",
		"| memory | device to ring | 50.00 | 12 lanes |",
		// A drain of 2 GiB in 0.25 s, a restore in 0.25 s; the hand took 2.8 s.
		"| 2 GiB, memory: checkpoint | at most 0.35 s: by hand 2.80 (2.80 to 2.80) s, divided by 8 | 0.70 (0.70 to 0.70) s, 1 times | missed |",
		"| 2 GiB, memory: its copy | at least 8.00 GB/s: 80% of the lower of 50.00 GB/s into pinned memory and 10.00 GB/s into files | 8.59 (8.59 to 8.59) GB/s, 1 times | met |",
		"| 2 GiB, memory: restore | at most 1.13 s: at 80% of 20.00 GB/s out of files, and 1 s | 0.25 (0.25 to 0.25) s, 1 times | met |",
		"- 2 GiB, disk: 2 repetitions left out",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the report lacks %q:\n%s", want, text)
		}
	}
	if run.Failed() {
		t.Error("a row that was not run, or a target that was missed, made the run fail")
	}
	run.Rows[1].Result = Failed
	if !run.Failed() {
		t.Error("a failed row is no failure")
	}
}

func TestPhaseLine(t *testing.T) {
	log := `time="2026-11-21T10:56:23.9Z" level=debug msg="GPU restore took 1.9s" phase=restore pid=5549 runtime=io.hetgpu.v2
time="2026-11-21T10:56:25.4Z" level=debug msg="phase ended" error="<nil>" phase=gpu-resume runtime=io.hetgpu.v2 seconds=3.448020746
time="2026-11-21T10:56:25.4Z" level=debug msg="phase ended" error="<nil>" id=a phase=thaw runtime=io.hetgpu.v2 seconds=4.1e-05
`
	var got []string
	for _, m := range phaseLine.FindAllStringSubmatch(log, -1) {
		got = append(got, m[1]+" "+m[2])
	}
	if want := []string{"gpu-resume 3.448020746", "thaw 4.1e-05"}; !slices.Equal(got, want) {
		t.Errorf("phases are %v, not %v", got, want)
	}
}
