// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package doctor looks at a host and says, a line each, what a checkpoint of a
// GPU container needs, whether it is there, and what to do if not. It changes
// nothing.
//
// What is checked is the list [Checks]; each check is a function of a [Host],
// which in tests is a directory with the files of some other machine.
package doctor

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/ipcwatch"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/config"
)

// Status is how a check ended.
type Status string

// The statuses, best first.
const (
	// OK: there is nothing to do. What is absent and not needed is ok too.
	OK Status = "ok"
	// Warn: some things will not work.
	Warn Status = "warn"
	// Fail: checkpoints, or containers with a GPU, will not work.
	Fail Status = "fail"
)

// Result is one line.
type Result struct {
	Name   string `json:"name"`
	Status Status `json:"status"`
	// Found is what is there.
	Found string `json:"found"`
	// Advice is what to do, "" if nothing.
	Advice string `json:"advice,omitempty"`
}

// Check is one question about the host. It names its results.
type Check struct {
	Name string
	Run  func(ctx context.Context, h *Host) []Result
}

// Checks are all checks, in the order in which their results are shown: what
// others build on comes first.
var Checks = []Check{
	{"privileges", privileges},
	{"kernel", kernel},
	{"cgroups", cgroups},
	{"config", configuration},
	{"encryption", encryption},
	{"directories", directories},
	{"containerd", containerdProgram},
	{"containerd daemon", containerdDaemon},
	{"Kubernetes", kubernetes},
	{"runc", runcProgram},
	{"shim", shimProgram},
	{"device helper", helperProgram},
	{"hook", hookProgram},
	{"CRIU", criuProgram},
	{"network lock", networkLock},
	{"GPU driver", gpuDriver},
	{"GPU", gpuDevices},
	{"legacy IPC", legacyIPC},
	{"kept memory", keptMemory},
}

// checkTimeout bounds each check; what it runs has shorter ones of its own.
const checkTimeout = 45 * time.Second

// Host is the machine that is looked at.
type Host struct {
	// Root is where its files are, "/" for this one.
	Root string
	// UID is the user that asks.
	UID int
	// Bin is the directory of our own programs.
	Bin string
	// Address is containerd's socket, and ContainerdConfig its configuration file,
	// which may be missing.
	Address          string
	ContainerdConfig string
	// Config is the host's configuration, and ConfigErr why it can't be used.
	Config    config.Config
	ConfigErr error
	// CountCalls tells why calls of CUDA's IPC functions can't be counted, nil
	// if they can; only root can tell.
	CountCalls func() error

	once   sync.Once
	report helperapi.Report
	repErr error
}

// ThisHost is the machine that the program runs on.
func ThisHost(address string) (*Host, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	h := &Host{Root: "/", UID: os.Geteuid(), Bin: filepath.Dir(self), Address: address, CountCalls: ipcwatch.Supported}
	h.Config, h.ConfigErr = config.Load()
	if h.ConfigErr != nil {
		h.Config = config.Default()
	}
	return h, nil
}

// path is where a file of the host is.
func (h *Host) path(elem ...string) string {
	return filepath.Join(append([]string{h.Root}, elem...)...)
}

// Report is what `hetgpu doctor` found.
type Report struct {
	// Version is the program's own.
	Version string `json:"version"`
	// OK is false if a check failed. Warnings do not count.
	OK     bool     `json:"ok"`
	Checks []Result `json:"checks"`
}

// Run runs the checks side by side.
func Run(ctx context.Context, h *Host, checks []Check, version string) Report {
	results := make([][]Result, len(checks))
	var wait sync.WaitGroup
	for i, check := range checks {
		wait.Go(func() {
			ctx, cancel := context.WithTimeoutCause(ctx, checkTimeout, fmt.Errorf("no answer within %s", checkTimeout))
			defer cancel()
			list := check.Run(ctx, h)
			for j := range list {
				list[j].Name = cmp.Or(list[j].Name, check.Name)
			}
			results[i] = list
		})
	}
	wait.Wait()
	r := Report{Version: version, OK: true, Checks: []Result{}}
	for _, list := range results {
		for _, result := range list {
			r.OK = r.OK && result.Status != Fail
			r.Checks = append(r.Checks, result)
		}
	}
	return r
}

// Print writes the report for people.
func (r Report) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range r.Checks {
		fmt.Fprintf(t, "%s\t%s\t%s\n", c.Status, c.Name, c.Found)
		if c.Advice != "" {
			fmt.Fprintf(t, "\t\t-> %s\n", c.Advice)
		}
	}
	return t.Flush()
}

func ok(format string, args ...any) []Result {
	return []Result{{Status: OK, Found: fmt.Sprintf(format, args...)}}
}

func warn(advice, format string, args ...any) []Result {
	return []Result{{Status: Warn, Found: fmt.Sprintf(format, args...), Advice: advice}}
}

func fail(advice, format string, args ...any) []Result {
	return []Result{{Status: Fail, Found: fmt.Sprintf(format, args...), Advice: advice}}
}
