// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Command hetgpu-gpu is the device helper, the only host process of the shim
// that loads a vendor's driver library. The shim starts it; people use it for
// the inventory.
//
//	hetgpu-gpu -socket-fd 3    serve the shim on an inherited socket
//	hetgpu-gpu inventory       print driver, devices and functions as JSON
//	hetgpu-gpu selftest        check the digests of a GPU, and measure what moves its memory
//	hetgpu-gpu keep            keep device memory for a snapshot, as the shim starts it
//
// HETGPU_LIBCUDA and HETGPU_LIBNVML name other libraries than the installed
// libcuda.so.1 and libnvidia-ml.so.1.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/containerd/log"
	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/datapath"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/driver"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helper"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
)

func main() {
	fd := flag.Int("socket-fd", -1, "`number` of the connected unix socket on which to serve")
	keyFile := flag.String("key-file", "", "`file` with the key that device memory in files is encrypted with")
	flag.Parse()
	// Not os.Exit's business to wait: a call that the driver never answers
	// must not keep the helper alive.
	if err := run(*fd, *keyFile, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "hetgpu-gpu:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func run(fd int, keyFile string, args []string) error {
	if fd < 0 && len(args) > 0 && args[0] == "keep" {
		return keep(context.Background(), args[1:])
	}
	d := driver.New(driver.LibrariesFromEnv())
	switch {
	case fd >= 0 && len(args) == 0:
		return serve(context.Background(), fd, keyFile, d)
	case fd < 0 && len(args) == 1 && args[0] == "inventory":
		return inventory(d)
	case fd < 0 && len(args) > 0 && args[0] == "selftest":
		return selftest(context.Background(), d, args[1:])
	}
	return errors.New("usage: hetgpu-gpu inventory | selftest [-h] (or -socket-fd N and keep, as the shim starts it)")
}

// serve initializes the driver while the shim still has other things to do.
func serve(ctx context.Context, fd int, keyFile string, d *driver.Driver) error {
	raiseFiles(ctx)
	go func() {
		if err := d.Init(); err != nil {
			log.G(ctx).WithError(err).Warn("CUDA driver not initialized; will try again when needed")
		}
	}()
	cfg := datapath.DefaultConfig()
	cfg.KeyFile = keyFile
	return helper.Serve(ctx, uintptr(fd), d, datapath.New(machine{d}, cfg))
}

// raiseFiles allows as many descriptors as can be: each chunk of parked memory is
// one, and a program may have thousands.
func raiseFiles(ctx context.Context) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		log.G(ctx).WithError(err).Warn("limit of open files not known")
		return
	}
	// Go has raised it to the hard limit; higher, if we may.
	most := unix.Rlimit{Cur: maxFiles, Max: maxFiles}
	if limit.Max < maxFiles && unix.Setrlimit(unix.RLIMIT_NOFILE, &most) != nil {
		log.G(ctx).Debugf("no more than %d open files are allowed", limit.Max)
	}
}

// maxFiles is Linux's own limit (fs.nr_open), where nobody has changed it.
const maxFiles = 1 << 20

// inventory prints the report also where the driver is missing, so that its
// reader has one form to read.
func inventory(d *driver.Driver) error {
	report := helperapi.NewReport(helper.Report(d))
	if err := d.Init(); err != nil && len(report.Errors) == 0 {
		report.Errors = append(report.Errors, err.Error())
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	if err := out.Encode(report); err != nil {
		return fmt.Errorf("print the report: %w", err)
	}
	if len(report.Errors) > 0 {
		return errors.New(report.Errors[0])
	}
	return nil
}
