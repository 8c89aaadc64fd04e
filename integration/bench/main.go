// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Command bench compares our shim with the stock runc shim of the same
// containerd, in turns in one run, so that both meet the same machine: the time
// of "ctr run", the memory of an idle shim, and what a checkpoint and a restore
// of a small container cost. It writes bench.json and bench.md.
//
// It exits with 0 when it could measure, whether or not the targets were met:
// the report says which were.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	containerd "github.com/containerd/containerd/v2/client"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/testbed"
)

// The shims that are compared.
const (
	ours  = "io.hetgpu.v2"
	stock = "io.containerd.runc.v2"
)

type config struct {
	path       string
	out        string
	runs       int
	shims      int
	roundTrips int
}

func main() {
	var c config
	flag.StringVar(&c.path, "path", "", "directories with containerd, shims, ctr, runc and criu (default: those of 'make setup build')")
	flag.StringVar(&c.out, "out", "dist/bench", "`directory` for bench.json and bench.md")
	flag.IntVar(&c.runs, "n", 100, "runs of ctr for each shim")
	flag.IntVar(&c.shims, "shims", 15, "idle shims of each kind whose memory is read")
	flag.IntVar(&c.roundTrips, "round-trips", 15, "checkpoints and restores with each shim")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, c)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, c config) (err error) {
	path := filepath.SplitList(c.path)
	if len(path) == 0 {
		installed, err := testbed.FindInstalled(".")
		if err != nil {
			return err
		}
		if path, err = installed.Path(installed.Containerds()[0]); err != nil {
			return err
		}
	}
	d, err := testbed.Start(ctx, testbed.Config{Path: path})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Stop(context.WithoutCancel(ctx))) }()
	b := &bench{config: c, Daemon: d}
	if b.image, err = importImage(ctx, d); err != nil {
		return err
	}
	r, err := b.measure(ctx)
	if err != nil {
		return err
	}
	return write(c.out, r)
}

func importImage(ctx context.Context, d *testbed.Daemon) (containerd.Image, error) {
	busybox, err := testbed.FindBusybox()
	if err != nil {
		return nil, err
	}
	return d.Import(ctx, testbed.Image{Name: testbed.ImageName, Busybox: busybox})
}

func write(dir string, r *report) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	var table strings.Builder
	r.markdown(&table)
	fmt.Fprint(os.Stdout, table.String())
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "bench.json"), append(data, '\n'), 0o644),
		os.WriteFile(filepath.Join(dir, "bench.md"), []byte(table.String()), 0o644))
}
