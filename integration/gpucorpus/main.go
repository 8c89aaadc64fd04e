// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Command gpucorpus runs the compiler's corpus on an NVIDIA GPU: each program's own
// PTX, ours, and ours stopped and moved from process to process; then it measures
// what the checks cost and how soon kernels stop. It writes corpus.json and corpus.md.
//
// Kernels run in child processes (package curun), which are given up when one
// hangs or traps, so that no kernel's fault is another's. With -rehearse the
// interpreter takes the GPU's place, and the report says so.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/corpus/curun"
)

// config is the command line.
type config struct {
	out, program, library, clrun, only, parts string
	rehearse                                  bool
	workers, scale                            int
	budget                                    time.Duration
}

// rehearsing makes this program the child that answers as the driver's would.
const rehearsing = "HETGPU_CORPUS_REHEARSE"

func main() {
	if os.Getenv(rehearsing) != "" {
		if err := curun.Rehearse(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	failed, err := command(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "gpu corpus:", err)
	}
	if failed || err != nil {
		os.Exit(1)
	}
}

func command(ctx context.Context, args []string) (failed bool, err error) {
	flags := flag.NewFlagSet("gpu-corpus", flag.ContinueOnError)
	var c config
	flags.StringVar(&c.out, "out", "dist/gpu-corpus", "`directory` for the report")
	flags.StringVar(&c.program, "curun", "", "the child `program`, built; default: build it with cc")
	flags.StringVar(&c.clrun, "clrun", "", "OpenCL's child `program`, built; default: build it with cc")
	flags.StringVar(&c.library, "libcuda", "", "the driver's `library`; default: libcuda.so.1")
	flags.StringVar(&c.only, "only", "", "programs, benchmarks and loops to run, `names` with commas; default: all")
	flags.StringVar(&c.parts, "parts", "programs,loops,benchmarks,opencl,nvcc", "what to do")
	flags.BoolVar(&c.rehearse, "rehearse", false, "no GPU: the interpreter in its place")
	flags.IntVar(&c.workers, "workers", 4, "how many programs run at once")
	flags.IntVar(&c.scale, "scale", 1, "by what to divide the sizes of benchmarks and loops")
	flags.DurationVar(&c.budget, "budget", 4*time.Minute, "begin nothing after so long")
	if err := flags.Parse(args); err != nil {
		return true, err
	}
	if c.scale < 1 || c.workers < 1 {
		return true, errors.New("-scale and -workers are at least 1")
	}
	if err := os.MkdirAll(c.out, 0o755); err != nil {
		return true, err
	}
	s := &suite{config: c, report: Report{Started: time.Now().UTC(), Rehearsal: c.rehearse}}
	ctx, cancel := context.WithTimeout(ctx, c.budget)
	defer cancel()
	return s.run(ctx)
}

// wants tells whether a name was asked for.
func (c *config) wants(name string) bool {
	if c.only == "" {
		return true
	}
	for word := range strings.SplitSeq(c.only, ",") {
		if word == name {
			return true
		}
	}
	return false
}
