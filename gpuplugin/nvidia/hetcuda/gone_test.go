// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package hetcuda_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/hetcuda"
)

// A process is gone from its end on, whether somebody has reaped it or not.
func TestGone(t *testing.T) {
	if hetcuda.Gone(os.Getpid()) {
		t.Error("this process is gone")
	}
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := hetcuda.AwaitEnd(ctx, pid); !errors.Is(err, context.Canceled) || hetcuda.Gone(pid) {
		t.Errorf("one that lives: %v", err)
	}
	ended := make(chan error)
	go func() { ended <- hetcuda.AwaitEnd(t.Context(), pid) }()
	if err := in.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil || !hetcuda.Gone(pid) {
		t.Errorf("one that has ended: %v", err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if err := hetcuda.AwaitEnd(t.Context(), pid); err != nil || !hetcuda.Gone(pid) {
		t.Errorf("one that was reaped: %v", err)
	}
}
