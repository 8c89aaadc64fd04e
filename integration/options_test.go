// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/api/types/runc/options"
	runtimeoptions "github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"github.com/containerd/containerd/v2/pkg/oci"
)

// A runtime that is not named io.containerd.runc.v2 gets containerd's generic
// options; these are runc's options in the form that each of them has.
var optionForms = []struct {
	name string
	// stock says that the stock shim takes this form; it panics on the others.
	stock bool
	make  func(t *testing.T, o *options.Options) any
}{
	{"runc", true, func(_ *testing.T, o *options.Options) any { return o }},
	{"config body", false, func(_ *testing.T, o *options.Options) any {
		return &runtimeoptions.Options{TypeUrl: "io.hetgpu.v2.options", ConfigBody: tomlOf(o)}
	}},
	{"config path", false, func(t *testing.T, o *options.Options) any {
		return &runtimeoptions.Options{TypeUrl: "io.hetgpu.v2.options", ConfigPath: writeToml(t, o)}
	}},
}

// tomlOf writes options as in the [...runtimes.NAME.options] of containerd's
// configuration.
func tomlOf(o *options.Options) []byte {
	return fmt.Appendf(nil, "BinaryName = %q\nRoot = %q\nSystemdCgroup = %v\n", o.BinaryName, o.Root, o.SystemdCgroup)
}

func writeToml(t *testing.T, o *options.Options) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "options.toml")
	if err := os.WriteFile(file, tomlOf(o), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// eachOptionForm runs a test with each form of the options.
func eachOptionForm(t *testing.T, test func(t *testing.T, d *daemon, form func(*options.Options) any)) {
	t.Helper()
	for _, form := range optionForms {
		t.Run(form.name, func(t *testing.T) {
			if !form.stock {
				skipOnStock(t, "it panics on runtimeoptions.Options")
			}
			eachDaemon(t, func(t *testing.T, d *daemon) {
				test(t, d, func(o *options.Options) any { return form.make(t, o) })
			})
		})
	}
}

// recordingRunc writes a runc that notes its arguments in a file.
func (d *daemon) recordingRunc(t *testing.T) (program, record string) {
	t.Helper()
	runc, err := d.Lookup("runc")
	if err != nil {
		t.Fatal(err)
	}
	record = filepath.Join(t.TempDir(), "record")
	return writeScript(t, "my-runc", fmt.Sprintf("echo \"$@\" >> %s\nexec %s \"$@\"\n", record, runc)), record
}

func TestBinaryName(t *testing.T) {
	eachOptionForm(t, func(t *testing.T, d *daemon, form func(*options.Options) any) {
		ctx := d.testContext(t)
		program, record := d.recordingRunc(t)
		s := shell("exit 0")
		s.options = form(&options.Options{BinaryName: program})
		c := d.run(ctx, t, s)
		c.waitExit(ctx)
		c.delete(ctx)
		waitFile(ctx, t, record, " create --bundle ", " start "+c.id, " delete "+c.id)
	})
}

func TestBinaryNameMissing(t *testing.T) {
	eachOptionForm(t, func(t *testing.T, d *daemon, form func(*options.Options) any) {
		ctx := d.testContext(t)
		s := shell("exit 0")
		s.options = form(&options.Options{BinaryName: "/no/such/runc"})
		c := d.createContainer(ctx, t, s)
		if _, err := c.tryCreateTask(ctx, s); err == nil || !strings.Contains(err.Error(), "/no/such/runc") {
			t.Errorf("the error does not name the binary: %v", err)
		}
		d.expectNothingLeft(t)
	})
}

func TestRoot(t *testing.T) {
	eachOptionForm(t, func(t *testing.T, d *daemon, form func(*options.Options) any) {
		ctx := d.testContext(t)
		root := t.TempDir()
		s := shell("sleep 1000")
		s.options = form(&options.Options{Root: root})
		c := d.run(ctx, t, s)
		state := filepath.Join(root, d.Namespace, c.id, "state.json")
		if _, err := os.Stat(state); err != nil {
			t.Errorf("runc's state is not below the root of the options: %v", err)
		}
		c.stop(ctx)
		if _, err := os.Stat(filepath.Dir(state)); err == nil {
			t.Errorf("%s is left", filepath.Dir(state))
		}
		d.expectNothingLeft(t)
	})
}

func TestSystemdCgroup(t *testing.T) {
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		t.Skip("systemd does not run on this machine")
	}
	eachOptionForm(t, func(t *testing.T, d *daemon, form func(*options.Options) any) {
		ctx := d.testContext(t)
		s := shell("sleep 1000")
		s.id = newID(t)
		s.opts = []oci.SpecOpts{oci.WithCgroup("hetgpu.slice:test:" + s.id)}
		s.options = form(&options.Options{SystemdCgroup: true})
		c := d.run(ctx, t, s)
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", c.task.Pid()))
		if err != nil {
			t.Fatal(err)
		}
		if want := "test-" + c.id + ".scope"; !strings.Contains(string(data), want) {
			t.Errorf("%s is not in %s", want, data)
		}
		c.stop(ctx)
	})
}

// Options that make no sense are refused; a container that ran without what
// its operator asked for would be worse.
func TestBadOptions(t *testing.T) {
	skipOnStock(t, "it panics on runtimeoptions.Options")
	for name, o := range map[string]*runtimeoptions.Options{
		"no TOML":      {ConfigBody: []byte("BinaryName = [")},
		"unknown key":  {ConfigBody: []byte("BinaryNam = \"runc\"\n")},
		"missing file": {ConfigPath: "/no/such/options.toml"},
	} {
		t.Run(name, func(t *testing.T) {
			eachDaemon(t, func(t *testing.T, d *daemon) {
				ctx := d.testContext(t)
				s := shell("exit 0")
				s.options = o
				c := d.createContainer(ctx, t, s)
				if task, err := c.tryCreateTask(ctx, s); err == nil {
					_, _ = task.Delete(ctx)
					t.Error("the task was created")
				}
				d.expectNothingLeft(t)
			})
		})
	}
}

// The same through the real ctr, which sends a path.
func TestCtrRunWithRuntimeConfigPath(t *testing.T) {
	skipOnStock(t, "ctr sends it runc's own options")
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		program, record := d.recordingRunc(t)
		config := writeToml(t, &options.Options{BinaryName: program})
		id := newID(t)
		out, err := d.Ctr(ctx, "run", "--rm", "--snapshotter", d.Snapshotter, "--runtime", *runtimeName,
			"--runtime-config-path", config, d.image.Name(), id, "echo", "hello")
		if err != nil || out != "hello\n" {
			t.Errorf("ctr run wrote %q: %v", out, err)
		}
		waitFile(ctx, t, record, " create --bundle ", id)
		d.expectNothingLeft(t)
	})
}
