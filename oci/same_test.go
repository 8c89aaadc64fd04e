// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package oci_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/hetgpu/containerd-shim-hetgpu/oci"
)

// podSpec is about what containerd makes for a container of a pod.
func podSpec() *specs.Spec {
	return &specs.Spec{
		Annotations: map[string]string{
			"io.kubernetes.cri.image-name": "web:1", "io.kubernetes.cri.sandbox-namespace": "team", "io.kubernetes.cri.sandbox-id": "one",
		},
		Process: &specs.Process{
			Args: []string{"serve", "-v"}, Env: []string{"A=1"}, User: specs.User{UID: 7, GID: 8}, NoNewPrivileges: true,
			Capabilities: &specs.LinuxCapabilities{Bounding: []string{"CAP_CHOWN", "CAP_KILL"}, Effective: []string{"CAP_KILL"}},
		},
		Mounts: []specs.Mount{
			{Destination: "/data", Source: "/var/lib/one"}, {Destination: "/lib/libcuda.so.580.1", Source: "/lib/libcuda.so.580.1"}, {Destination: "/dev/nvidia0"},
		},
		Linux: &specs.Linux{
			CgroupsPath:   "/one",
			Namespaces:    []specs.LinuxNamespace{{Type: specs.PIDNamespace}, {Type: specs.NetworkNamespace, Path: "/proc/1/ns/net"}},
			Seccomp:       &specs.LinuxSeccomp{DefaultAction: specs.ActErrno},
			MaskedPaths:   []string{"/proc/kcore"},
			ReadonlyPaths: []string{"/proc/sys"},
		},
	}
}

func TestTakes(t *testing.T) {
	for name, tc := range map[string]struct {
		was, is func(*specs.Spec)
		want    string // "" for no error
	}{
		"the same": {},
		"what is the pod's": {is: func(s *specs.Spec) {
			s.Annotations["io.kubernetes.cri.sandbox-id"] = "two"
			s.Process.Env, s.Hostname, s.Linux.CgroupsPath = []string{"A=2"}, "two", "/two"
			s.Mounts[0].Source, s.Linux.Namespaces[1].Path = "/var/lib/two", "/proc/2/ns/net"
		}},
		"more rights": {is: func(s *specs.Spec) {
			s.Process.Capabilities.Bounding = append(s.Process.Capabilities.Bounding, "CAP_SYS_ADMIN")
		}},
		"another driver": {is: func(s *specs.Spec) {
			s.Mounts[1].Destination, s.Mounts[2].Destination = "/lib/libcuda.so.580.2", "/dev/nvidia1"
		}},
		"no seccomp any more":   {is: func(s *specs.Spec) { s.Linux.Seccomp = nil }},
		"not of Kubernetes":     {was: func(s *specs.Spec) { s.Annotations = nil }},
		"not in Kubernetes":     {is: func(s *specs.Spec) { s.Annotations = nil }},
		"an empty namespace":    {was: func(s *specs.Spec) { s.Annotations["io.kubernetes.cri.sandbox-namespace"] = "" }, want: "the Kubernetes namespace is team, and was "},
		"another namespace":     {is: func(s *specs.Spec) { s.Annotations["io.kubernetes.cri.sandbox-namespace"] = "other" }, want: "the Kubernetes namespace is other, and was team"},
		"another image":         {is: func(s *specs.Spec) { s.Annotations["io.kubernetes.cri.image-name"] = "web:2" }, want: "the image is web:2, and was web:1"},
		"another command":       {is: func(s *specs.Spec) { s.Process.Args = []string{"serve"} }, want: "the command is [serve], and was [serve -v]"},
		"a terminal":            {is: func(s *specs.Spec) { s.Process.Terminal = true }, want: "the use of a terminal"},
		"another user":          {is: func(s *specs.Spec) { s.Process.User.UID = 0 }, want: "the user is 0, and was 7"},
		"another group":         {is: func(s *specs.Spec) { s.Process.User.GID = 0 }, want: "the group"},
		"the host's network":    {is: func(s *specs.Spec) { s.Linux.Namespaces = s.Linux.Namespaces[:1] }, want: "the namespaces"},
		"the pod's processes":   {is: func(s *specs.Spec) { s.Linux.Namespaces[0].Path = "/proc/2/ns/pid" }, want: "shared pid"},
		"it had a capability":   {was: func(s *specs.Spec) { s.Process.Capabilities.Ambient = []string{"CAP_SYS_ADMIN"} }, want: "capabilities that the container has not: CAP_SYS_ADMIN"},
		"no capabilities":       {is: func(s *specs.Spec) { s.Process.Capabilities = nil }, want: "CAP_CHOWN, CAP_KILL"},
		"it could gain more":    {was: func(s *specs.Spec) { s.Process.NoNewPrivileges = false }, want: "gain privileges"},
		"it had no seccomp":     {was: func(s *specs.Spec) { s.Linux.Seccomp = nil }, want: "seccomp"},
		"another seccomp":       {was: func(s *specs.Spec) { s.Linux.Seccomp.DefaultAction = specs.ActAllow }, want: "seccomp"},
		"it saw more":           {was: func(s *specs.Spec) { s.Linux.MaskedPaths = nil }, want: "masked in the container: /proc/kcore"},
		"it could write":        {was: func(s *specs.Spec) { s.Linux.ReadonlyPaths = nil }, want: "read-only in the container: /proc/sys"},
		"another AppArmor":      {is: func(s *specs.Spec) { s.Process.ApparmorProfile = "strict" }, want: "AppArmor"},
		"a mount less":          {is: func(s *specs.Spec) { s.Mounts = s.Mounts[1:] }, want: "the container has no mount at /data"},
		"a mount more":          {was: func(s *specs.Spec) { s.Mounts = s.Mounts[1:] }, want: "the saved one had no mount at /data"},
		"all differences named": {is: func(s *specs.Spec) { s.Process.User.UID = 0; s.Mounts = nil }, want: "the user is 0, and was 7; the container has no mount at /data"},
	} {
		t.Run(name, func(t *testing.T) {
			was, is := podSpec(), podSpec()
			for _, edit := range []struct {
				do func(*specs.Spec)
				to *specs.Spec
			}{{tc.was, was}, {tc.is, is}} {
				if edit.do != nil {
					edit.do(edit.to)
				}
			}
			saved, err := json.Marshal(was)
			if err != nil {
				t.Fatal(err)
			}
			err = loadSpec(t, is).Takes(saved)
			switch {
			case tc.want == "" && err != nil:
				t.Error(err)
			case tc.want != "" && (!errors.Is(err, oci.ErrOther) || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
	if err := loadSpec(t, podSpec()).Takes([]byte("{")); err == nil {
		t.Error("a saved spec that can't be read is taken")
	}
}

// loadSpec writes a spec into a bundle and reads it.
func loadSpec(t *testing.T, s *specs.Spec) *oci.Spec {
	t.Helper()
	bundle := t.TempDir()
	data, err := json.Marshal(s)
	if err == nil {
		err = os.WriteFile(filepath.Join(bundle, "config.json"), data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	spec, err := oci.Load(bundle)
	if err != nil {
		t.Fatal(err)
	}
	return spec
}
