// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Command hetgpu saves a container with a short stop and restores it (hetgpu
// checkpoint, hetgpu restore), writes device memory that was left on a GPU to
// files or frees it (hetgpu drain, hetgpu drop), and tells whether a host is fit for
// that (hetgpu doctor) and what is in a snapshot (hetgpu inspect).
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/containerd/log"
)

func main() {
	// What containerd's packages have to say besides is for a daemon's log.
	_ = log.SetLevel("error")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if err == nil {
		return
	}
	if status := exitStatus(0); errors.As(err, &status) {
		os.Exit(int(status))
	}
	if !errors.Is(err, errReported) {
		fmt.Fprintln(os.Stderr, "hetgpu:", err)
	}
	os.Exit(1)
}
