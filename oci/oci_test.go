// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package oci_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/hetgpu/containerd-shim-hetgpu/oci"
)

func TestFindGPUs(t *testing.T) {
	devices := func(paths ...string) *oci.Spec {
		s := &oci.Spec{}
		for _, p := range paths {
			s.Linux.Devices = append(s.Linux.Devices, specs.LinuxDevice{Path: p})
		}
		return s
	}
	mounts := func(paths ...string) *oci.Spec {
		s := &oci.Spec{}
		for _, p := range paths {
			s.Mounts = append(s.Mounts, specs.Mount{Destination: p})
		}
		return s
	}
	legacy := func(hook string, env ...string) *oci.Spec {
		return &oci.Spec{Process: oci.Process{Env: env}, Hooks: oci.Hooks{Prestart: []specs.Hook{{Path: hook}}}}
	}
	const hook = "/usr/bin/nvidia-container-runtime-hook"
	for name, tc := range map[string]struct {
		spec *oci.Spec
		want oci.GPUs
	}{
		"empty":             {&oci.Spec{}, oci.GPUs{}},
		"one":               {devices("/dev/nvidiactl", "/dev/nvidia3", "/dev/nvidia-uvm"), oci.GPUs{NVIDIA: true, NVIDIAMinors: []int{3}}},
		"bind mounts":       {mounts("/dev/nvidia1", "/dev/nvidia0", "/dev/nvidia1"), oci.GPUs{NVIDIA: true, NVIDIAMinors: []int{0, 1}}},
		"control only":      {devices("/dev/nvidiactl", "/dev/nvidia-uvm"), oci.GPUs{}},
		"not in /dev":       {mounts("/srv/nvidia0", "/device/nvidia0"), oci.GPUs{}},
		"legacy hook":       {legacy(hook, "NVIDIA_VISIBLE_DEVICES=all"), oci.GPUs{NVIDIA: true}},
		"legacy hook, void": {legacy(hook, "NVIDIA_VISIBLE_DEVICES=void"), oci.GPUs{}},
		"no hook":           {legacy("/bin/other", "NVIDIA_VISIBLE_DEVICES=all"), oci.GPUs{}},
		"amd":               {devices("/dev/kfd", "/dev/dri/renderD128"), oci.GPUs{AMD: true}},
		"intel":             {devices("/dev/dri/renderD128"), oci.GPUs{Intel: true}},
		"nvidia and render": {devices("/dev/nvidia0", "/dev/dri/renderD128"), oci.GPUs{NVIDIA: true, NVIDIAMinors: []int{0}}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := oci.FindGPUs(tc.spec); !reflect.DeepEqual(got, tc.want) {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestParsePolicy(t *testing.T) {
	for name, tc := range map[string]struct {
		annotations map[string]string
		want        oci.Policy
		wrong       []string
	}{
		"none": {nil, oci.Policy{Engine: oci.EngineAuto}, nil},
		"all": {map[string]string{
			oci.AnnotationEngine: "driver", oci.AnnotationCheckpointExit: "true",
			oci.AnnotationCheckpointTimeout: "90s", oci.AnnotationTCP: "close", oci.AnnotationNVIDIAIPC: "none",
		}, oci.Policy{Engine: oci.EngineDriver, CheckpointExit: true, Timeout: 90 * time.Second, TCP: oci.TCPClose, NoLegacyIPC: true}, nil},
		"wrong": {map[string]string{
			oci.AnnotationEngine: "magic", oci.AnnotationCheckpointExit: "maybe",
			oci.AnnotationCheckpointTimeout: "-1s", oci.AnnotationTCP: "", oci.AnnotationNVIDIAIPC: "some",
		}, oci.Policy{}, []string{oci.AnnotationEngine, oci.AnnotationCheckpointExit, oci.AnnotationCheckpointTimeout, oci.AnnotationTCP, oci.AnnotationNVIDIAIPC}},
		"restore": {map[string]string{oci.AnnotationRestore: "x"}, oci.Policy{Engine: oci.EngineAuto, Restore: "x"}, nil},
		"of a pod's container": {map[string]string{
			"io.kubernetes.cri.container-name": "web", oci.AnnotationRestore + "/web": "y", oci.AnnotationRestore: "x",
			oci.AnnotationTCP: "close", oci.AnnotationEngine + "/other": "split",
		}, oci.Policy{Engine: oci.EngineAuto, TCP: oci.TCPClose, Restore: "y"}, nil},
		"of another's":         {map[string]string{oci.AnnotationRestore + "/web": "y"}, oci.Policy{Engine: oci.EngineAuto}, nil},
		"of a pod's sandbox":   {map[string]string{"io.kubernetes.cri.container-type": "sandbox", oci.AnnotationRestore: "x", oci.AnnotationEngine: "driver"}, oci.Policy{Engine: oci.EngineAuto}, nil},
		"nothing to restore":   {map[string]string{oci.AnnotationRestore: ""}, oci.Policy{}, []string{oci.AnnotationRestore}},
		"nothing for this one": {map[string]string{"io.kubernetes.cri.container-name": "web", oci.AnnotationRestore: "x", oci.AnnotationRestore + "/web": ""}, oci.Policy{}, []string{oci.AnnotationRestore + "/web"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := oci.ParsePolicy(tc.annotations)
			if (err != nil) != (tc.wrong != nil) {
				t.Fatalf("error is %v", err)
			}
			for _, key := range tc.wrong {
				if !strings.Contains(err.Error(), key) {
					t.Errorf("error %q does not name %s", err, key)
				}
			}
			if tc.wrong == nil && got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestRename(t *testing.T) {
	for name, tc := range map[string]struct {
		cgroup, hostname, log             string
		old                               string
		wantCgroup, wantHostname, wantLog string
	}{
		"with a manifest":          {"/default/one", "one", "/var/log/one/one-json.log", "one", "/default/two", "two", "/var/log/two/two-json.log"},
		"own paths stay":           {"/batch/jobs", "web", "/var/log/one.txt/x", "one", "/batch/jobs", "web", "/var/log/two.txt/x"},
		"part of a name stays":     {"/default/one1", "one-web", "/var/log/one-a", "one", "/default/one1", "one-web", "/var/log/one-a"},
		"systemd":                  {"system.slice:ctr:one", "", "", "one", "system.slice:ctr:two", "", ""},
		"without, default form":    {"/default/x", "x", "/x", "", "/default/two", "x", "/x"},
		"without, other form":      {"/kubepods/x", "x", "/x", "", "/kubepods/x", "x", "/x"},
		"without, systemd":         {"a.slice:ctr:x", "", "", "", "a.slice:ctr:x", "", ""},
		"same id":                  {"/default/two", "two", "/two", "two", "/default/two", "two", "/two"},
		"short id is the hostname": {"/default/0123456789abcdef", "0123456789ab", "", "0123456789abcdef", "/default/two", "two", ""},
		"no cgroup path":           {"", "", "", "one", "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			spec := &oci.Spec{
				Hostname:    tc.hostname,
				Linux:       oci.Linux{CgroupsPath: tc.cgroup},
				Annotations: map[string]string{"log": tc.log, "other": "one"},
			}
			for _, when := range []string{"once", "twice"} {
				oci.Rename(spec, "default", tc.old, "two")
				if spec.Linux.CgroupsPath != tc.wantCgroup || spec.Hostname != tc.wantHostname || spec.Annotations["log"] != tc.wantLog {
					t.Errorf("%s: got %q %q %q", when, spec.Linux.CgroupsPath, spec.Hostname, spec.Annotations["log"])
				}
				if spec.Annotations["other"] != "one" {
					t.Error("a value that is no path was changed")
				}
			}
		})
	}
}
