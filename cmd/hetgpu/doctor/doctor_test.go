// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/internal/config"
)

// machine is a host made of files. A name that ends in "/" is a directory; one
// below "bin/" or "sbin/" is a program, whose text is a shell script.
type machine map[string]string

// host writes the machine's files, and makes PATH its bin.
func (m machine) host(t *testing.T) *Host {
	t.Helper()
	root := t.TempDir()
	for name, text := range m {
		path := filepath.Join(root, name)
		if strings.HasSuffix(name, "/") {
			if err := os.MkdirAll(path, 0o700); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(name, "bin/") {
			text = "#!/bin/sh\n" + text + "\n"
		}
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", filepath.Join(root, "bin"))
	t.Setenv(config.Env, "")
	h := &Host{Root: root, Bin: filepath.Join(root, "own"), Address: filepath.Join(root, "containerd.sock"), ContainerdConfig: "/containerd.toml", Config: config.Default()}
	h.CountCalls = func() error { return nil }
	// Never the CRIU of the machine that runs the tests.
	h.Config.CRIU.Path = filepath.Join(root, "bin", "criu")
	return h
}

// helperWith is a helper whose driver has, or lacks, the function that locks.
func helperWith(lock string) string {
	return `echo '{"driver":"580.159.04","api":13000,"devices":[
 {"uuid":"GPU-1","vendor":"nvidia","model":"NVIDIA H200","memory_bytes":150754820096,"used_bytes":0,"minor":0},
 {"uuid":"GPU-2","vendor":"nvidia","model":"NVIDIA H200","memory_bytes":150754820096,"used_bytes":0,"minor":3,"mig":true}],
 "symbols":[{"name":"cuInit","required":true,"since":"2","found":true},
  {"name":"cuCheckpointProcessLock","required":true,"since":"570","found":` + lock + `},
  {"name":"cuCheckpointOperationComplete","required":false,"since":"615","found":false}]}'`
}

const (
	noDriver = `echo '{"driver":"","api":0,"devices":null,"symbols":[],"errors":["libnvidia-ml.so.1: cannot open shared object file"]}'; exit 1`
	nvrm     = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (root@build)\nGCC version: gcc version 13.3.0\n"
)

// dump is a containerd that prints a configuration in which one handler passes
// annotations on, if it was asked for that.
func dump(handler, annotations string) string {
	runtime := map[string]string{
		"runc": `runtime_type = "io.containerd.runc.v2"`, "ours": `runtime_type = "io.hetgpu.v2"`,
		"as-runc": `runtime_type = "io.containerd.runc.v2"` + "\n" + `runtime_path = "/opt/bin/containerd-shim-hetgpu-v2"`,
	}[handler]
	return `[ "$*" = "--config /containerd.toml config dump" ] || exit 1
echo level=warning >&2
echo 'version = 4
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.other]
runtime_type = "io.containerd.runsc.v1"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.` + handler + "]\n" + runtime + "\npod_annotations = [" + annotations + "]'"
}

func withoutProbes(h *Host) { h.CountCalls = func() error { return errors.New("no uprobes") } }

func TestChecks(t *testing.T) {
	for _, tc := range []struct {
		name   string
		check  string
		m      machine
		edit   func(h *Host)
		status Status
		found  string
		advice string
	}{
		{"root", "privileges", nil, nil, OK, "root", ""},
		{"user", "privileges", nil, func(h *Host) { h.UID = 1000 }, Warn, "user 1000", "as root"},

		{"kernel", "kernel", machine{"proc/sys/kernel/osrelease": "6.18.44-generic\n"}, nil, OK, "Linux 6.18.44-generic", ""},
		{"old kernel", "kernel", machine{"proc/sys/kernel/osrelease": "4.18.0-553.el8\n"}, nil, Fail, "4.18.0", "5.10.0"},
		{"odd kernel", "kernel", machine{"proc/sys/kernel/osrelease": "next\n"}, nil, Warn, "no version", ""},
		{"no /proc", "kernel", nil, nil, Fail, "osrelease", "/proc"},

		{"v2", "cgroups", machine{"sys/fs/cgroup/cgroup.controllers": "cpu"}, nil, OK, "v2", ""},
		{"hybrid", "cgroups", machine{"sys/fs/cgroup/unified/cgroup.controllers": "", "sys/fs/cgroup/freezer/": ""}, nil, OK, "hybrid", ""},
		{"hybrid without freezer", "cgroups", machine{"sys/fs/cgroup/unified/cgroup.controllers": ""}, nil, Fail, "without freezer", "freezer"},
		{"v1", "cgroups", machine{"sys/fs/cgroup/freezer/": ""}, nil, OK, "v1", ""},
		{"v1 without freezer", "cgroups", machine{"sys/fs/cgroup/cpu/": ""}, nil, Fail, "without freezer", "freezer"},
		{"no cgroups", "cgroups", nil, nil, Fail, "not there", "mount"},

		{"no configuration", "config", nil, nil, OK, "defaults", ""},
		{"configuration", "config", machine{"etc/hetgpu/config.toml": ""}, nil, OK, "/etc/hetgpu/config.toml", ""},
		{"bad configuration", "config", nil, func(h *Host) { h.ConfigErr = errors.New("unknown key: time_out") }, Fail, "time_out", "mend"},

		{"no encryption", "encryption", nil, nil, OK, "none", ""},
		{"key", "encryption", nil, withKey("k", 0o600), OK, "key ", ""},
		{"key that others can read", "encryption", nil, withKey("k", 0o644), Fail, "mode 0644", "docs/security.md"},
		{"key of another length", "encryption", nil, withKey("", 0o600), Fail, "neither 32 bytes", "docs/security.md"},
		{"key that is not there", "encryption", nil, func(h *Host) { h.Config.Encryption.KeyFile = "/none" }, Fail, "no such file", "put back"},
		{"key, and plain memory", "encryption", nil, func(h *Host) { withKey("k", 0o600)(h); h.Config.Encryption.AllowPlain = true }, Warn, "not encrypted", "allow_plain"},

		{"directories to be made", "directories", machine{"run/": "", "var/log/": ""}, nil, OK, "/run/hetgpu", ""},
		{"a file in the way", "directories", machine{"run": "", "var/log/": ""}, nil, Fail, "not a directory", "configuration"},

		{"containerd", "containerd", machine{"bin/containerd": "echo containerd github.com/containerd/containerd/v2 v2.4.2 0a1b2c"}, nil, OK, "2.4.2", ""},
		{"old containerd", "containerd", machine{"bin/containerd": "echo containerd containerd.io 1.7.27 0a1b2c"}, nil, Warn, "1.7.27", "2.2.0"},
		{"no containerd", "containerd", nil, nil, Warn, "not in PATH", "install"},
		{"broken containerd", "containerd", machine{"bin/containerd": "echo no libc; exit 1"}, nil, Fail, "no libc", "again"},
		{"mute containerd", "containerd", machine{"bin/containerd": ""}, nil, Warn, "no version", ""},

		{"no containerd for it", "Kubernetes", nil, nil, OK, "none", ""},
		{"no handler", "Kubernetes", machine{"bin/containerd": dump("runc", "")}, nil, OK, "hetgpu install", ""},
		{"handler", "Kubernetes", machine{"bin/containerd": dump("ours", `"io.hetgpu.*", "io.hetgpu.*/*"`)}, nil, OK, "handler ours", ""},
		{"handler by path", "Kubernetes", machine{"bin/containerd": dump("as-runc", `"io.hetgpu.*", "*.hetgpu.*/*"`)}, nil, OK, "handler as-runc", ""},
		{"no annotations", "Kubernetes", machine{"bin/containerd": dump("ours", "")}, nil, Warn, "keeps back the annotation io.hetgpu.restore:", "pod_annotations"},
		{"none for one container", "Kubernetes", machine{"bin/containerd": dump("as-runc", `"io.hetgpu.*"`)}, nil, Warn, "io.hetgpu.restore/NAME", "pod_annotations"},
		{"CRIU's too", "Kubernetes", machine{"bin/containerd": dump("ours", `"*", "*/*"`)}, nil, Warn, "as root", "take that pattern out"},
		{"a bad pattern", "Kubernetes", machine{"bin/containerd": dump("ours", `"["`)}, nil, Warn, "keeps back", "pod_annotations"},
		{"no dump", "Kubernetes", machine{"bin/containerd": "echo odd version >&2; exit 1"}, nil, Warn, "odd version", "docs/install.md"},
		{"no TOML", "Kubernetes", machine{"bin/containerd": "echo ="}, nil, Warn, "config dump", "docs/install.md"},

		{"no daemon", "containerd daemon", nil, nil, Warn, "not running", "--address"},

		{"runc", "runc", machine{"bin/runc": "echo runc version 1.5.2; echo commit: x"}, nil, OK, "1.5.2", ""},
		{"old runc", "runc", machine{"bin/runc": "echo runc version 1.1.12"}, nil, Warn, "1.1.12", "1.2.0"},
		{"crun as runc", "runc", machine{"bin/runc": "echo crun version 1.21"}, nil, Warn, "crun", "runc"},
		{"no runc", "runc", nil, nil, Fail, "not in PATH", "install"},

		{"shim in PATH", "shim", machine{"bin/" + shimName: ""}, nil, OK, shimName, ""},
		{"shim beside us", "shim", machine{"own/bin/" + shimName: ""}, func(h *Host) { h.Bin = h.path("own/bin") }, Warn, "not in PATH", "containerd's PATH"},
		{"no shim", "shim", nil, nil, Fail, "neither", "make install"},
		{"shim that does not run", "shim", machine{"bin/" + shimName: "echo no; exit 3"}, nil, Fail, "exit status 3", "make install"},

		{"helper", "device helper", machine{"bin/hetgpu-gpu": ""}, nil, OK, "hetgpu-gpu", ""},
		{"no helper", "device helper", nil, nil, Fail, "can't be checkpointed", "make install"},
		{"no configured helper", "device helper", machine{"bin/hetgpu-gpu": ""}, func(h *Host) { h.Config.Helper = "/missing/helper" }, Fail, "/missing/helper", "make install"},

		{"hook", "hook", machine{"own/bin/hetgpu-hook": ""}, func(h *Host) { h.Bin = h.path("own/bin") }, OK, "own/bin/hetgpu-hook", ""},
		{"no hook", "hook", nil, nil, Warn, "restores of NVIDIA's", "make install"},

		{"CRIU", "CRIU", machine{"bin/criu": `echo "Version: 4.2.1"`}, nil, OK, "4.2.1, criu check passed", ""},
		{"CRIU not in PATH", "CRIU", machine{"opt/bin/criu": `echo "Version: 4.2.1"`}, func(h *Host) { h.Config.CRIU.Path = h.path("opt/bin/criu") }, Warn, "not in PATH", "kubelet"},
		{"CRIU as a user", "CRIU", machine{"bin/criu": `[ "$1" = --version ] && echo "Version: 4.2.1"`}, func(h *Host) { h.UID = 1 }, OK, "needs root", ""},
		{"CRIU of Debian 13", "CRIU", machine{"bin/criu": `echo "Version: 4.1.1"`}, nil, Warn, "4.1.1, criu check passed, but", "4.2"},
		{"old CRIU", "CRIU", machine{"bin/criu": `echo "Version: 3.17.1"`}, nil, Fail, "3.17.1", "make setup"},
		{"no CRIU", "CRIU", nil, nil, Fail, "not found", "make setup"},
		{"CRIU and this kernel", "CRIU", machine{"bin/criu": `[ "$1" = check ] && { echo "Error: odd vDSO"; exit 1; }; echo "Version: 4.2.1"`}, nil, Fail, "odd vDSO", "make setup"},

		{"iptables", "network lock", machine{"bin/iptables-restore": "", "bin/criu": ""}, nil, OK, "iptables", ""},
		{"iptables outside of PATH", "network lock", machine{"usr/sbin/iptables-restore": ""}, nil, OK, "usr/sbin", ""},
		{"nftables", "network lock", machine{"bin/criu": `[ "$*" = "check --feature network_lock_nftables" ]`}, nil, OK, "nftables", ""},
		{"CRIU without nftables", "network lock", machine{"bin/criu": `[ "$1" != check ]`}, nil, Warn, "neither", "iptables"},
		{"no network lock", "network lock", nil, nil, Warn, "TCP connections", "iptables"},

		{"no GPU, no helper", "GPU driver", nil, nil, OK, "none", ""},
		{"no GPU", "GPU driver", machine{"bin/hetgpu-gpu": noDriver}, nil, OK, "none", ""},
		{"AMD", "GPU driver", machine{"bin/hetgpu-gpu": noDriver, "dev/kfd": ""}, nil, Warn, "AMD", "refused"},
		{
			"driver", "GPU driver",
			machine{"proc/driver/nvidia/version": nvrm, "bin/hetgpu-gpu": helperWith("true")},
			nil,
			OK, "NVIDIA 580.159.04, CUDA 13.0; without cuCheckpointOperationComplete (615)", "",
		},
		{
			"old driver", "GPU driver",
			machine{"proc/driver/nvidia/version": nvrm, "bin/hetgpu-gpu": helperWith("false")},
			nil,
			Fail, "lacks cuCheckpointProcessLock", "570",
		},
		{
			"libraries missing", "GPU driver",
			machine{"proc/driver/nvidia/version": nvrm, "bin/hetgpu-gpu": noDriver},
			nil,
			Fail, "kernel driver 580.159.04: libnvidia-ml.so.1", "libcuda.so.1",
		},
		{"driver without helper", "GPU driver", machine{"proc/driver/nvidia/version": nvrm}, nil, Fail, "580.159.04", "device helper"},
		{
			"helper that crashes", "GPU driver",
			machine{"proc/driver/nvidia/version": nvrm, "bin/hetgpu-gpu": "echo oops >&2; exit 139"},
			nil,
			Fail, "oops", "device helper",
		},

		{"no devices", "GPU", machine{"bin/hetgpu-gpu": noDriver}, nil, OK, "none", ""},
		{"devices", "GPU", machine{"bin/hetgpu-gpu": helperWith("true")}, nil, OK, "/dev/nvidia0: NVIDIA H200, GPU-1, 143771 MiB", ""},
		{"IPC", "legacy IPC", nil, nil, OK, "can be seen", ""},
		{"IPC as a user", "legacy IPC", nil, func(h *Host) { h.UID = 1 }, OK, "root", ""},
		{"no probes", "legacy IPC", nil, withoutProbes, OK, "without NVIDIA's kernel driver: no uprobes", ""},
		{
			"no probes for a driver", "legacy IPC",
			machine{"proc/driver/nvidia/version": nvrm},
			withoutProbes,
			Warn, "can't be seen: no uprobes", "io.hetgpu.nvidia.ipc=none",
		},
		{"driver without devices", "GPU", machine{"proc/driver/nvidia/version": nvrm, "bin/hetgpu-gpu": noDriver}, nil, Warn, "none", "log"},
	} {
		t.Run(tc.check+"/"+tc.name, func(t *testing.T) {
			h := tc.m.host(t)
			if tc.edit != nil {
				tc.edit(h)
			}
			i := slices.IndexFunc(Checks, func(c Check) bool { return c.Name == tc.check })
			results := Checks[i].Run(t.Context(), h)
			if len(results) == 0 {
				t.Fatal("no result")
			}
			r := results[0]
			if r.Status != tc.status || !strings.Contains(r.Found, tc.found) || !strings.Contains(r.Advice, tc.advice) {
				t.Errorf("got %+v; want %s, %q, %q", r, tc.status, tc.found, tc.advice)
			}
			if r.Status == OK && r.Advice != "" {
				t.Errorf("advice where all is well: %+v", r)
			}
		})
	}
}

func TestEachDeviceHasALine(t *testing.T) {
	h := machine{"bin/hetgpu-gpu": helperWith("true")}.host(t)
	r := gpuDevices(t.Context(), h)
	if len(r) != 2 || r[1].Status != Warn || !strings.Contains(r[1].Found, "/dev/nvidia3") || !strings.Contains(r[1].Advice, "MIG") {
		t.Errorf("%+v", r)
	}
}

// The helper is asked once, although two checks want its answer.
func TestHelperIsAskedOnce(t *testing.T) {
	h := machine{"bin/hetgpu-gpu": `echo asked >>"${0%/*}/log"; ` + helperWith("true")}.host(t)
	Run(t.Context(), h, []Check{{"GPU driver", gpuDriver}, {"GPU", gpuDevices}}, "")
	log, err := os.ReadFile(filepath.Join(h.Root, "bin", "log"))
	if err != nil || string(log) != "asked\n" {
		t.Errorf("%q, %v", log, err)
	}
}

func TestRun(t *testing.T) {
	fixed := func(results ...Result) func(context.Context, *Host) []Result {
		return func(context.Context, *Host) []Result { return results }
	}
	good := Check{"good", fixed(Result{Status: OK, Found: "here"})}
	odd := Check{"odd", fixed(Result{Status: Warn, Found: "strange", Advice: "mend it"}, Result{Name: "more", Status: OK, Found: "x"})}
	bad := Check{"bad", fixed(Result{Status: Fail, Found: "not here", Advice: "install it"})}
	for _, tc := range []struct {
		checks []Check
		ok     bool
		text   string
	}{
		{nil, true, ""},
		{[]Check{good, odd}, true, "ok    good  here\nwarn  odd   strange\n            -> mend it\nok    more  x\n"},
		{[]Check{bad, good}, false, "fail  bad   not here\n            -> install it\nok    good  here\n"},
	} {
		r := Run(t.Context(), &Host{}, tc.checks, "v1")
		var text bytes.Buffer
		if err := r.Print(&text); err != nil || r.OK != tc.ok || text.String() != tc.text {
			t.Errorf("ok is %t, %v, want %t:\n%swant:\n%s", r.OK, err, tc.ok, &text, tc.text)
		}
	}
}

func TestJSON(t *testing.T) {
	r := Run(t.Context(), &Host{}, []Check{{"x", func(context.Context, *Host) []Result { return warn("do it", "found") }}}, "v1")
	data, err := json.Marshal(r)
	want := `{"version":"v1","ok":true,"checks":[{"name":"x","status":"warn","found":"found","advice":"do it"}]}`
	if err != nil || string(data) != want {
		t.Errorf("%s, %v; want %s", data, err, want)
	}
}

func TestKernelModule(t *testing.T) {
	for text, want := range map[string]string{
		nvrm: "580.159.04",
		"NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12\n": "535.183.01",
		"something else": "of unknown version",
	} {
		h := machine{"proc/driver/nvidia/version": text}.host(t)
		if got := h.kernelModule(); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// withKey gives a host a key file.
func withKey(text string, mode os.FileMode) func(*Host) {
	return func(h *Host) {
		h.Config.Encryption.KeyFile = "/key"
		if text != "" {
			text = strings.Repeat("0123456789abcdef", 4)
		}
		if err := errors.Join(os.WriteFile(h.path("/key"), []byte(text), mode), os.Chmod(h.path("/key"), mode)); err != nil {
			panic(err)
		}
	}
}
