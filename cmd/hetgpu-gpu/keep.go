// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/keeper"
)

// keep is a process that keeps device memory, and calls no driver.
func keep(ctx context.Context, args []string) error {
	var (
		dir, id string
		label   keeper.Label
		fd      int
	)
	flags := flag.NewFlagSet("keep", flag.ContinueOnError)
	flags.StringVar(&dir, "dir", "", "`directory` in which keepers listen")
	flags.StringVar(&id, "id", "", "`name` of this one")
	flags.StringVar(&label.Container, "container", "", "`id` of the container that is saved")
	flags.StringVar(&label.Dir, "snapshot", "", "`directory` of the snapshot")
	flags.IntVar(&fd, "owner-fd", -1, "`number` of the connected socket of who starts it")
	if err := flags.Parse(args); err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), "owner")
	if f == nil || flags.NArg() > 0 {
		return fmt.Errorf("it is the shim that starts a keeper: %q", args)
	}
	owner, err := net.FileConn(f)
	if err := f.Close(); err != nil {
		return err
	}
	if err != nil {
		return fmt.Errorf("the socket of who starts it: %w", err)
	}
	raiseFiles(ctx)
	// At the end of the host it lets go by itself. Nothing else is meant for it.
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	return keeper.Serve(ctx, keeper.Home(dir), id, label, owner)
}
