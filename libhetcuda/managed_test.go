// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package libhetcuda_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/standin"
)

// Managed memory needs a driver with memory on both sides of an address: the
// stand-in. Every way to see what the CPU touches has to do the same.
func TestManaged(t *testing.T) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			dir := build(t, v.name, v.sanitize)
			driver := filepath.Join(dir, "standin")
			cmd := exec.Command("make", "-s", "-j2", "-C", filepath.Join("..", "integration", "standin"), "OUT="+driver, "SANITIZE="+v.sanitize)
			if text, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("build the stand-in: %v\n%s", err, text)
			}
			for _, faults := range []string{"uffd", "signal"} {
				t.Run(faults, func(t *testing.T) { runManaged(t, dir, driver, faults) })
			}
		})
	}
}

func runManaged(t *testing.T, dir, driver, faults string) {
	t.Helper()
	machine, err := standin.New(t.TempDir(), standin.H200s(2, 1))
	if err != nil {
		t.Skipf("no machine for the stand-in: %v", err)
	}
	control := controlDir(t)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "test", "managed"))
	cmd.Env = append(append(os.Environ(), machine.Env()...),
		"HETCUDA_REAL="+filepath.Join(driver, "libcuda.so.1"), "HETCUDA_CONTROL="+control, "HETCUDA_MANAGED_FAULTS="+faults)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == skipped {
		t.Skip(string(out))
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}
