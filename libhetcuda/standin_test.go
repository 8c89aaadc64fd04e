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
			dir, driver := buildWhole(t, v)
			for _, faults := range []string{"uffd", "signal"} {
				t.Run(faults, func(t *testing.T) {
					runWhole(t, dir, driver, "managed", standin.H200s(2, 1), "HETCUDA_MANAGED_FAULTS="+faults)
				})
			}
		})
	}
}

// Managed variables, of which there can be one for all of a device's contexts.
func TestVariables(t *testing.T) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			dir, driver := buildWhole(t, v)
			for _, faults := range []string{"uffd", "signal"} {
				t.Run(faults, func(t *testing.T) {
					runWhole(t, dir, driver, "variables", standin.H200s(1, 1), "HETCUDA_MANAGED_FAULTS="+faults)
				})
			}
			t.Run("left to the driver", func(t *testing.T) {
				runWhole(t, dir, driver, "variables", standin.H200s(1, 1), "HETCUDA_MANAGED_VARIABLES=driver")
			})
		})
	}
}

// Processes that share memory, for which there has to be some.
func TestIPC(t *testing.T) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			dir, driver := buildWhole(t, v)
			runWhole(t, dir, driver, "ipc", roomy())
		})
	}
}

// roomy is a machine whose GPUs have some memory.
func roomy() standin.Spec {
	spec := standin.H200s(2, 1)
	for i := range spec.GPUs {
		spec.GPUs[i].Memory = 4 << 30
	}
	return spec
}

// Stream-ordered memory, in processes that are parked.
func TestPool(t *testing.T) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			dir, driver := buildWhole(t, v)
			runWhole(t, dir, driver, "pool", roomy())
		})
	}
}

// buildWhole builds the library and the stand-in.
func buildWhole(t *testing.T, v variant) (tests, driver string) {
	t.Helper()
	dir, tests := build(t, v)
	compiler := "gcc"
	driver = filepath.Join(dir, "standin")
	if v.musl {
		compiler, driver = "musl-gcc", filepath.Join(tests, "standin")
	}
	cmd := exec.Command("make", "-s", "-j2", "-C", filepath.Join("..", "integration", "standin"), "CC="+compiler, "OUT="+driver, "SANITIZE="+v.sanitize)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the stand-in: %v\n%s", err, text)
	}
	return tests, driver
}

func runWhole(t *testing.T, dir, driver, program string, spec standin.Spec, env ...string) {
	t.Helper()
	machine, err := standin.New(t.TempDir(), spec)
	if err != nil {
		t.Skipf("no machine for the stand-in: %v", err)
	}
	control := controlDir(t)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(dir, program))
	cmd.Env = append(append(os.Environ(), machine.Env()...),
		"HETCUDA_REAL="+filepath.Join(driver, "libcuda.so.1"), "HETCUDA_CONTROL="+control)
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == skipped {
		t.Skip(string(out))
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}
