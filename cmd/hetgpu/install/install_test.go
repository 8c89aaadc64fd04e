// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tree is a host's files below etc/containerd; DIR is that directory.
type tree map[string]string

func (f tree) write(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "etc", "containerd")
	for name, text := range f {
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

func snapshotOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && d.IsDir() {
			return nil
		}
		text, readErr := os.ReadFile(path)
		files[strings.TrimPrefix(path, dir+"/")] = string(text)
		return errors.Join(err, readErr)
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

const importing = "version = 3\nimports = ['DIR/conf.d/*.toml']\n"

func TestInstall(t *testing.T) {
	const (
		dropIn  = "conf.d/hetgpu.toml"
		systemd = "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]\nSystemdCgroup = true\n"
		old     = "[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.runc.options]\nSystemdCgroup = true\n"
	)
	for name, tc := range map[string]struct {
		files   tree
		o       Options
		written []string
		has     []string
		hasNot  string
		fails   string
	}{
		"no configuration": {written: []string{"config.toml", dropIn}, has: []string{"SystemdCgroup = false", `runtimes.hetgpu]`, `runtime_path = "/bin/shim"`}, hasNot: "BinaryName"},
		"imports":          {files: tree{"config.toml": importing}, written: []string{dropIn}, has: []string{"SystemdCgroup = false"}},
		"systemd":          {files: tree{"config.toml": importing + systemd}, written: []string{dropIn}, has: []string{"SystemdCgroup = true"}},
		"systemd, version 2": {
			files: tree{"config.toml": strings.Replace(importing, "3", "2", 1) + old}, written: []string{dropIn}, has: []string{"version = 2", `plugins."io.containerd.grpc.v1.cri".containerd.runtimes.hetgpu.options]`, "SystemdCgroup = true"},
		},
		"systemd, imported": {
			files:   tree{"config.toml": importing, "conf.d/50-node.toml": "version = 2\n" + old},
			written: []string{dropIn}, has: []string{"SystemdCgroup = true"},
		},
		"a relative import":         {files: tree{"config.toml": "version = 3\nimports = ['conf.d/*.toml']\n"}, written: []string{dropIn}},
		"another directory":         {files: tree{"config.toml": "version = 4\nimports = ['DIR/x/one.toml', 'DIR/y.d/*.toml']\n", "x/one.toml": ""}, written: []string{"y.d/hetgpu.toml"}},
		"ours before another":       {files: tree{"config.toml": "version = 4\nimports = ['DIR/y.d/*.toml', 'DIR/conf.d/*.toml']\n"}, written: []string{dropIn}},
		"imports of itself":         {files: tree{"config.toml": "version = 4\nimports = ['DIR/conf.d/*.toml', 'DIR/config.toml']\n"}, written: []string{dropIn}},
		"another handler":           {files: tree{"config.toml": importing}, o: Options{Handler: "gpu-2", Binary: "/usr/bin/nvidia-container-runtime"}, written: []string{dropIn}, has: []string{"runtimes.gpu-2.options]", `BinaryName = "/usr/bin/nvidia-container-runtime"`}},
		"an older one of ours":      {files: tree{"config.toml": importing, dropIn: header + "version = 2\n"}, written: []string{dropIn}},
		"no imports":                {files: tree{"config.toml": "version = 2\n" + old}, fails: `imports = ["DIR/conf.d/*.toml"]`},
		"imports of no directory":   {files: tree{"config.toml": "version = 4\nimports = ['DIR/x.toml']\n", "x.toml": ""}, fails: "to the list of imports"},
		"imports of other suffixes": {files: tree{"config.toml": "version = 4\nimports = ['DIR/conf.d/*.conf']\n"}, fails: "to the list of imports"},
		"a stranger's file":         {files: tree{"config.toml": importing, dropIn: "version = 3\n"}, fails: "not written by us"},
		"version 1":                 {files: tree{"config.toml": "imports = ['DIR/conf.d/*.toml']\n"}, fails: "containerd config migrate"},
		"broken":                    {files: tree{"config.toml": "imports = ["}, fails: "config.toml"},
		"a broken import":           {files: tree{"config.toml": importing, "conf.d/a.toml": "x"}, fails: "a.toml"},
		"a handler's name":          {files: tree{"config.toml": importing}, o: Options{Handler: "a.b]"}, fails: "handler"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := tc.files.write(t)
			before := snapshotOf(t, dir)
			o := tc.o
			o.Config, o.Shim = filepath.Join(dir, "config.toml"), "/bin/shim"
			if o.Handler == "" {
				o.Handler = "hetgpu"
			}
			plan, err := Install(o)
			if !maps.Equal(before, snapshotOf(t, dir)) {
				t.Error("a plan has changed something")
			}
			if tc.fails != "" {
				if err == nil || !strings.Contains(err.Error(), strings.ReplaceAll(tc.fails, "DIR", dir)) {
					t.Errorf("error is %v", err)
				}
				return
			}
			if err == nil {
				err = plan.Apply()
			}
			if err != nil {
				t.Fatal(err)
			}
			after := snapshotOf(t, dir)
			for _, name := range tc.written {
				before[name] = after[name]
			}
			if !maps.Equal(before, after) || len(plan.Write) != len(tc.written) {
				t.Errorf("there is %q", after)
			}
			text := after[tc.written[len(tc.written)-1]]
			for _, part := range tc.has {
				if !strings.Contains(text, part) {
					t.Errorf("%q is not in\n%s", part, text)
				}
			}
			if tc.hasNot != "" && strings.Contains(text, tc.hasNot) {
				t.Errorf("%q is in\n%s", tc.hasNot, text)
			}
			if again, err := Install(o); err != nil || !again.Empty() {
				t.Errorf("a second time: %+v, %v", again, err)
			}
		})
	}
}

// What was installed goes, and nothing else.
func TestUninstall(t *testing.T) {
	for name, tc := range map[string]struct {
		files tree
		left  []string
	}{
		"nothing there":           {tree{}, nil},
		"all ours":                {nil, nil},
		"a user's configuration":  {tree{"config.toml": importing}, []string{"config.toml"}},
		"another drop-in of ours": {tree{"config.toml": importing, "conf.d/other.toml": header}, []string{"config.toml", "conf.d/other.toml"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := tc.files.write(t)
			config := filepath.Join(dir, "config.toml")
			if name != "nothing there" {
				plan, err := Install(Options{Config: config, Shim: "/bin/shim", Handler: "hetgpu"})
				if err == nil {
					err = plan.Apply()
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				plan, err := Uninstall(config)
				if err == nil {
					err = plan.Apply()
				}
				if err != nil {
					t.Fatal(err)
				}
				left := snapshotOf(t, dir)
				if len(left) != len(tc.left) {
					t.Errorf("left is %q", left)
				}
				for _, name := range tc.left {
					if _, ok := left[name]; !ok {
						t.Errorf("%s is gone", name)
					}
				}
			}
		})
	}
}

// A configuration that we wrote stays while it imports somebody else's file, or
// was changed.
func TestUninstallKeeps(t *testing.T) {
	for name, change := range map[string]func(dir string) error{
		"somebody's drop-in": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "conf.d", "x.toml"), []byte("version = 3\n"), 0o600)
		},
		"a change": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "config.toml"), []byte(onlyImports(filepath.Join(dir, "conf.d/*.toml"))+"[debug]\n"), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := tree{}.write(t)
			config := filepath.Join(dir, "config.toml")
			plan, err := Install(Options{Config: config, Shim: "/bin/shim", Handler: "hetgpu"})
			if err = errors.Join(err, plan.Apply(), change(dir)); err != nil {
				t.Fatal(err)
			}
			plan, err = Uninstall(config)
			if err != nil || len(plan.Remove) != 1 || filepath.Base(plan.Remove[0]) != dropInName {
				t.Errorf("%+v, %v", plan, err)
			}
		})
	}
}

func TestInUse(t *testing.T) {
	proc := t.TempDir()
	for pid, line := range map[string]string{
		"1": "/sbin/init\x00", "20": "/usr/local/bin/containerd-shim-runc-v2\x00-id\x00a\x00", "self": "/usr/local/bin/containerd-shim-hetgpu-v2\x00",
	} {
		if err := errors.Join(os.Mkdir(filepath.Join(proc, pid), 0o700), os.WriteFile(filepath.Join(proc, pid, "cmdline"), []byte(line), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := InUse(proc); err != nil {
		t.Error(err)
	}
	if err := InUse(filepath.Join(proc, "missing")); err != nil {
		t.Errorf("without /proc: %v", err)
	}
	shim := filepath.Join(proc, "300", "cmdline")
	if err := errors.Join(os.Mkdir(filepath.Dir(shim), 0o700), os.WriteFile(shim, []byte("/usr/local/bin/containerd-shim-hetgpu-v2\x00-namespace\x00k8s.io\x00-id\x00web\x00"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := InUse(proc); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), "web") {
		t.Errorf("error is %v", err)
	}
}
