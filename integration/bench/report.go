// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/rig"
	"github.com/hetgpu/containerd-shim-hetgpu/integration/testbed"
)

// The targets (issue 2).
const (
	maxRunRatio  = 1.05
	maxRSSExcess = 2.0 // MiB
)

// report is bench.json.
type report struct {
	Host host `json:"host"`
	// Milliseconds.
	Run            pair `json:"ctr_run_ms"`
	Checkpoint     pair `json:"checkpoint_leave_running_ms"`
	CheckpointExit pair `json:"checkpoint_exit_ms"`
	Restore        pair `json:"restore_ms"`
	// MiB of an idle shim with one container.
	RSS       pair     `json:"rss_mib"`
	VMRSS     pair     `json:"vmrss_mib"`
	PSS       pair     `json:"pss_mib"`
	Private   pair     `json:"private_mib"`
	Anonymous pair     `json:"anonymous_mib"`
	Targets   []target `json:"targets"`
}

// pair has the values of both shims.
type pair struct {
	Ours  series `json:"ours"`
	Stock series `json:"stock"`
}

type series struct {
	Median float64   `json:"median"`
	P99    float64   `json:"p99"`
	All    []float64 `json:"all"`
}

type target struct {
	What  string  `json:"what"`
	Value float64 `json:"value"`
	Most  float64 `json:"most"`
	Met   bool    `json:"met"`
}

type host struct {
	Date       string `json:"date"`
	Kernel     string `json:"kernel"`
	CPU        string `json:"cpu"`
	CPUs       int    `json:"cpus"`
	Containerd string `json:"containerd"`
	// Load is the load average before the benchmark: others disturb it.
	Load string `json:"load_average"`
}

func newReport() *report { return &report{} }

// of returns what adds a value for a shim.
func (p *pair) of(shim string) func(float64) {
	s := &p.Stock
	if shim == ours {
		s = &p.Ours
	}
	return func(v float64) {
		s.All = append(s.All, v)
		s.Median, s.P99 = rig.Median(s.All), rig.Percentile(s.All, 99)
	}
}

func (p *pair) ratio() float64  { return p.Ours.Median / p.Stock.Median }
func (p *pair) excess() float64 { return p.Ours.Median - p.Stock.Median }

// judge compares with the targets.
func (r *report) judge() {
	for _, t := range []target{
		{What: "median of ctr run, ours / stock", Value: r.Run.ratio(), Most: maxRunRatio},
		{What: "median RSS of an idle shim, ours - stock, MiB", Value: r.RSS.excess(), Most: maxRSSExcess},
	} {
		t.Met = t.Value <= t.Most
		r.Targets = append(r.Targets, t)
	}
}

func (r *report) markdown(w io.Writer) {
	h := r.Host
	fmt.Fprintf(w, "# Our shim beside the stock runc shim\n\n%s; %s; %d x %s; kernel %s; load before %s\n\n", h.Date, h.Containerd, h.CPUs, h.CPU, h.Kernel, h.Load)
	fmt.Fprintf(w, "| | ours, median | stock, median | difference | ratio | ours, p99 | stock, p99 | n |\n|---|---|---|---|---|---|---|---|\n")
	for _, row := range []struct {
		what string
		p    *pair
	}{
		{"`ctr run --rm` of `/bin/true`, ms", &r.Run},
		{"idle shim, RSS, MiB", &r.RSS},
		{"idle shim, VmRSS, MiB", &r.VMRSS},
		{"idle shim, PSS, MiB", &r.PSS},
		{"idle shim, private, MiB", &r.Private},
		{"idle shim, anonymous, MiB", &r.Anonymous},
		{"checkpoint, leave running, ms", &r.Checkpoint},
		{"checkpoint, exit, ms", &r.CheckpointExit},
		{"restore, ms", &r.Restore},
	} {
		fmt.Fprintf(w, "| %s | %.2f | %.2f | %+.2f | %.3f | %.2f | %.2f | %d |\n", row.what,
			row.p.Ours.Median, row.p.Stock.Median, row.p.excess(), row.p.ratio(), row.p.Ours.P99, row.p.Stock.P99, len(row.p.Ours.All))
	}
	fmt.Fprintln(w)
	for _, t := range r.Targets {
		verdict := "missed"
		if t.Met {
			verdict = "met"
		}
		fmt.Fprintf(w, "- target %s: %s: %.3f, at most %.3f\n", verdict, t.What, t.Value, t.Most)
	}
}

func describeHost(ctx context.Context, d *testbed.Daemon) (host, error) {
	h := host{Date: time.Now().UTC().Format(time.DateTime), CPUs: runtime.NumCPU(), CPU: cpuModel()}
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return h, err
	}
	h.Kernel = unix.ByteSliceToString(uts.Release[:])
	version, err := d.Client.Version(ctx)
	if err != nil {
		return h, err
	}
	h.Containerd = "containerd " + version.Version
	load, err := os.ReadFile("/proc/loadavg")
	h.Load = strings.Join(strings.Fields(string(load))[:3], " ")
	return h, err
}

func cpuModel() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return err.Error()
	}
	for line := range strings.Lines(string(info)) {
		if key, value, _ := strings.Cut(line, ":"); strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown CPU"
}
