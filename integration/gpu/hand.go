// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/core/mount"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/rig"
)

// handTimeout bounds each step by hand.
const handTimeout = 4 * time.Minute

// checkpointer is a ck that waits for commands.
type checkpointer struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	answers chan string
}

func (s *suite) startCheckpointer(ctx context.Context) (*checkpointer, error) {
	c := &checkpointer{cmd: exec.Command(filepath.Join(s.programs, "ck")), answers: make(chan string)}
	c.cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+s.gpu.libraries+":"+os.Getenv("LD_LIBRARY_PATH"))
	c.cmd.Env = append(c.cmd.Env, s.gpu.hostEnv...)
	c.cmd.Stderr = os.Stderr
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(c.answers)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			c.answers <- lines.Text()
		}
	}()
	if _, err := c.answer(ctx); err != nil {
		c.stop()
		return nil, fmt.Errorf("initialize the driver: %w", err)
	}
	return c, nil
}

// call makes one call of the driver's checkpoint API and returns its time.
func (c *checkpointer) call(ctx context.Context, step string, pid int) (float64, error) {
	if _, err := fmt.Fprintln(c.in, step, pid); err != nil {
		return 0, fmt.Errorf("%s of process %d: %w", step, pid, err)
	}
	took, err := c.answer(ctx)
	if err != nil {
		return took, fmt.Errorf("%s of process %d: %w", step, pid, err)
	}
	return took, nil
}

func (c *checkpointer) answer(ctx context.Context) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, handTimeout)
	defer cancel()
	select {
	case line, ok := <-c.answers:
		var result string
		var took float64
		if !ok {
			return 0, errors.New("ck ended")
		}
		if _, err := fmt.Sscan(line, &result, &took); err != nil {
			return 0, fmt.Errorf("ck says %q", line)
		}
		if result != "CUDA_SUCCESS" {
			return took, errors.New(result)
		}
		return took, nil
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

func (c *checkpointer) stop() {
	_ = c.in.Close()
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait() // it was killed
}

// hand is a container that is run with runc alone: the same root file system,
// specification and program that the shim's container has.
type hand struct {
	*load
	t                  *test
	runc, bundle, root string
	pid                int
}

// startByHand runs gpuload by hand.
func (t *test) startByHand(ctx context.Context, args ...string) (_ *hand, err error) {
	h := &hand{t: t, load: newLoad(1, args...)}
	if h.runc, err = t.d.Lookup("runc"); err != nil {
		return nil, err
	}
	if err := t.create(ctx, h.load, 0); err != nil {
		return nil, err
	}
	h.bundle, h.root = filepath.Join(t.disk, h.ID), filepath.Join(t.work, "runc")
	if err := os.MkdirAll(filepath.Join(h.bundle, "rootfs"), 0o755); err != nil {
		return nil, err
	}
	t.cleanup(h.remove)
	if err := h.prepare(ctx); err != nil {
		return nil, err
	}
	if err := h.start(ctx, "run"); err != nil {
		return nil, err
	}
	return h, h.more(ctx, warmup)
}

// prepare makes the bundle: containerd's root file system and specification,
// and on a host without iptables a configuration for CRIU that makes do.
func (h *hand) prepare(ctx context.Context) error {
	spec, err := h.Spec(ctx)
	if err != nil {
		return err
	}
	config, lock := filepath.Join(h.bundle, "criu.conf"), ""
	if _, err := exec.LookPath("iptables-restore"); err != nil {
		lock = "network-lock skip\n"
	}
	spec.Root.Path = "rootfs"
	spec.Annotations = map[string]string{"org.criu.config": config}
	data, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	mounts, err := h.t.d.Client.SnapshotService(h.t.d.Snapshotter).Mounts(h.t.d.Context(ctx), h.ID)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(config, []byte(lock), 0o600),
		os.WriteFile(filepath.Join(h.bundle, "config.json"), data, 0o600),
		mount.All(mounts, filepath.Join(h.bundle, "rootfs")))
}

// command runs runc. Where a container inherits its output, both have to be
// files.
func (h *hand) command(ctx context.Context, stdout, stderr io.Writer, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, handTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, h.runc, append([]string{"--root", h.root}, args...)...)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(h.runc)+":"+h.criuPath()+":"+os.Getenv("PATH"))
	cmd.Stdout, cmd.Stderr = stdout, stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("runc %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// quiet runs runc for what leaves no process that could inherit its output.
func (h *hand) quiet(ctx context.Context, args ...string) error {
	var out bytes.Buffer
	if err := h.command(ctx, &out, &out, args...); err != nil {
		return fmt.Errorf("%w\n%s", err, out.String())
	}
	return nil
}

func (h *hand) criuPath() string {
	if program, err := h.t.d.Lookup("criu"); err == nil {
		return filepath.Dir(program)
	}
	return ""
}

// start runs "runc run" or "runc restore" with pipes for the output.
func (h *hand) start(ctx context.Context, verb string, args ...string) error {
	h.Out, h.Err = rig.NewOutput(), rig.NewOutput()
	stdout, err := pipeTo(h.Out)
	if err != nil {
		return err
	}
	defer stdout.Close()
	stderr, err := pipeTo(h.Err)
	if err != nil {
		return err
	}
	defer stderr.Close()
	pidFile := filepath.Join(h.bundle, "pid")
	args = append([]string{verb, "--detach", "--pid-file", pidFile, "--bundle", h.bundle}, append(args, h.ID)...)
	if err := h.command(ctx, stdout, stderr, args...); err != nil {
		return fmt.Errorf("%w; output: %q, %q", err, h.Out.Lines(), h.Err.Lines())
	}
	data, err := os.ReadFile(pidFile)
	if err != nil {
		return err
	}
	h.pid, err = strconv.Atoi(strings.TrimSpace(string(data)))
	return err
}

// pipeTo returns the end of a pipe whose other end is read until nobody has it
// any more.
func pipeTo(out *rig.Output) (*os.File, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	go func() {
		_, _ = io.Copy(out, read) // what can't be read is missed by who waits for it
		_ = read.Close()
	}()
	return write, nil
}

// save is a checkpoint by hand, leaving the container running.
func (h *hand) save(ctx context.Context, dir string) (phases, error) {
	var p phases
	work := filepath.Join(h.bundle, "work")
	err := p.each(
		p.driver(ctx, h.t.ck, "lock", h.pid),
		p.driver(ctx, h.t.ck, "checkpoint", h.pid),
		p.step("dump", func() error {
			return h.quiet(ctx, "checkpoint", "--leave-running", "--image-path", dir, "--work-path", work, h.ID)
		}),
		p.driver(ctx, h.t.ck, "restore", h.pid),
		p.driver(ctx, h.t.ck, "unlock", h.pid),
		p.step("sync", func() error { return syncAll(dir) }),
	)
	return p, h.explain(err, filepath.Join(work, "dump.log"))
}

// restore is a restore by hand.
func (h *hand) restore(ctx context.Context, dir string) (phases, error) {
	var p phases
	work := filepath.Join(h.bundle, "work")
	err := p.each(
		p.step("criu", func() error { return h.start(ctx, "restore", "--image-path", dir, "--work-path", work) }),
		// Not before: the process is another one now.
		func() error { return p.driver(ctx, h.t.ck, "restore", h.pid)() },
		func() error { return p.driver(ctx, h.t.ck, "unlock", h.pid)() },
	)
	return p, h.explain(err, filepath.Join(work, "restore.log"))
}

// explain adds the errors of CRIU's log.
func (h *hand) explain(err error, log string) error {
	if err == nil {
		return nil
	}
	data, readErr := os.ReadFile(log)
	if readErr != nil {
		return err
	}
	for line := range strings.Lines(string(data)) {
		if strings.Contains(line, "Error") {
			err = fmt.Errorf("%w\n%s", err, strings.TrimSpace(line))
		}
	}
	return err
}

// end ends the container's process, and forgets the container.
func (h *hand) end(ctx context.Context) error {
	if h.pid == 0 {
		return nil
	}
	fd, err := unix.PidfdOpen(h.pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := h.quiet(ctx, "kill", h.ID, "KILL"); err != nil {
		return err
	}
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(poll, int(removeTimeout.Milliseconds()))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			return fmt.Errorf("process %d did not end within %s: %w", h.pid, removeTimeout, err)
		}
		break
	}
	h.pid = 0
	return h.quiet(ctx, "delete", "--force", h.ID)
}

// removeTimeout is how long a process may take to die: its memory is large.
const removeTimeout = time.Minute

func (h *hand) remove(ctx context.Context) error {
	return errors.Join(h.end(ctx), mount.UnmountAll(filepath.Join(h.bundle, "rootfs"), 0), os.RemoveAll(h.bundle))
}

// syncAll puts the files of a directory on disk, side by side, as the shim
// does: its snapshot is on disk when it says that it is done.
func syncAll(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return err
	}
	var group errgroup.Group
	for _, name := range files {
		group.Go(func() error {
			f, err := os.Open(name)
			if err != nil {
				return err
			}
			defer f.Close()
			return f.Sync()
		})
	}
	return group.Wait()
}
