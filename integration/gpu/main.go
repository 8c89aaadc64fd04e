// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Command gpu is the suite for a host with an NVIDIA GPU: it runs containers
// that use it on a private containerd, checkpoints and restores them through
// the shim, and measures what that costs beside the same steps done by hand
// with the driver's API, runc and CRIU. It writes report.json and report.md,
// anew after each row, so that a run that is cut short leaves what it has.
//
// With -stand-in it runs on a machine without a GPU, against the software
// stand-in, as a rehearsal of itself; the report says so.
//
// It ends only processes that it started.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/testbed"
)

// config is the command line.
type config struct {
	path, out, work, disk, include, prebuilt string
	standIn                                  string
	plan                                     []item
	engines                                  []string
	series                                   []series
	budget                                   time.Duration
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	failed, err := command(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "gpu suite:", err)
	}
	if failed || err != nil {
		os.Exit(1)
	}
}

func command(ctx context.Context, args []string) (failed bool, err error) {
	flags := flag.NewFlagSet("gpu", flag.ContinueOnError)
	var c config
	var sizes, repetitions, peers, merge, engines, rows string
	var onlyList bool
	flags.StringVar(&c.path, "path", "", "directories with our programs, containerd, ctr, runc, criu, busybox (default: those of 'make setup build')")
	flags.StringVar(&c.out, "out", "dist/gpu-test", "`directory` for the report and logs")
	flags.StringVar(&c.work, "work", "", "`directory` for everything temporary (default: the system's for such, if it is on a disk)")
	flags.StringVar(&c.include, "include", "libhetcuda/include", "cuda.h to use where no toolkit is installed")
	flags.StringVar(&c.prebuilt, "prebuilt", "", "test programs to use where no compiler is installed")
	flags.StringVar(&c.standIn, "stand-in", "", "rehearse with the stand-in libraries in this `directory`, without a GPU")
	flags.StringVar(&rows, "rows", "all", "what to run, in this order: all, or some of rows, timing, `names` of rows and NAME:ENGINE, comma separated")
	flags.BoolVar(&onlyList, "list", false, "only print what would be run, and how long it takes on an H200")
	flags.StringVar(&engines, "engines", "driver,split", "the engines to run rows and timings with, `names`")
	flags.StringVar(&sizes, "sizes", "2048,8192,32768,2048:disk", "device memory to time, in `MiB`; with :disk, with the snapshot on the disk and not in memory")
	flags.StringVar(&repetitions, "repetitions", "5,3,2,5", "how often to time each size")
	flags.StringVar(&peers, "peers", "", "in how many of the repetitions the driver engine and the hand take their turn beside the split engine (default: in all)")
	flags.DurationVar(&c.budget, "budget", time.Hour, "begin nothing that would take longer than this; what is under way then is cut short and keeps what it has, and the report says so")
	flags.StringVar(&merge, "merge", "", "only write one report from several report.json (`files`, comma separated)")
	if err := flags.Parse(args); err != nil {
		return true, err
	}
	if merge != "" {
		return false, mergeReports(strings.Split(merge, ","), c.out)
	}
	c.engines = strings.Split(engines, ",")
	if c.series, err = parseSeries(sizes, repetitions, cmp.Or(peers, repetitions)); err != nil {
		return true, err
	}
	if c.plan, err = planFor(strings.Split(rows, ","), c.engines); err != nil {
		return true, err
	}
	if onlyList {
		return false, list(os.Stdout, c.plan)
	}
	return run(ctx, c)
}

// run runs the suite; failed says that a row failed.
func run(ctx context.Context, c config) (failed bool, err error) {
	if os.Getuid() != 0 {
		return true, errors.New("it starts containers: run it as root")
	}
	s := &suite{config: c, deadline: time.Now().Add(c.budget)}
	defer func() { err = errors.Join(err, s.close(context.WithoutCancel(ctx))) }()
	if err := s.setup(ctx); err != nil {
		return true, err
	}
	for _, i := range c.plan {
		if i.timing {
			s.timeAll(ctx)
		} else {
			s.row(ctx, i.row, i.engine)
		}
	}
	return s.run.Failed(), s.save()
}

// programPath is where programs are looked for.
func (c *config) programPath() ([]string, error) {
	if c.path != "" {
		return filepath.SplitList(c.path), nil
	}
	installed, err := testbed.FindInstalled(".")
	if err != nil {
		return nil, err
	}
	return installed.Path(installed.Containerds()[0])
}
