// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// programTimeout bounds a run of ctr or nerdctl. A checkpoint takes a second.
const programTimeout = 2 * time.Minute

// Command is a program in the daemon's environment.
func (d *Daemon) Command(ctx context.Context, program string, args ...string) (*exec.Cmd, error) {
	file, err := d.Lookup(program)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, file, args...)
	cmd.Env = d.env
	cmd.Dir = d.Dir
	// Loggers and the like keep the output open after the program has ended.
	cmd.WaitDelay = time.Second
	return cmd, nil
}

// Exec runs a program in the daemon's environment and returns what it wrote on
// standard output. Its error has the command and all that it wrote.
func (d *Daemon) Exec(ctx context.Context, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, programTimeout)
	defer cancel()
	cmd, err := d.Command(ctx, program, args...)
	if err != nil {
		return "", err
	}
	var out, both bytes.Buffer
	cmd.Stdout = &teeWriter{&out, &both}
	cmd.Stderr = &both
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %s: %w\n%s", program, strings.Join(args, " "), errors.Join(context.Cause(ctx), err), both.String())
	}
	return out.String(), nil
}

// teeWriter is io.MultiWriter for two buffers that are written in turn.
type teeWriter struct{ a, b *bytes.Buffer }

func (w *teeWriter) Write(p []byte) (int, error) {
	w.a.Write(p)
	return w.b.Write(p)
}

// Ctr runs ctr against the daemon.
func (d *Daemon) Ctr(ctx context.Context, args ...string) (string, error) {
	return d.Exec(ctx, "ctr", d.CtrArgs(args...)...)
}

// CtrArgs are the arguments with which ctr talks to the daemon.
func (d *Daemon) CtrArgs(args ...string) []string {
	return append([]string{"--address", d.Address(), "--namespace", d.Namespace}, args...)
}

// Nerdctl runs nerdctl against the daemon, with data of its own.
func (d *Daemon) Nerdctl(ctx context.Context, args ...string) (string, error) {
	data := filepath.Join(d.Dir, "nerdctl")
	global := []string{
		"--address", d.Address(), "--namespace", d.Namespace, "--snapshotter", d.Snapshotter,
		"--data-root", data, "--cni-path", filepath.Join(data, "cni"), "--cni-netconfpath", filepath.Join(data, "net.d"),
		"--cgroup-manager", "cgroupfs",
	}
	return d.Exec(ctx, "nerdctl", append(global, args...)...)
}

// pickSnapshotter returns overlayfs if one can be mounted in dir.
func pickSnapshotter(dir string) string {
	probe := filepath.Join(dir, "probe")
	defer os.RemoveAll(probe)
	for _, sub := range []string{"lower", "upper", "work", "merged"} {
		if err := os.MkdirAll(filepath.Join(probe, sub), 0o700); err != nil {
			return "native"
		}
	}
	merged := filepath.Join(probe, "merged")
	options := fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", probe)
	if err := unix.Mount("overlay", merged, "overlay", 0, options); err != nil {
		return "native"
	}
	_ = unix.Unmount(merged, unix.MNT_DETACH)
	return "overlayfs"
}

// CompileC compiles one C file into a static program, which runs in any image.
func CompileC(ctx context.Context, source, output string) error {
	compiler := os.Getenv("CC")
	if compiler == "" {
		compiler = "cc"
	}
	ctx, cancel := context.WithTimeout(ctx, programTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, compiler, "-std=c11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-static", "-pthread", "-o", output, source).CombinedOutput()
	if err != nil {
		return fmt.Errorf("compile %s: %w\n%s", source, err, out)
	}
	return nil
}
