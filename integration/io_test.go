// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/testbed"
)

const bothStreams = "echo to stdout; echo to stderr >&2"

func TestStdioPipes(t *testing.T) {
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		c := d.run(ctx, t, shell(bothStreams))
		c.waitExit(ctx)
		c.delete(ctx)
		if out, err := c.stdout.String(), c.stderr.String(); out != "to stdout\n" || err != "to stderr\n" {
			t.Errorf("stdout %q, stderr %q", out, err)
		}
	})
}

func TestStdin(t *testing.T) {
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		in, feed := io.Pipe()
		c := d.run(ctx, t, spec{args: []string{"cat"}, stdin: in})
		for _, line := range []string{"one\n", "two\n"} {
			if _, err := io.WriteString(feed, line); err != nil {
				t.Fatal(err)
			}
			c.stdout.waitFor(ctx, t, line)
		}
		// The end of the input ends cat.
		feed.Close()
		if err := c.task.CloseIO(ctx, containerd.WithStdinCloser); err != nil {
			t.Fatalf("close stdin: %v", err)
		}
		if status := c.waitExit(ctx); status != 0 {
			t.Errorf("exited with %d", status)
		}
		c.delete(ctx)
		if got := c.stdout.String(); got != "one\ntwo\n" {
			t.Errorf("it wrote %q", got)
		}
	})
}

// What is still in the pipes when a process ends must not be lost.
func TestMuchOutput(t *testing.T) {
	const size = 8 << 20
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		c := d.run(ctx, t, shell(fmt.Sprintf("head -c %d /dev/zero", size)))
		c.waitExit(ctx)
		c.delete(ctx)
		if got := len(c.stdout.String()); got != size {
			t.Errorf("%d of %d bytes arrived", got, size)
		}
	})
}

func TestNullIO(t *testing.T) {
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		s := shell(bothStreams + "; cat; exit 5")
		s.io = cio.NullIO
		c := d.run(ctx, t, s)
		if status := c.waitExit(ctx); status != 5 {
			t.Errorf("exited with %d, not 5", status)
		}
		c.delete(ctx)
		d.expectNothingLeft(t)
	})
}

// waitFile waits until a file has all that is expected of it.
func waitFile(ctx context.Context, t *testing.T, file string, wants ...string) {
	t.Helper()
	err := testbed.Eventually(ctx, file+" has everything", func() error {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for _, want := range wants {
			if !strings.Contains(string(data), want) {
				return fmt.Errorf("%q is not in %q", want, data)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestFileLog(t *testing.T) {
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		file := filepath.Join(t.TempDir(), "sub", "log")
		// It stays until all has arrived: the stock shim closes the file with
		// the first of the two streams that ends (process/io.go, copyPipes).
		s := shell(bothStreams + "; sleep 1000")
		s.io = cio.LogFile(file)
		c := d.run(ctx, t, s)
		waitFile(ctx, t, file, "to stdout\n", "to stderr\n")
		c.stop(ctx)
		d.expectNothingLeft(t)
	})
}

// writeScript writes a program for the host.
func writeScript(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"+text), 0o700); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestBinaryLog(t *testing.T) {
	for _, terminal := range []bool{false, true} {
		t.Run(fmt.Sprintf("terminal=%v", terminal), func(t *testing.T) {
			eachDaemon(t, func(t *testing.T, d *daemon) {
				ctx := d.testContext(t)
				file := filepath.Join(t.TempDir(), "log")
				// Descriptors 3 and 4 are the streams; closing 5 says ready.
				logger := writeScript(t, "logger", `
# The shim ends a logger that it closes; this one ends with its streams.
trap "" TERM
echo "$CONTAINER_NAMESPACE $CONTAINER_ID $1" > "$2"
exec 5>&-
cat <&4 >> "$2.err" &
cat <&3 >> "$2"
wait
cat "$2.err" >> "$2"
`)
				s := shell(bothStreams)
				s.terminal = terminal
				s.io = cio.BinaryIO(logger, map[string]string{"to": file})
				if terminal {
					s.io = cio.TerminalBinaryIO(logger, map[string]string{"to": file})
				}
				c := d.run(ctx, t, s)
				c.waitExit(ctx)
				c.delete(ctx)
				waitFile(ctx, t, file, fmt.Sprintf("%s %s to\n", d.Namespace, c.id), "to stdout", "to stderr")
				d.expectNothingLeft(t)
			})
		})
	}
}

// A logger that can't be started is an error of the create, and nothing is
// left.
func TestBinaryLogMissing(t *testing.T) {
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		s := shell(bothStreams)
		s.io = cio.BinaryIO("/no/such/logger", nil)
		c := d.createContainer(ctx, t, s)
		if _, err := c.tryCreateTask(ctx, s); err == nil || !strings.Contains(err.Error(), "/no/such/logger") {
			t.Errorf("the error does not name the logger: %v", err)
		}
		d.expectNothingLeft(t)
	})
}

// sizes prints the name of its terminal, and its size for each line.
const sizes = "tty; while read line; do stty size; done"

func TestTerminal(t *testing.T) {
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		in, feed := io.Pipe()
		c := d.run(ctx, t, spec{args: []string{"sh", "-c", sizes}, terminal: true, stdin: in})
		useTerminal(ctx, t, c.task, c.stdout, feed)
		if status := c.waitExit(ctx); status != 0 {
			t.Errorf("exited with %d", status)
		}
		feed.Close()
		c.delete(ctx)
		d.expectNothingLeft(t)
	})
}

// useTerminal resizes the terminal of a process that prints its sizes, and ends
// it.
func useTerminal(ctx context.Context, t *testing.T, p containerd.Process, out *output, feed io.Writer) {
	t.Helper()
	out.waitFor(ctx, t, "/dev/pts/0")
	for _, size := range [][2]uint32{{132, 43}, {80, 25}} {
		if err := p.Resize(ctx, size[0], size[1]); err != nil {
			t.Fatalf("resize: %v", err)
		}
		if _, err := io.WriteString(feed, "\n"); err != nil {
			t.Fatal(err)
		}
		out.waitFor(ctx, t, fmt.Sprintf("%d %d", size[1], size[0]))
	}
	// Control-D.
	if _, err := io.WriteString(feed, "\x04"); err != nil {
		t.Fatal(err)
	}
}

// A process that enters a container has streams or a terminal of its own.
func TestExecIO(t *testing.T) {
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		c := d.run(ctx, t, shell("sleep 1000"))
		for id, use := range map[string]func(t *testing.T, p containerd.Process, out *output, feed io.WriteCloser){
			"terminal": func(t *testing.T, p containerd.Process, out *output, feed io.WriteCloser) {
				t.Helper()
				useTerminal(ctx, t, p, out, feed)
			},
			"pipes": func(t *testing.T, p containerd.Process, out *output, feed io.WriteCloser) {
				t.Helper()
				if _, err := io.WriteString(feed, "one\n"); err != nil {
					t.Fatal(err)
				}
				out.waitFor(ctx, t, "one\n")
				feed.Close()
				if err := p.CloseIO(ctx, containerd.WithStdinCloser); err != nil {
					t.Fatalf("close stdin: %v", err)
				}
			},
		} {
			t.Run(id, func(t *testing.T) {
				in, feed := io.Pipe()
				out := newOutput()
				process := &specs.Process{Args: []string{"cat"}, Cwd: "/", Env: []string{"PATH=/bin"}}
				opts := []cio.Opt{cio.WithStreams(in, out, out), cio.WithFIFODir(filepath.Join(d.Dir, "fifo"))}
				if id == "terminal" {
					process.Terminal, process.Args = true, []string{"sh", "-c", sizes}
					opts = append(opts, cio.WithTerminal)
				}
				p, err := c.task.Exec(ctx, id, process, cio.NewCreator(opts...))
				if err != nil {
					t.Fatal(err)
				}
				exit, err := p.Wait(ctx)
				if err != nil {
					t.Fatal(err)
				}
				if err := p.Start(ctx); err != nil {
					t.Fatal(err)
				}
				use(t, p, out, feed)
				if status := waitExit(ctx, t, exit); status != 0 {
					t.Errorf("exited with %d", status)
				}
				feed.Close()
				if _, err := p.Delete(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		c.expectStatus(ctx, containerd.Running)
		c.stop(ctx)
		d.expectNothingLeft(t)
	})
}
