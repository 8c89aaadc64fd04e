// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	cdispecs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/driverlibs"
)

// twoGPUs is a host on which the driver's order is not that of the nodes.
func twoGPUs() Host {
	nodes := map[string]string{"/dev/nvidia0": "/run/nvidia/dev/nvidia0"}
	for _, name := range []string{"/dev/nvidia3", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"} {
		nodes[name] = name
	}
	return Host{
		Driver: "580.159.04",
		GPUs:   []gpuplugin.Device{{UUID: "GPU-b", Minor: 3}, {UUID: "GPU-a", Minor: 0}},
		Nodes:  nodes,
		Libraries: []driverlibs.Library{
			{Path: "/lib/libcuda.so.580.159.04", Names: []string{"libcuda.so", "libcuda.so.1", "libcuda.so.580.159.04"}},
			{Path: "/lib/libnvidia-ml.so.580.159.04", Names: []string{"libnvidia-ml.so.1", "libnvidia-ml.so.580.159.04"}},
			{Path: "/lib/libcudadebugger.so.580.159.04", Names: []string{"libcudadebugger.so.580.159.04"}},
		},
		Programs: []string{"/usr/bin/nvidia-smi"},
		Library:  "/usr/local/lib/hetgpu", Hook: "/usr/local/bin/hetgpu-hook", LibraryPath: []string{"/opt/lib"},
	}
}

func TestSpec(t *testing.T) {
	s, err := Spec(twoGPUs())
	if err != nil {
		t.Fatal(err)
	}
	nodes := map[string]string{"0": "/dev/nvidia3", "GPU-b": "/dev/nvidia3", "1": "/dev/nvidia0", "GPU-a": "/dev/nvidia0", "all": "/dev/nvidia3 /dev/nvidia0"}
	for _, d := range s.Devices {
		if got := paths(d.ContainerEdits.DeviceNodes); got != nodes[d.Name] {
			t.Errorf("device %s has %q", d.Name, got)
		}
		if d.ContainerEdits.Mounts != nil || d.ContainerEdits.Env != nil {
			t.Errorf("device %s: %+v", d.Name, d.ContainerEdits)
		}
	}
	if len(s.Devices) != len(nodes) || s.Kind != Kind || s.Version == "" {
		t.Errorf("%+v", s)
	}
	e := s.ContainerEdits
	if got := paths(e.DeviceNodes); got != "/dev/nvidiactl /dev/nvidia-uvm /dev/nvidia-uvm-tools" {
		t.Errorf("nodes %q", got)
	}
	if got := s.Devices[2].ContainerEdits.DeviceNodes[0].HostPath; got != "/run/nvidia/dev/nvidia0" {
		t.Errorf("on the host it is %q", got)
	}
	var mounts []string
	for _, m := range e.Mounts {
		mounts = append(mounts, m.HostPath+" "+m.ContainerPath)
		if m.Type == "bind" && !slices.Equal(m.Options, []string{"bind", "ro", "nosuid", "nodev"}) {
			t.Errorf("%s: %q", m.ContainerPath, m.Options)
		}
	}
	if want := []string{
		"tmpfs /run/hetgpu",
		"/usr/local/lib/hetgpu /run/hetgpu/lib",
		"/lib/libcuda.so.580.159.04 /run/hetgpu/driver/libcuda.so.580.159.04",
		"/lib/libnvidia-ml.so.580.159.04 /run/hetgpu/driver/libnvidia-ml.so.1",
		"/lib/libnvidia-ml.so.580.159.04 /run/hetgpu/driver/libnvidia-ml.so.580.159.04",
		"/lib/libcudadebugger.so.580.159.04 /run/hetgpu/driver/libcudadebugger.so.580.159.04",
		"/usr/local/lib/hetgpu/libcuda.so.1 /run/hetgpu/driver/libcuda.so",
		"/usr/bin/nvidia-smi /run/hetgpu/bin/nvidia-smi",
	}; !slices.Equal(mounts, want) {
		t.Errorf("mounts\n%s\nwant\n%s", strings.Join(mounts, "\n"), strings.Join(want, "\n"))
	}
	if want := []string{
		"LD_LIBRARY_PATH=/run/hetgpu/lib:/run/hetgpu/driver:/opt/lib", "HETCUDA_CONTROL=/run/hetgpu/control",
		"HETCUDA_REAL=/run/hetgpu/driver/libcuda.so.580.159.04", "NVIDIA_VISIBLE_DEVICES=void",
	}; !slices.Equal(e.Env, want) {
		t.Errorf("environment %q", e.Env)
	}
	var calls []string
	for _, h := range e.Hooks {
		calls = append(calls, h.HookName+" "+h.Path+" "+strings.Join(h.Args, " "))
	}
	if want := []string{
		"createRuntime /usr/local/bin/hetgpu-hook hetgpu-hook createRuntime",
		"poststop /usr/local/bin/hetgpu-hook hetgpu-hook poststop",
	}; !slices.Equal(calls, want) {
		t.Errorf("hooks %q", calls)
	}
}

// Only who asks for it gives it away: as the shim does, to read and write.
func TestSpecUserfaultfd(t *testing.T) {
	h := twoGPUs()
	h.Nodes["/dev/userfaultfd"] = "/dev/userfaultfd"
	for _, asked := range []bool{false, true} {
		h.Userfaultfd = asked
		s, err := Spec(h)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(s.ContainerEdits.DeviceNodes, func(n *cdispecs.DeviceNode) bool { return n.Path == "/dev/userfaultfd" })
		if (i >= 0) != asked || asked && s.ContainerEdits.DeviceNodes[i].Permissions != "rw" {
			t.Errorf("asked %t: nodes %q", asked, paths(s.ContainerEdits.DeviceNodes))
		}
	}
}

func paths(nodes []*cdispecs.DeviceNode) string {
	var list []string
	for _, n := range nodes {
		list = append(list, n.Path)
	}
	return strings.Join(list, " ")
}

func TestSpecOfUnfitHosts(t *testing.T) {
	for name, tc := range map[string]struct {
		edit func(h *Host)
		says string
	}{
		"no GPU":            {func(h *Host) { h.GPUs = nil }, "no NVIDIA GPU"},
		"no userfaultfd":    {func(h *Host) { h.Userfaultfd = true }, "there is no /dev/userfaultfd: Linux has it from 6.1 on"},
		"no node of a GPU":  {func(h *Host) { delete(h.Nodes, "/dev/nvidia0") }, "GPU GPU-a: there is no /dev/nvidia0"},
		"no control node":   {func(h *Host) { delete(h.Nodes, "/dev/nvidiactl") }, "there is no /dev/nvidiactl"},
		"no managed memory": {func(h *Host) { delete(h.Nodes, "/dev/nvidia-uvm") }, "nvidia-modprobe"},
		"no libcuda":        {func(h *Host) { h.Libraries = h.Libraries[1:] }, "libcuda.so.580.159.04"},
	} {
		t.Run(name, func(t *testing.T) {
			h := twoGPUs()
			tc.edit(&h)
			if s, err := Spec(h); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%+v, %v", s, err)
			}
		})
	}
}

func TestLook(t *testing.T) {
	root := t.TempDir()
	for name, target := range map[string]string{
		"dev/nvidia0": "../real", "real": "", "dev/nvidiactl": "", "dev/nvidia7": "",
		"usr/lib64/libcuda.so.580.1": "", "usr/lib64/libcuda.so.1": "libcuda.so.580.1",
		"usr/bin/nvidia-smi": "", "lib/libcuda.so.1": "", "hook": "",
	} {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		err := os.WriteFile(file, nil, 0o600)
		if target != "" {
			err = errors.Join(os.Remove(file), os.Symlink(target, file))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	inventory := gpuplugin.Inventory{Driver: "580.1", Devices: []gpuplugin.Device{{UUID: "GPU-a"}}}
	h := Host{Library: filepath.Join(root, "lib"), Hook: filepath.Join(root, "hook")}
	roots := Roots{Driver: root, Dev: root}
	if err := h.Look(t.Context(), inventory, roots); err != nil {
		t.Fatal(err)
	}
	target, err := filepath.EvalSymlinks(filepath.Join(root, "real"))
	if err != nil {
		t.Fatal(err)
	}
	if len(h.Nodes) != 2 || h.Nodes["/dev/nvidia0"] != target {
		t.Errorf("nodes %q", h.Nodes)
	}
	if len(h.Libraries) != 1 || !slices.Equal(h.Programs, []string{filepath.Join(root, "usr/bin/nvidia-smi")}) {
		t.Errorf("%+v", h)
	}
	for name, look := range map[string]func() error{
		"no version": func() error { return h.Look(t.Context(), gpuplugin.Inventory{}, roots) },
		"no driver":  func() error { return h.Look(t.Context(), inventory, Roots{Driver: t.TempDir(), Dev: root}) },
		"no hook": func() error {
			return (&Host{Library: h.Library, Hook: "/none"}).Look(t.Context(), inventory, roots)
		},
		"a directory": func() error {
			return (&Host{Library: h.Library, Hook: root}).Look(t.Context(), inventory, roots)
		},
	} {
		if err := look(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestWrite(t *testing.T) {
	s, err := Spec(twoGPUs())
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "etc", "cdi")
	for _, name := range []string{"hetgpu.yaml", "hetgpu.json", "hetgpu.yaml"} {
		if err := Write(s, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("%v, %v", entries, err)
	}
	var text bytes.Buffer
	if err := Print(s, &text); err != nil {
		t.Fatal(err)
	}
	if written, err := os.ReadFile(filepath.Join(dir, "hetgpu.yaml")); err != nil || !bytes.Equal(written, text.Bytes()) {
		t.Errorf("%v: written\n%s\nprinted\n%s", err, written, &text)
	}
	if err := Write(s, filepath.Join(dir, "hetgpu.conf")); err == nil {
		t.Error("a name that no runtime reads")
	}
	s.Devices[0].Name = "no device/name"
	if err := Write(s, filepath.Join(dir, "bad.yaml")); err == nil {
		t.Error("what no runtime takes was written")
	}
	if _, err := os.Stat(filepath.Join(dir, "bad.yaml")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func TestInjectKeepsThePath(t *testing.T) {
	for env, want := range map[string]string{
		"":                             "LD_LIBRARY_PATH=/ours",
		"LD_LIBRARY_PATH=":             "LD_LIBRARY_PATH=/ours",
		"LD_LIBRARY_PATH=/own:/second": "LD_LIBRARY_PATH=/ours:/own:/second",
	} {
		spec := &specs.Spec{Process: &specs.Process{}}
		if env != "" {
			spec.Process.Env = []string{env}
		}
		path := libraryPath(spec)
		spec.Process.Env = []string{"A=B", "LD_LIBRARY_PATH=/ours"}
		keepPath(spec, path)
		if got := spec.Process.Env; !slices.Equal(got, []string{"A=B", want}) {
			t.Errorf("%q: %q", env, got)
		}
	}
	if got := libraryPath(&specs.Spec{}); got != "" {
		t.Errorf("without a process: %q", got)
	}
}

// A bundle is edited once, or not at all.
func TestInject(t *testing.T) {
	s := &cdispecs.Spec{
		Version: "0.6.0", Kind: Kind, Devices: []cdispecs.Device{{Name: All, ContainerEdits: cdispecs.ContainerEdits{
			Mounts: []*cdispecs.Mount{bind("/usr/lib/hetgpu", "/run/hetgpu/lib")},
			Env:    []string{"LD_LIBRARY_PATH=/run/hetgpu/lib"},
		}}},
	}
	dir, bundle := t.TempDir(), t.TempDir()
	if err := Write(s, filepath.Join(dir, "hetgpu.yaml")); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(bundle, "config.json")
	const before = `{"ociVersion":"1.2.0","process":{"cwd":"/","env":["LD_LIBRARY_PATH=/own"]},"root":{"path":"rootfs"}}`
	if err := os.WriteFile(config, []byte(before), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := Inject(bundle, []string{dir}, []string{Kind + "=3"}); err == nil || !strings.Contains(err.Error(), Kind+"=3") {
		t.Errorf("of a device that there is not: %v", err)
	}
	if text, err := os.ReadFile(config); err != nil || string(text) != before {
		t.Errorf("it was changed: %s, %v", text, err)
	}
	if err := Inject(bundle, []string{dir}, []string{Kind + "=" + All}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(config)
	if err != nil || !strings.Contains(string(text), `"LD_LIBRARY_PATH=/run/hetgpu/lib:/own"`) {
		t.Errorf("%s, %v", text, err)
	}
	if info, err := os.Stat(config); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", info, err)
	}
	if err := Inject(bundle, []string{dir}, []string{Kind + "=" + All}); !errors.Is(err, ErrEdited) {
		t.Errorf("a second time: %v", err)
	}
}
