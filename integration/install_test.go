// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pelletier/go-toml/v2"
	"go.yaml.in/yaml/v3"

	"github.com/hetgpu/containerd-shim-hetgpu/cmd/hetgpu/doctor"
)

// userConfigs are configurations that hosts have, in containerd's versions of the
// format. DIR is the directory of one.
var userConfigs = map[string]string{
	"version 2": `version = 2
imports = ["DIR/conf.d/*.toml"]
[plugins."io.containerd.grpc.v1.cri".containerd]
  default_runtime_name = "mine"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.mine]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
    SystemdCgroup = true
`,
	"version 3": `version = 3
imports = ["DIR/conf.d/*.toml"]
[plugins."io.containerd.cri.v1.runtime".containerd]
  default_runtime_name = "mine"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.mine]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
    SystemdCgroup = true
`,
}

// writeConfigs makes a host's directory of containerd's configuration.
func writeConfigs(t *testing.T, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(text, "DIR", dir)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// merged is what a real containerd makes of a configuration.
func (d *daemon) merged(ctx context.Context, t *testing.T, config string) map[string]any {
	t.Helper()
	out, err := d.Exec(ctx, "containerd", "--config", config, "config", "dump")
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]any
	if err := toml.Unmarshal([]byte(out), &all); err != nil {
		t.Fatalf("%v in\n%s", err, out)
	}
	return all
}

// at is a value below tables.
func at(table any, path ...string) any {
	for _, name := range path {
		t, _ := table.(map[string]any)
		table = t[name]
	}
	return table
}

var runtimesPath = []string{"plugins", "io.containerd.cri.v1.runtime", "containerd", "runtimes"}

// A real containerd takes the drop-in file beside what the user has configured,
// in any version of the format, and has its own again when it is gone.
func TestInstall(t *testing.T) {
	skipOnStock(t, "it is not what is installed")
	configs := maps.Clone(userConfigs)
	configs["none"] = ""
	// In version 4 these tables are as in 3.
	const newest = "version 4"
	configs[newest] = strings.Replace(userConfigs["version 3"], "version = 3", "version = 4", 1)
	eachDaemon(t, func(t *testing.T, d *daemon) {
		for name, text := range configs {
			t.Run(name, func(t *testing.T) {
				if name == newest && d.version != installed.Containerds()[0] {
					t.Skip("containerd", d.version, "does not know it")
				}
				ctx := d.testContext(t)
				files := map[string]string{}
				if text != "" {
					files["config.toml"] = text
				}
				dir := writeConfigs(t, files)
				config := filepath.Join(dir, "config.toml")
				install := func(command string, args ...string) string {
					return d.cli(ctx, t, 0, append([]string{command, "--containerd-config", config}, args...)...)
				}
				before := ""
				if text != "" {
					before = fmt.Sprint(d.merged(ctx, t, config))
				}
				expectText(t, install("install", "--dry-run"), "write "+dir+"/conf.d/hetgpu.toml", "runtimes.hetgpu")
				if _, err := os.Stat(filepath.Join(dir, "conf.d")); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("a dry run wrote something: %v", err)
				}
				expectText(t, install("install"), "restart containerd")
				expectText(t, install("install"), "nothing to do")
				all := d.merged(ctx, t, config)
				shim, err := d.Lookup("containerd-shim-hetgpu-v2")
				if err != nil {
					t.Fatal(err)
				}
				ours := at(all, append(slices.Clone(runtimesPath), "hetgpu")...)
				for path, want := range map[string]any{
					"runtime_type": "io.hetgpu.v2", "runtime_path": shim, "options/SystemdCgroup": text != "",
				} {
					if got := at(ours, strings.Split(path, "/")...); got != want {
						t.Errorf("%s is %v, not %v", path, got, want)
					}
				}
				r := cliJSON[doctor.Report](ctx, t, d, 0, "doctor", "--address", d.Address(), "--containerd-config", config)
				if c := results(t, r, "Kubernetes"); len(c) != 1 || c[0].Status != doctor.OK || c[0].Found != "handler hetgpu" {
					t.Errorf("hetgpu doctor: %+v", c)
				}
				if text != "" {
					if got := at(all, append(slices.Clone(runtimesPath), "mine", "runtime_type")...); got != stockRuntime {
						t.Errorf("the user's own runtime is %v", got)
					}
					if got := at(all, append(slices.Clone(runtimesPath[:3]), "default_runtime_name")...); got != "mine" {
						t.Errorf("the default runtime is %v", got)
					}
					now, err := os.ReadFile(config)
					if err != nil || string(now) != strings.ReplaceAll(text, "DIR", dir) {
						t.Errorf("the user's file was changed: %v\n%s", err, now)
					}
				}
				install("uninstall", "--force") // other tests have containers
				if text != "" {
					if after := fmt.Sprint(d.merged(ctx, t, config)); after != before {
						t.Errorf("it is\n%s\nand was\n%s", after, before)
					}
				}
				expectText(t, install("uninstall", "--force"), "nothing to do")
			})
		}
	})
}

// Where the configuration imports nothing it is said what to add, and nothing is
// written.
func TestInstallWithoutImports(t *testing.T) {
	skipOnStock(t, "it is not what is installed")
	d := daemons[0]
	ctx := d.testContext(t)
	dir := writeConfigs(t, map[string]string{"config.toml": "version = 3\n"})
	out := d.cli(ctx, t, 1, "install", "--containerd-config", filepath.Join(dir, "config.toml"))
	expectText(t, out, "add this", fmt.Sprintf("imports = [%q]", dir+"/conf.d/*.toml"))
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
}

// A containerd that serves the CRI starts with the drop-in file, and its handler
// is there.
func TestInstallDaemon(t *testing.T) {
	skipOnStock(t, "it is not what is installed")
	eachDaemon(t, func(t *testing.T, d *daemon) {
		ctx := d.testContext(t)
		dir := writeConfigs(t, map[string]string{"config.toml": `version = 3
imports = ["DIR/conf.d/*.toml"]
root = "DIR/root"
state = "DIR/state"
disabled_plugins = ["io.containerd.nri.v1.nri"]
[grpc]
  address = "DIR/c.sock"
[ttrpc]
  address = "DIR/c.sock.ttrpc"
`})
		d.cli(ctx, t, 0, "install", "--containerd-config", filepath.Join(dir, "config.toml"))
		cmd, err := d.Command(ctx, "containerd", "--config", filepath.Join(dir, "config.toml"))
		if err != nil {
			t.Fatal(err)
		}
		log := newOutput()
		cmd.Stdout, cmd.Stderr = log, log
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.WaitDelay = 10 * time.Second
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			_ = cmd.Wait() // it was told to end
		})
		err = log.wait(ctx, "the CRI plugin to start", func(text string) bool {
			return strings.Contains(text, "starting cri plugin") && strings.Contains(text, "containerd successfully booted")
		})
		if err != nil {
			t.Fatalf("%v\n%s", err, log)
		}
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, "starting cri plugin") && !strings.Contains(line, "io.hetgpu.v2") {
				t.Errorf("it has no handler of ours: %s", line)
			}
		}
	})
}

// node is a file tree for the DaemonSet's script.
type node struct {
	t                     *testing.T
	host, image, restarts string
	// restart is the command that restarts containerd; "" for one that only counts.
	restart string
}

func (d *daemon) newNode(t *testing.T) *node {
	t.Helper()
	n := &node{t: t, host: t.TempDir(), image: t.TempDir()}
	n.restarts = filepath.Join(t.TempDir(), "restarts")
	for _, program := range []string{"containerd-shim-hetgpu-v2", "hetgpu", "hetgpu-gpu", "hetgpu-hook"} {
		file, err := d.Lookup(program)
		if err != nil {
			t.Fatal(err)
		}
		n.ship("bin/"+program, file)
	}
	n.ship("lib/hetgpu/libcuda.so.1", "../bin/libhetcuda/libcuda.so.1")
	n.ship("criu/bin/criu", "/bin/true")
	n.ship("criu/lib/libc.so.6", "/bin/true")
	return n
}

func (n *node) ship(name, from string) {
	n.t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(filepath.Join(n.image, name)), 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(n.image, name), data, 0o755)
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

// script runs the script that the DaemonSet runs.
func (n *node) script(ctx context.Context, status int, command string) string {
	n.t.Helper()
	cmd := exec.CommandContext(ctx, "../contrib/kubernetes/install.sh", command)
	cmd.Env = append(os.Environ(), "HOST="+n.host, "IMAGE="+n.image, "RESTART="+cmp.Or(n.restart, "sh -c echo>>"+n.restarts))
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != status {
		n.t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return string(out)
}

// installed is where a file of the image comes to be on the node.
func (n *node) installed(file string) string {
	dir, name, _ := strings.Cut(file, "/")
	return filepath.Join(n.host, map[string]string{"bin": "/usr/local/bin", "lib": "/usr/local/lib", "criu": "/opt/hetgpu/criu"}[dir], name)
}

// files lists the node's.
func (n *node) files() (names []string) {
	n.t.Helper()
	err := filepath.WalkDir(n.host, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			names = append(names, strings.TrimPrefix(path, n.host))
		}
		return err
	})
	if err != nil {
		n.t.Fatal(err)
	}
	return names
}

func (n *node) restarted() int {
	text, _ := os.ReadFile(n.restarts) // none if it is not there
	return strings.Count(string(text), "\n")
}

// The script of the DaemonSet, without a cluster: it installs, does nothing the
// second time, updates, keeps what others have, and removes all.
func TestKubernetesScript(t *testing.T) {
	skipOnStock(t, "it is not what is installed")
	d := daemons[0]
	ctx := d.testContext(t)
	n := d.newNode(t)
	others := filepath.Join(n.host, "etc/containerd/config.toml")
	if err := os.MkdirAll(filepath.Dir(others), 0o755); err != nil {
		t.Fatal(err)
	}
	const config = "version = 3\nimports = ['/etc/containerd/conf.d/*.toml']\n"
	if err := os.WriteFile(others, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	n.script(ctx, 0, "install")
	want := []string{
		"/etc/containerd/conf.d/hetgpu.toml", "/etc/containerd/config.toml", "/opt/hetgpu/criu/bin/criu", "/opt/hetgpu/criu/lib/libc.so.6",
		"/usr/local/bin/containerd-shim-hetgpu-v2", "/usr/local/bin/criu", "/usr/local/bin/hetgpu", "/usr/local/bin/hetgpu-gpu", "/usr/local/bin/hetgpu-hook",
		"/usr/local/lib/hetgpu/libcuda.so.1",
	}
	if got := n.files(); !slices.Equal(got, want) || n.restarted() != 1 {
		t.Errorf("%d restarts, files %q", n.restarted(), got)
	}
	if out := n.script(ctx, 0, "install"); strings.Contains(out, "wrote") || n.restarted() != 1 {
		t.Errorf("the second time: %d restarts, %s", n.restarted(), out)
	}
	// An update of programs, libhetcuda and CRIU; containers go on with the old ones.
	for _, file := range []string{"bin/hetgpu-hook", "lib/hetgpu/libcuda.so.1", "criu/bin/criu"} {
		old, err := os.Open(n.installed(file))
		if err != nil {
			t.Fatal(err)
		}
		defer old.Close()
		before, err := io.ReadAll(old)
		if err != nil {
			t.Fatal(err)
		}
		n.ship(file, "/bin/ls")
		if out := n.script(ctx, 0, "install"); strings.Count(out, "wrote") != 1 || n.restarted() != 1 {
			t.Errorf("an update of %s: %d restarts, %s", file, n.restarted(), out)
		}
		still := make([]byte, len(before))
		if _, err := old.ReadAt(still, 0); err != nil || !bytes.Equal(before, still) {
			t.Errorf("%s was changed where it is in use (%v)", file, err)
		}
		if now, err := os.ReadFile(n.installed(file)); err != nil || bytes.Equal(now, before) {
			t.Errorf("%s is the old one (%v)", file, err)
		}
	}
	// An update of the drop-in file, of which an older one has another text.
	dropIn := filepath.Join(n.host, "etc/containerd/conf.d/hetgpu.toml")
	if text, err := os.ReadFile(dropIn); err != nil || os.WriteFile(dropIn, bytes.Replace(text, []byte("io.hetgpu.*/*"), []byte("io.hetgpu.?"), 1), 0o644) != nil {
		t.Fatal(err)
	}
	if out := n.script(ctx, 0, "install"); strings.Contains(out, "wrote") || n.restarted() != 2 {
		t.Errorf("an update of the drop-in file: %d restarts, %s", n.restarted(), out)
	}
	n.script(ctx, 0, "uninstall")
	if got := n.files(); !slices.Equal(got, []string{"/etc/containerd/config.toml"}) || n.restarted() != 3 {
		t.Errorf("%d restarts, files %q are left", n.restarted(), got)
	}
	if text, err := os.ReadFile(others); err != nil || string(text) != config {
		t.Errorf("%s, %v", text, err)
	}
	expectText(t, n.script(ctx, 0, "uninstall"), "not installed")
	n.script(ctx, 2, "other")
	// Where containerd would not see the file the script fails, and the pod with it.
	if err := os.WriteFile(others, []byte("version = 3\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	expectText(t, n.script(ctx, 1, "install"), "imports = ")
}

// A CRIU that the node has is left alone, and found by containerd.
func TestKubernetesScriptOwnCRIU(t *testing.T) {
	skipOnStock(t, "it is not what is installed")
	d := daemons[0]
	ctx := d.testContext(t)
	for _, own := range []string{"/usr/sbin/criu", "/usr/local/bin/criu"} {
		n := d.newNode(t)
		if err := os.MkdirAll(filepath.Dir(n.host+own), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("/somewhere/criu", n.host+own); err != nil {
			t.Fatal(err)
		}
		n.script(ctx, 0, "install")
		if got := n.files(); !slices.Contains(got, "/opt/hetgpu/criu/bin/criu") || slices.Contains(got, "/usr/local/bin/criu") != (own == "/usr/local/bin/criu") {
			t.Errorf("files %q", got)
		}
		n.script(ctx, 0, "uninstall")
		if got := n.files(); !slices.Equal(got, []string{own}) {
			t.Errorf("%q are left", got)
		}
		if target, err := os.Readlink(n.host + own); err != nil || target != "/somewhere/criu" {
			t.Errorf("%s leads to %s, %v", own, target, err)
		}
	}
}

// If containerd could not be restarted the script fails, and does it the next time,
// though its configuration is as it should be by then.
func TestKubernetesScriptRestartFails(t *testing.T) {
	skipOnStock(t, "it is not what is installed")
	d := daemons[0]
	ctx := d.testContext(t)
	n := d.newNode(t)
	for i, command := range []string{"install", "uninstall"} {
		n.restart = "false"
		if out := n.script(ctx, 1, command); strings.Contains(out, "restarted") || strings.Contains(out, "done") {
			t.Errorf("%s: %s", command, out)
		}
		n.restart = ""
		expectText(t, n.script(ctx, 0, command), "containerd was restarted", "done")
		if n.restarted() != i+1 {
			t.Errorf("%s: %d restarts", command, n.restarted())
		}
	}
	if got := n.files(); len(got) != 0 {
		t.Errorf("%q are left", got)
	}
}

// An uninstall that fails between two files is finished by the next one.
func TestKubernetesScriptUninstallFails(t *testing.T) {
	skipOnStock(t, "it is not what is installed")
	d := daemons[0]
	ctx := d.testContext(t)
	n := d.newNode(t)
	n.script(ctx, 0, "install")
	library := n.installed("lib/hetgpu/libcuda.so.1")
	if err := errors.Join(os.Remove(library), os.Mkdir(library, 0o755)); err != nil {
		t.Fatal(err)
	}
	if out := n.script(ctx, 1, "uninstall"); strings.Contains(out, "done") {
		t.Errorf("%s", out)
	}
	if got := n.files(); len(got) == 0 {
		t.Error("nothing is left to be removed")
	}
	if err := os.Remove(library); err != nil {
		t.Fatal(err)
	}
	expectText(t, n.script(ctx, 0, "uninstall"), "done")
	if got := n.files(); len(got) != 0 {
		t.Errorf("%q are left", got)
	}
}

// While containers run with the shim nothing is removed.
func TestKubernetesScriptInUse(t *testing.T) {
	skipOnStock(t, "it is not what is installed")
	d := daemons[0]
	ctx := d.testContext(t)
	n := d.newNode(t)
	n.script(ctx, 0, "install")
	before := n.files()
	// As the node's /proc has it.
	shim := filepath.Join(n.host, "proc", "42", "cmdline")
	if err := os.MkdirAll(filepath.Dir(shim), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(shim, []byte("/usr/local/bin/containerd-shim-hetgpu-v2\x00-id\x00web\x00"), 0o644); err != nil {
		t.Fatal(err)
	}
	expectText(t, n.script(ctx, 1, "uninstall"), "containers run with our shim: web")
	if err := os.RemoveAll(filepath.Join(n.host, "proc")); err != nil {
		t.Fatal(err)
	}
	if got := n.files(); !slices.Equal(got, before) {
		t.Errorf("files %q, and were %q", got, before)
	}
	n.script(ctx, 0, "uninstall")
	if got := n.files(); len(got) != 0 {
		t.Errorf("%q are left", got)
	}
}

// The DaemonSet's command waits when all is installed, and ends when it is told.
func TestKubernetesScriptWaits(t *testing.T) {
	skipOnStock(t, "it is not what is installed")
	d := daemons[0]
	ctx := d.testContext(t)
	n := d.newNode(t)
	cmd := exec.CommandContext(ctx, "../contrib/kubernetes/install.sh", "run")
	cmd.Env = append(os.Environ(), "HOST="+n.host, "IMAGE="+n.image, "RESTART=true")
	// Its sleep goes with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	log := newOutput()
	cmd.Stderr = log
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	if err := log.wait(ctx, "it is installed", func(text string) bool { return strings.Contains(text, "install.sh: done") }); err != nil {
		t.Fatalf("%v: %s", err, log)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		t.Errorf("it ended with %v: %s", err, log)
	}
}

// What the files for Kubernetes say fits together, and what is installed.
func TestKubernetesFiles(t *testing.T) {
	files, err := filepath.Glob("../contrib/kubernetes/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	kinds, images := map[string]int{}, map[any]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for part := range strings.SplitSeq(string(text), "\n---\n") {
			var object map[string]any
			if err := yaml.Unmarshal([]byte(part), &object); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			kind, _ := object["kind"].(string)
			kinds[kind]++
			switch kind {
			case "RuntimeClass":
				if object["handler"] != "hetgpu" || at(object, "metadata", "name") != "hetgpu" {
					t.Errorf("%s: %v", file, object)
				}
			case "Pod":
				if at(object, "spec", "runtimeClassName") != "hetgpu" {
					t.Errorf("%s has another runtime", file)
				}
			case "DaemonSet", "Job":
				list, _ := at(object, "spec", "template", "spec", "containers").([]any)
				images[at(list[0], "image")] = true
				args, _ := at(list[0], "args").([]any)
				script, err := os.ReadFile("../contrib/kubernetes/install.sh")
				if err != nil || len(args) != 1 || !strings.Contains(string(script), fmt.Sprintf("\n%s)", args[0])) {
					t.Errorf("%s: the script has no %v (%v)", file, args, err)
				}
			}
		}
	}
	if kinds["RuntimeClass"] != 1 || kinds["DaemonSet"] != 1 || kinds["Job"] != 1 || kinds["Pod"] < 2 || len(images) != 1 {
		t.Errorf("kinds %v, images %v", kinds, images)
	}
}
