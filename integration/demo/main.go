// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Command demo shows on a private containerd what this project does, with the
// commands that a user would type: it runs a container under io.hetgpu.v2,
// checkpoints it, restores it beside the original, and checks that the copy
// went on where the original was. With an NVIDIA GPU the program is a CUDA
// program; else one that counts.
//
//	demo [-engine ENGINE] [-path DIRECTORIES] [-gpuload PROGRAM]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/rig"
	"github.com/hetgpu/containerd-shim-hetgpu/integration/testbed"
)

const (
	// timeout is for the whole of it.
	timeout = 5 * time.Minute
	// shown are the lines that are shown of a container, each time.
	shown = 4

	original = "job"
	restored = "job-again"
	// snapshot is the reference of the checkpoint image.
	snapshot = "demo.hetgpu.local/snapshot:1"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var c config
	flag.StringVar(&c.engine, "engine", "", "the `engine` that the container asks for (io.hetgpu.engine)")
	flag.StringVar(&c.path, "path", "", "directories with our programs, containerd, ctr, runc, criu, busybox (default: those of 'make setup build')")
	flag.StringVar(&c.gpuload, "gpuload", "", "the CUDA `program`, where there is no compiler")
	flag.Parse()
	if err := run(ctx, c); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// config is the command line.
type config struct{ engine, path, gpuload string }

// demo is the state of one run.
type demo struct {
	*testbed.Daemon
	program program
	out     io.Writer
}

// programs are the directories in which programs are looked for.
func (c config) programs() ([]string, error) {
	if c.path != "" {
		return filepath.SplitList(c.path), nil
	}
	installed, err := testbed.FindInstalled(".")
	if err != nil {
		return nil, err
	}
	return installed.Path(installed.Containerds()[0])
}

// environment is for the shim: a checkout has libhetcuda in another place than an
// installation.
func (c config) environment(scratch string) ([]string, error) {
	if c.path != "" {
		return nil, nil
	}
	dir, err := filepath.Abs("bin/libhetcuda")
	if err != nil {
		return nil, err
	}
	file := filepath.Join(scratch, "config.toml")
	return []string{"HETGPU_CONFIG=" + file}, os.WriteFile(file, fmt.Appendf(nil, "[split]\nlibrary_dir = %q\n", dir), 0o600)
}

func run(ctx context.Context, c config) (err error) {
	path, err := c.programs()
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "hgdemo")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	d := &demo{out: os.Stdout}
	if d.program, err = pickProgram(ctx, scratch, c); err != nil {
		return err
	}
	env, err := c.environment(scratch)
	if err != nil {
		return err
	}
	d.say("The program %s.", d.program.what)
	if d.Daemon, err = testbed.Start(ctx, testbed.Config{Path: path, Env: append(env, d.program.env...)}); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w\nthe end of containerd's log:\n%s", err, d.LogTail())
		}
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, d.remove(cleanup, original), d.remove(cleanup, restored), d.Stop(cleanup))
	}()
	d.say("A private containerd serves on %s.", d.Address())
	if _, err := d.Import(ctx, d.program.image); err != nil {
		return err
	}
	return d.show(ctx)
}

// show is the demonstration itself.
func (d *demo) show(ctx context.Context) error {
	args := append([]string{"run", "--detach", "--runtime", "io.hetgpu.v2", "--snapshotter", d.Snapshotter, "--log-uri", "file://" + d.log()}, d.program.flags...)
	args = append(append(args, d.program.image.Name, original), d.program.args...)
	if err := d.ctr(ctx, "Run a container.", args...); err != nil {
		return err
	}
	before, err := d.follow(ctx, 0)
	if err != nil {
		return err
	}
	err = errors.Join(
		d.ctr(ctx, "Checkpoint it, while it runs, with its memory and files.", "container", "checkpoint", "--task", "--image", "--rw", original, snapshot),
		d.hetgpu(ctx, "Look at what was saved.", "inspect", "--address", d.Address(), "--namespace", d.Namespace, snapshot),
	)
	if err != nil {
		return err
	}
	if err := d.ctr(ctx, "Restore it, beside the original.", "container", "restore", "--live", "--rw", restored, snapshot); err != nil {
		return err
	}
	first, err := d.attach(ctx)
	if err != nil {
		return err
	}
	after, err := d.follow(ctx, before)
	if err != nil {
		return err
	}
	if first <= before {
		return fmt.Errorf("the restored container began with %d, although the original was at %d before the checkpoint", first, before)
	}
	d.say("The original was at %d before the checkpoint and is at %d by now; the restored one went on with %d.", before, after, first)
	return nil
}

// log is where the original's output goes.
func (d *demo) log() string { return filepath.Join(d.Dir, original+".log") }

// follow waits for more lines of the original after a number, shows them, and
// returns the last number.
func (d *demo) follow(ctx context.Context, after int) (int, error) {
	var last int
	var lines []string
	err := testbed.Eventually(ctx, original+" writes more", func() error {
		data, err := os.ReadFile(d.log())
		if err != nil {
			return err
		}
		lines = strings.Split(strings.TrimSpace(string(data)), "\n")
		if last, err = d.program.number(lines[len(lines)-1]); err != nil {
			return err
		}
		if last < after+shown {
			return fmt.Errorf("it is at %d", last)
		}
		return nil
	})
	d.print(original, lines[max(0, len(lines)-shown):])
	return last, err
}

// attach shows lines of the restored container, and returns the first number.
func (d *demo) attach(ctx context.Context) (first int, err error) {
	c, err := d.Client.LoadContainer(d.Context(ctx), restored)
	if err != nil {
		return 0, err
	}
	out := rig.NewOutput()
	// The first line may lack its beginning, which ctr has read.
	if _, err := c.Task(d.Context(ctx), cio.NewAttach(cio.WithStreams(nil, out, out))); err != nil {
		return 0, err
	}
	err = out.Wait(ctx, restored+" writes more", func(lines []string) (bool, error) { return len(lines) > shown, nil })
	if err != nil {
		return 0, err
	}
	lines := out.Lines()[1 : 1+shown]
	d.print(restored, lines)
	return d.program.number(lines[0])
}

func (d *demo) ctr(ctx context.Context, why string, args ...string) error {
	d.say("%s", why)
	d.command("ctr", args)
	start := time.Now()
	_, err := d.Ctr(ctx, args...)
	d.took(start)
	return err
}

func (d *demo) hetgpu(ctx context.Context, why string, args ...string) error {
	d.say("%s", why)
	d.command("hetgpu", args)
	out, err := d.Exec(ctx, "hetgpu", args...)
	d.print("", strings.Split(strings.TrimRight(out, "\n"), "\n"))
	return err
}

// remove removes a container, if it is there.
func (d *demo) remove(ctx context.Context, id string) error {
	c, err := d.Client.LoadContainer(d.Context(ctx), id)
	if err != nil {
		return nil //nolint:nilerror // It was not made, then.
	}
	if task, taskErr := c.Task(d.Context(ctx), nil); taskErr == nil {
		_, err = task.Delete(d.Context(ctx), containerd.WithProcessKill)
	}
	return errors.Join(err, c.Delete(d.Context(ctx), containerd.WithSnapshotCleanup))
}

func (d *demo) say(format string, args ...any) { fmt.Fprintf(d.out, "\n"+format+"\n", args...) }

func (d *demo) command(name string, args []string) {
	fmt.Fprintf(d.out, "  $ %s %s\n", name, strings.Join(args, " "))
}

func (d *demo) took(start time.Time) {
	fmt.Fprintf(d.out, "  (%.2f s)\n", time.Since(start).Seconds())
}

func (d *demo) print(who string, lines []string) {
	if who != "" {
		who += ": "
	}
	for _, line := range lines {
		fmt.Fprintf(d.out, "  %s%s\n", who, line)
	}
}
