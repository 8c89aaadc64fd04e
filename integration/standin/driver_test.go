// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package standin_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/standin"
)

// mib is what a toy has on its GPU.
const mib = 1 << 20

func TestCycle(t *testing.T) {
	spec := standin.H200s(1, 1)
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			b := newBench(t, v.name, spec)
			y := b.start(t, nil, "-i", "10")
			y.reaches(t, 0, 2)
			b.used(t, spec.GPUs[0], mib)
			if held := b.held(t, y.pid()); len(held) < 2 {
				t.Errorf("a running process has only %v open", held)
			}
			b.must(t, "l", y.pid())
			b.state(t, y.pid(), "locked")
			y.rests(t, 0)
			b.must(t, "c", y.pid())
			b.state(t, y.pid(), "checkpointed")
			b.used(t, spec.GPUs[0], 0)
			if held := b.held(t, y.pid()); len(held) != 0 {
				t.Errorf("a checkpointed process has %v open", held)
			}
			b.must(t, "r", y.pid())
			b.state(t, y.pid(), "locked")
			b.used(t, spec.GPUs[0], mib)
			y.rests(t, 0)
			b.must(t, "u", y.pid())
			b.state(t, y.pid(), "running")
			y.goesOn(t, 0)
			b.must(t, "lcrulcru", y.pid())
			y.goesOn(t, 0)
		})
	}
}

// A step in the wrong state is refused and changes nothing.
func TestWrongState(t *testing.T) {
	tests := []struct{ before, step, state string }{
		{"", "c", "running"},
		{"", "r", "running"},
		{"", "u", "running"},
		{"l", "l", "locked"},
		{"l", "r", "locked"},
		{"lc", "l", "checkpointed"},
		{"lc", "c", "checkpointed"},
		{"lc", "u", "checkpointed"},
	}
	b := newBench(t, "plain", standin.H200s(1, 1))
	for _, tt := range tests {
		t.Run(tt.before+" then "+tt.step, func(t *testing.T) {
			y := b.start(t, nil, "-i", "10")
			y.reaches(t, 0, 1)
			if tt.before != "" {
				b.must(t, tt.before, y.pid())
			}
			b.refused(t, "CUDA_ERROR_ILLEGAL_STATE", tt.step, y.pid())
			b.state(t, y.pid(), tt.state)
		})
	}
}

func TestProcessWithoutCUDA(t *testing.T) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			b := newBench(t, v.name, standin.H200s(2, 1))
			y := b.start(t, nil, "-n", "2", "-i", "10")
			y.ranks(t, 2)
			for _, step := range []string{"s", "t", "l"} {
				b.refused(t, "CUDA_ERROR_NOT_INITIALIZED", step, y.pid())
				b.refused(t, "CUDA_ERROR_OPERATING_SYSTEM", step, 1<<22+1) // above the kernel's largest PID
			}
			y.goesOn(t, 0)
		})
	}
}

func TestManagedMemoryIsRefused(t *testing.T) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			b := newBench(t, v.name, standin.H200s(1, 1))
			y := b.start(t, nil, "-m", "-i", "10")
			y.reaches(t, 0, 1)
			b.refused(t, "CUDA_ERROR_NOT_SUPPORTED", "lc", y.pid())
			b.state(t, y.pid(), "locked")
			b.must(t, "u", y.pid())
			y.goesOn(t, 0)
			b.refused(t, "CUDA_ERROR_UNKNOWN", "lc", y.pid())
			b.must(t, "u", y.pid())
			y.goesOn(t, 0)
		})
	}
}

func TestLegacyIPC(t *testing.T) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			b := newBench(t, v.name, standin.H200s(1, 1))
			t.Run("open", func(t *testing.T) {
				y := b.start(t, nil, "-n", "2", "-p", "keep", "-i", "10")
				pids := y.ranks(t, 2)
				b.must(t, "lc", pids[0], pids[1])
				b.must(t, "ru", pids[0])
				y.goesOn(t, 0)
				b.refused(t, "CUDA_ERROR_INVALID_VALUE", "r", pids[1])
				b.refused(t, "CUDA_ERROR_OPERATING_SYSTEM", "r", pids[1])
				y.rests(t, 1)
			})
			t.Run("closed", func(t *testing.T) {
				y := b.start(t, nil, "-n", "2", "-p", "close", "-i", "10")
				pids := y.ranks(t, 2)
				b.must(t, "lcru", pids[0], pids[1])
				y.goesOn(t, 0)
				y.goesOn(t, 1)
			})
		})
	}
}

func TestLockWaitsForKernels(t *testing.T) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			b := newBench(t, v.name, standin.H200s(1, 1))
			y := b.start(t, nil, "-l", "500", "-i", "1")
			y.reaches(t, 0, 1)
			// Most of the time a kernel runs, but between two there is a moment.
			lines, err := b.ckpt(t, "-t", 20, "l", y.pid())
			for tries := 0; err == nil && tries < 50; tries++ {
				b.must(t, "u", y.pid())
				lines, err = b.ckpt(t, "-t", 20, "l", y.pid())
			}
			if err == nil || !strings.HasSuffix(lines[0], " CUDA_ERROR_NOT_READY") {
				t.Fatal(lines)
			}
			b.state(t, y.pid(), "running")
			b.must(t, "-t", 10000, "lcru", y.pid())
			y.reaches(t, 0, 3)
		})
	}
}

// The rank that is locked first keeps the other from finishing.
func TestCollective(t *testing.T) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			b := newBench(t, v.name, standin.H200s(2, 1))
			y := b.start(t, nil, "-n", "2", "-c", "-i", "30")
			pids := y.ranks(t, 2)
			b.must(t, "l", pids[0])
			y.rests(t, 1)
			b.refused(t, "CUDA_ERROR_NOT_READY", "-t", 100, "l", pids[1])
			b.state(t, pids[0], "locked")
			b.state(t, pids[1], "running")
			b.must(t, "u", pids[0])
			y.goesOn(t, 0)
			y.goesOn(t, 1)
			b.must(t, "-t", 20, "acru", pids[0], pids[1])
			y.goesOn(t, 0)
			y.goesOn(t, 1)
		})
	}
}

func TestFrozenProcessAnswersWhenThawed(t *testing.T) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			b := newBench(t, v.name, standin.H200s(1, 1))
			y := b.start(t, nil, "-i", "10")
			y.reaches(t, 0, 1)
			f := newFreezer(t, y.pid())
			f.set(t, true)
			// One caller dies with its request on the way, the next one waits.
			faults(t, b, "lock crash when=during")
			if lines, err := b.ckpt(t, "l", y.pid()); err == nil {
				t.Errorf("the caller did not crash: %v", lines)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			out, err := b.command(ctx, "ckpt", "u", fmt.Sprint(y.pid())).CombinedOutput()
			if ctx.Err() == nil {
				t.Errorf("a call to a frozen process ended: %v: %s", err, out)
			}
			f.set(t, false)
			b.state(t, y.pid(), "locked")
			b.must(t, "u", y.pid())
			y.goesOn(t, 0)
		})
	}
}

func TestPIDNamespace(t *testing.T) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			b := newBench(t, v.name, standin.H200s(1, 1))
			y := b.start(t, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}, "-i", "10")
			y.reaches(t, 0, 1)
			b.must(t, "lcru", y.pid())
			y.goesOn(t, 0)
			calls, err := b.Calls()
			if err != nil {
				t.Fatal(err)
			}
			want := standin.Call{Op: "unlock", PID: y.pid(), NSPID: 1, Comm: "toy0", Done: true}
			if len(calls) != 8 || calls[7] != want {
				t.Errorf("calls are %+v, want 8 that end with %+v", calls, want)
			}
		})
	}
}

// What a process that is gone had on the device is gone, and free.
func TestDeathFreesMemory(t *testing.T) {
	spec := standin.H200s(1, 1)
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			b := newBench(t, v.name, spec)
			most := fmt.Sprint(spec.GPUs[0].Memory / 4 * 3)
			y := b.start(t, nil, "-b", most)
			y.reaches(t, 0, 1)
			if line := b.start(t, nil, "-b", most).fails(t); !strings.Contains(line, "CUDA_ERROR_OUT_OF_MEMORY") {
				t.Fatalf("the second toy ended with %q", line)
			}
			if err := y.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := <-y.ended; err == nil {
				t.Fatal("a killed toy ended well")
			}
			third := b.start(t, nil, "-b", most)
			third.reaches(t, 0, 1)
		})
	}
}

func TestLostMemoryIsNoticed(t *testing.T) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			b := newBench(t, v.name, standin.H200s(1, 1))
			y := b.start(t, nil, "-i", "10")
			y.reaches(t, 0, 1)
			if err := os.RemoveAll(filepath.Join(b.Dir, "owners")); err != nil {
				t.Fatal(err)
			}
			line := y.fails(t)
			if !strings.Contains(line, "CUDA_ERROR_CONTEXT_IS_DESTROYED") {
				t.Errorf("the toy ended with %q", line)
			}
		})
	}
}

func TestChangedMemoryIsNoticed(t *testing.T) {
	spec := standin.H200s(1, 1)
	b := newBench(t, "plain", spec)
	y := b.start(t, nil, "-i", "10")
	y.reaches(t, 0, 1)
	b.must(t, "l", y.pid())
	files, err := filepath.Glob(filepath.Join(b.Dir, "owners", "*", spec.GPUs[0].UUID+".*"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	data[4] ^= 1
	if err := os.WriteFile(files[0], data, 0); err != nil {
		t.Fatal(err)
	}
	// It may be gone before it has answered.
	if lines, err := b.ckpt(t, "u", y.pid()); err != nil && !strings.HasSuffix(lines[0], "CUDA_ERROR_OPERATING_SYSTEM") {
		t.Fatal(lines)
	}
	if line := y.fails(t); !strings.HasPrefix(line, "error: word 1 is ") {
		t.Errorf("the toy ended with %q", line)
	}
}

// While a process is checkpointed the machine becomes another one.
func TestOtherMachine(t *testing.T) {
	old := standin.H200s(2, 1)
	swapped := old
	swapped.GPUs = []standin.GPU{old.GPUs[1], old.GPUs[0]}
	other := standin.H200s(2, 2)
	change := func(f func(*standin.Spec)) standin.Spec {
		s := other
		s.GPUs = slices.Clone(other.GPUs)
		f(&s)
		return s
	}
	pair := func(from, to standin.GPU) string { return "-m " + from.UUID + "=" + to.UUID }
	pairs := pair(old.GPUs[0], other.GPUs[0]) + " " + pair(old.GPUs[1], other.GPUs[1])
	tests := []struct {
		name  string
		spec  standin.Spec
		pairs string
		want  string // "" is success
		gpu   standin.GPU
	}{
		{"same", old, "", "", old.GPUs[0]},
		{"same, in another order, no pairs", swapped, "", "", old.GPUs[1]},
		{"other, no pairs", other, "", "", other.GPUs[0]},
		{"fewer, no pairs", standin.H200s(1, 2), "", "CUDA_ERROR_INVALID_VALUE", old.GPUs[0]},
		{
			"a pair too many", change(func(s *standin.Spec) { s.GPUs = append(s.GPUs, standin.H200s(3, 2).GPUs[2]) }),
			pairs + " " + pair(standin.H200s(3, 1).GPUs[2], standin.H200s(3, 2).GPUs[2]), "CUDA_ERROR_INVALID_VALUE", old.GPUs[0],
		},
		{"other, pairs", other, pairs, "", other.GPUs[0]},
		{"exchanged", old, pair(old.GPUs[0], old.GPUs[1]) + " " + pair(old.GPUs[1], old.GPUs[0]), "", old.GPUs[1]},
		{"a pair missing", other, pair(old.GPUs[0], other.GPUs[0]), "CUDA_ERROR_INVALID_VALUE", old.GPUs[0]},
		{"two to one", other, pair(old.GPUs[0], other.GPUs[0]) + " " + pair(old.GPUs[1], other.GPUs[0]), "CUDA_ERROR_INVALID_VALUE", old.GPUs[0]},
		{"other model", change(func(s *standin.Spec) { s.GPUs[0].Name = "NVIDIA L4" }), pairs, "CUDA_ERROR_INVALID_VALUE", old.GPUs[0]},
		{"in use", change(func(s *standin.Spec) { s.GPUs[0].Used = s.GPUs[0].Memory - 4096 }), pairs, "CUDA_ERROR_OUT_OF_MEMORY", old.GPUs[0]},
		{"split", change(func(s *standin.Spec) { s.GPUs[1].MIG = true }), pairs, "CUDA_ERROR_INVALID_VALUE", old.GPUs[0]},
		{"driver without pairs", change(func(s *standin.Spec) { s.Driver = "575.57.08" }), pairs, "CUDA_ERROR_INVALID_VALUE", old.GPUs[0]},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, "address", old)
			y := b.start(t, nil, "-i", "10")
			y.reaches(t, 0, 1)
			b.must(t, "lc", y.pid())
			if err := b.Set(tt.spec); err != nil {
				t.Fatal(err)
			}
			if tt.want != "" {
				b.refused(t, tt.want, tt.pairs, "r", y.pid())
				b.state(t, y.pid(), "checkpointed")
				if err := b.Set(old); err != nil {
					t.Fatal(err)
				}
				b.must(t, "r", y.pid())
			} else {
				b.must(t, tt.pairs, "r", y.pid())
			}
			b.used(t, tt.gpu, mib)
			b.must(t, "u", y.pid())
			y.goesOn(t, 0)
		})
	}
}

func TestWithoutDevice(t *testing.T) {
	b := newBench(t, "plain", standin.H200s(1, 1))
	for _, node := range []string{"nvidia0", "nvidiactl"} {
		t.Run(node, func(t *testing.T) {
			if err := os.Remove(filepath.Join(b.DevDir(), node)); err != nil {
				t.Fatal(err)
			}
			if line := b.start(t, nil).fails(t); !strings.Contains(line, "CUDA_ERROR_NO_DEVICE") {
				t.Errorf("the toy ended with %q", line)
			}
			if err := b.Set(standin.H200s(1, 1)); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// What the C code leaves open at its end is found by the address sanitizer.
func TestEndsInOrder(t *testing.T) {
	spec := standin.H200s(2, 1)
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			b := newBench(t, v.name, spec)
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			out, err := b.command(ctx, "toy", "-n", "2", "-c", "-m", "-l", "5", "-i", "1", "-t", "3").CombinedOutput()
			if err != nil || strings.Count(string(out), "tick 3 ") != 2 {
				t.Errorf("%v: %s", err, out)
			}
			b.used(t, spec.GPUs[0], 0)
			b.used(t, spec.GPUs[1], 0)
		})
	}
}

// freezer is a cgroup with one process, of whichever version there is.
type freezer struct{ file, frozen, thawed string }

func newFreezer(t *testing.T, pid int) *freezer {
	t.Helper()
	f := &freezer{"freezer.state", "FROZEN", "THAWED"}
	parent := "/sys/fs/cgroup/freezer"
	if _, err := os.Stat(parent); err != nil {
		parent, f = "/sys/fs/cgroup", &freezer{"cgroup.freeze", "1", "0"}
	}
	dir := filepath.Join(parent, fmt.Sprintf("standin-test-%d", pid))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	f.file = filepath.Join(dir, f.file)
	t.Cleanup(func() {
		f.set(t, false)
		write(t, filepath.Join(parent, "cgroup.procs"), fmt.Sprint(pid))
		if err := exec.Command("rmdir", dir).Run(); err != nil {
			t.Error(err)
		}
	})
	write(t, filepath.Join(dir, "cgroup.procs"), fmt.Sprint(pid))
	return f
}

func (f *freezer) set(t *testing.T, frozen bool) {
	t.Helper()
	if frozen {
		write(t, f.file, f.frozen)
	} else {
		write(t, f.file, f.thawed)
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0); err != nil {
		t.Fatal(err)
	}
}
