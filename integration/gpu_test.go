// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/containerd/api/types/runc/options"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/standin"
	"github.com/hetgpu/containerd-shim-hetgpu/integration/testbed"
)

const (
	// mib is what a toy has on its GPU unless it is told otherwise.
	mib = 1 << 20
	// inContainer is where containers see the stand-in's programs.
	inContainer = "/standin"
)

// usual is the machine that every test finds: two GPUs.
var usual = standin.H200s(2, 1)

// makeMachine makes the daemon's GPUs, and returns the environment by which
// its shims find them.
func (d *daemon) makeMachine(dir string) (env []string, err error) {
	if d.gpu, err = standin.New(filepath.Join(dir, "machine"), usual); err != nil {
		return nil, err
	}
	programs := filepath.Join(dir, "programs")
	if err := standin.Install(programs, filepath.Join(dir, "libhetcuda"), "../bin"); err != nil {
		return nil, err
	}
	d.programs, d.hetgpu = programs, dir
	return append(d.gpu.HelperEnv(programs), "HETGPU_CONFIG="+d.configFile()), d.writeConfig("")
}

func (d *daemon) configFile() string { return filepath.Join(d.hetgpu, "config.toml") }

// logDir is where the shims keep the logs of failures.
func (d *daemon) logDir() string { return filepath.Join(d.hetgpu, "log") }

// configure adds lines to the shims' configuration for the rest of the test.
// A shim reads it when it starts.
func (d *daemon) configure(t *testing.T, more string) {
	t.Helper()
	if err := d.writeConfig(more); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.writeConfig(""); err != nil {
			t.Error(err)
		}
	})
}

func (d *daemon) writeConfig(more string) error {
	text := fmt.Sprintf("log_dir = %q\nstate_dir = %q\nsplit.enabled = false\nsplit.library_dir = %q\n%s\n",
		d.logDir(), filepath.Join(d.hetgpu, "state"), filepath.Join(d.hetgpu, "libhetcuda"), more)
	return os.WriteFile(d.configFile(), []byte(text), 0o600)
}

// change makes the daemon's machine another one for the rest of the test.
func (d *daemon) change(t *testing.T, s standin.Spec) {
	t.Helper()
	if err := d.gpu.Set(s); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.gpu.Set(usual); err != nil {
			t.Error(err)
		}
	})
}

// faults makes calls of the driver go wrong until the test ends, or the next
// call, which may have none.
func (d *daemon) faults(t *testing.T, rules ...string) {
	t.Helper()
	if err := d.gpu.SetFaults(rules...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.gpu.SetFaults(); err != nil {
			t.Error(err)
		}
	})
}

// toy is a spec of a container that runs the toy, fast, on the first GPU.
func (d *daemon) toy(args ...string) spec {
	return spec{
		args: append([]string{inContainer + "/toy", "-i", "10"}, args...),
		opts: []oci.SpecOpts{d.withProgram, d.withGPUs(0)},
	}
}

// withProgram lets a container see the stand-in's programs and its machine.
func (d *daemon) withProgram(_ context.Context, _ oci.Client, _ *containers.Container, s *oci.Spec) error {
	s.Mounts = append(s.Mounts,
		specs.Mount{Type: "bind", Source: d.programs, Destination: inContainer, Options: []string{"rbind", "ro"}},
		specs.Mount{Type: "bind", Source: d.gpu.Dir, Destination: d.gpu.Dir, Options: []string{"rbind", "rw"}},
	)
	s.Process.Env = append(s.Process.Env, "HETGPU_STANDIN="+d.gpu.Dir)
	return nil
}

// withGPUs gives a container the device nodes of GPUs.
func (d *daemon) withGPUs(minors ...int) oci.SpecOpts {
	return func(_ context.Context, _ oci.Client, _ *containers.Container, s *oci.Spec) error {
		names := []string{"nvidiactl"}
		for _, minor := range minors {
			names = append(names, fmt.Sprintf("nvidia%d", minor))
		}
		mode := os.FileMode(0o666)
		for _, name := range names {
			s.Linux.Devices = append(s.Linux.Devices, specs.LinuxDevice{
				Path: "/dev/" + name, Type: "c", Major: d.gpu.Major, Minor: d.gpu.Minor, FileMode: &mode,
			})
		}
		s.Linux.Resources.Devices = append(s.Linux.Resources.Devices,
			specs.LinuxDeviceCgroup{Allow: true, Type: "c", Major: &d.gpu.Major, Minor: &d.gpu.Minor, Access: "rwm"})
		return nil
	}
}

// ticks returns the last tick of each rank of a toy. The test fails if a toy
// found anything wrong, or if a tick is missing.
func (c *container) ticks() map[int]int {
	c.t.Helper()
	last := map[int]int{}
	for _, line := range c.lines() {
		rank, tick, err := parseTick(line)
		if err != nil {
			c.t.Fatal(err)
		}
		if before, ok := last[rank]; ok && tick != before+1 {
			c.t.Fatalf("rank %d went from tick %d to %d", rank, before, tick)
		}
		last[rank] = tick
	}
	return last
}

// lines returns the whole lines that were written.
func (c *container) lines() []string {
	text := c.stdout.String()
	if c.stdout.partial {
		_, text, _ = strings.Cut(text, "\n")
	}
	text = text[:strings.LastIndex(text, "\n")+1]
	return slices.Collect(strings.Lines(text))
}

func parseTick(line string) (rank, tick int, err error) {
	var sum string
	if strings.HasPrefix(line, "rank ") {
		_, err = fmt.Sscanf(line, "rank %d tick %d sum %s\n", &rank, &tick, &sum)
	} else {
		_, err = fmt.Sscanf(line, "tick %d sum %s\n", &tick, &sum)
	}
	if err != nil {
		err = fmt.Errorf("the toy says %q", line)
	}
	return rank, tick, err
}

// ticksOn waits until each of the ranks has done some ticks more, and returns
// the last ones.
func (c *container) ticksOn(ctx context.Context, ranks int) map[int]int {
	c.t.Helper()
	before := c.ticks()
	err := c.stdout.wait(ctx, fmt.Sprintf("%d ranks to go on from %v", ranks, before), func(string) bool {
		now := c.ticks()
		return len(now) == ranks && !slices.ContainsFunc(slices.Collect(maps.Keys(now)), func(rank int) bool { return now[rank] < before[rank]+3 })
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return c.ticks()
}

// firstTick is the first tick that the container's toy printed.
func (c *container) firstTick() int {
	c.t.Helper()
	_, tick, err := parseTick(c.lines()[0])
	if err != nil {
		c.t.Fatal(err)
	}
	return tick
}

// checkpointTo saves the container into a directory by containerd's client,
// which pauses and resumes it.
func (c *container) checkpointTo(ctx context.Context, dir string, exit bool) error {
	image, err := c.task.Checkpoint(ctx, func(i *containerd.CheckpointTaskInfo) error {
		i.Options = &options.CheckpointOptions{ImagePath: dir, Exit: exit}
		return nil
	})
	if err != nil {
		return err
	}
	if image.Name() == "" {
		return nil
	}
	// For a runtime that it does not know the client makes an image too, with
	// all but the snapshot.
	return c.d.Client.ImageService().Delete(ctx, image.Name())
}

// mustCheckpoint saves the container into a new directory.
func (c *container) mustCheckpoint(ctx context.Context, exit bool) (dir string) {
	c.t.Helper()
	dir = filepath.Join(c.t.TempDir(), "snapshot")
	if err := c.checkpointTo(ctx, dir, exit); err != nil {
		c.t.Fatalf("checkpoint: %v", err)
	}
	return dir
}

// tryRestore creates a container like s and its task from a snapshot, and
// starts it.
func (d *daemon) tryRestore(ctx context.Context, t *testing.T, s spec, dir string) (*container, error) {
	t.Helper()
	s.taskOpts = append(slices.Clone(s.taskOpts), containerd.WithRestoreImagePath(dir))
	c := d.createContainer(ctx, t, s)
	var err error
	if c.task, err = c.tryCreateTask(ctx, s); err != nil {
		return c, err
	}
	if c.exit, err = c.task.Wait(ctx); err != nil {
		return c, err
	}
	return c, c.task.Start(ctx)
}

func (d *daemon) restore(ctx context.Context, t *testing.T, s spec, dir string) *container {
	t.Helper()
	c, err := d.tryRestore(ctx, t, s, dir)
	if err != nil {
		t.Fatalf("restore: %v", err)
	}
	return c
}

// expectUsed fails unless processes have so much memory of the GPU.
func (d *daemon) expectUsed(t *testing.T, gpu standin.GPU, want uint64) {
	t.Helper()
	used, err := d.gpu.UsedBytes(gpu.UUID)
	if err != nil || used != want {
		t.Errorf("%d bytes of %s are in use (%v), not %d", used, gpu.UUID, err, want)
	}
}

// gpuProcesses returns the PIDs of the container's processes that use a GPU,
// in order.
func (c *container) gpuProcesses(ctx context.Context) []int {
	c.t.Helper()
	procs, err := c.task.Pids(ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	var pids []int
	for _, p := range procs {
		comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.Pid))
		// The parent of several ranks is "toy".
		if name := strings.TrimSpace(string(comm)); err == nil && (strings.HasPrefix(name, "toy") && name != "toy" || name == "vmmtoy") {
			pids = append(pids, int(p.Pid))
		}
	}
	slices.Sort(pids)
	return pids
}

// drive makes the driver take steps with the container's processes, from
// outside and behind the shim's back, as NVIDIA's cuda-checkpoint does.
func (c *container) drive(ctx context.Context, steps string) string {
	c.t.Helper()
	args := []string{steps}
	for _, pid := range c.gpuProcesses(ctx) {
		args = append(args, fmt.Sprint(pid))
	}
	cmd := exec.CommandContext(ctx, filepath.Join(c.d.programs, "ckpt"), args...)
	cmd.Env = c.d.gpu.Env()
	out, err := cmd.CombinedOutput()
	if err != nil {
		c.t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	return string(out)
}

// expectStates asks the driver for the state of every process of the container
// that uses a GPU.
func (c *container) expectStates(ctx context.Context, ranks int, want string) {
	c.t.Helper()
	pids := c.gpuProcesses(ctx)
	if len(pids) != ranks {
		c.t.Fatalf("%d processes use a GPU, not %d", len(pids), ranks)
	}
	out := c.drive(ctx, "s")
	if got := strings.Count(out, "CUDA_SUCCESS "+want+"\n"); got != ranks {
		c.t.Fatalf("not all processes are %s:\n%s", want, out)
	}
}

// waitRunning waits until the task runs.
func (c *container) waitRunning(ctx context.Context) {
	c.t.Helper()
	err := testbed.Eventually(ctx, "the task runs", func() error {
		status, err := c.task.Status(ctx)
		if err == nil && status.Status != containerd.Running {
			err = fmt.Errorf("it is %s", status.Status)
		}
		return err
	})
	if err != nil {
		c.t.Fatal(err)
	}
}
