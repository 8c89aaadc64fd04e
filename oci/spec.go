// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package oci reads what a container's OCI spec says of GPUs and of us, and
// edits specs. All but [Load] and [Spec.Save] are pure functions of a spec.
//
// It must not know of containerd's API, runc's state or a GPU driver.
package oci

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// specName is the file of a bundle that holds the spec.
const specName = "config.json"

// Spec is the part of a container's spec that we read. Its methods change both
// that and the document that it is from, of which [Spec.Save] writes everything
// else as it was: the spec may be newer than our types.
//
// The rest is not decoded, since every container waits for it: all of
// [specs.Spec] takes a new process two milliseconds.
type Spec struct {
	Hostname    string            `json:"hostname"`
	Annotations map[string]string `json:"annotations"`
	Root        Root              `json:"root"`
	Process     Process           `json:"process"`
	Mounts      []specs.Mount     `json:"mounts"`
	Hooks       Hooks             `json:"hooks"`
	Linux       Linux             `json:"linux"`

	// name is the document's file.
	name     string
	document []byte
	// edits are what the document lacks.
	edits []edit
}

// Process is the part of [specs.Process] that we read.
type Process struct {
	Env []string `json:"env"`
}

// Root is the part of [specs.Root] that we read.
type Root struct {
	// Path may be relative to the bundle.
	Path string `json:"path"`
}

// Hooks is the part of [specs.Hooks] that we read.
type Hooks struct {
	// Prestart is deprecated, and what NVIDIA's legacy hook uses.
	Prestart        []specs.Hook `json:"prestart"`
	CreateRuntime   []specs.Hook `json:"createRuntime"`
	CreateContainer []specs.Hook `json:"createContainer"`
	Poststop        []specs.Hook `json:"poststop"`
}

// Linux is the part of [specs.Linux] that we read.
type Linux struct {
	CgroupsPath string                 `json:"cgroupsPath"`
	Namespaces  []specs.LinuxNamespace `json:"namespaces"`
	Devices     []specs.LinuxDevice    `json:"devices"`
	Resources   Resources              `json:"resources"`
}

// Resources is the part of [specs.LinuxResources] that we read.
type Resources struct {
	// Devices are the rules of the control group; the last one that fits counts.
	Devices []specs.LinuxDeviceCgroup `json:"devices"`
}

// Rootfs is where the container's root is on the host.
func (s *Spec) Rootfs() string {
	if filepath.IsAbs(s.Root.Path) {
		return filepath.Clean(s.Root.Path)
	}
	return filepath.Join(filepath.Dir(s.name), s.Root.Path)
}

// Load reads the spec of a bundle.
func Load(bundle string) (*Spec, error) {
	s := &Spec{name: filepath.Join(bundle, specName)}
	var err error
	if s.document, err = os.ReadFile(s.name); err != nil {
		return nil, fmt.Errorf("read the container's spec: %w", err)
	}
	if err := json.Unmarshal(s.document, s); err != nil {
		return nil, fmt.Errorf("read the container's spec %s: %w", s.name, err)
	}
	return s, nil
}

// SetHostname sets the hostname.
func (s *Spec) SetHostname(name string) {
	if s.Hostname != name {
		s.Hostname = name
		s.set(name, "hostname")
	}
}

// SetCgroupsPath sets the path of the control group.
func (s *Spec) SetCgroupsPath(path string) {
	if s.Linux.CgroupsPath != path {
		s.Linux.CgroupsPath = path
		s.set(path, "linux", "cgroupsPath")
	}
}

// SetAnnotation sets one annotation.
func (s *Spec) SetAnnotation(key, value string) {
	if old, ok := s.Annotations[key]; ok && old == value {
		return
	}
	if s.Annotations == nil {
		s.Annotations = make(map[string]string)
	}
	s.Annotations[key] = value
	s.set(value, "annotations", key)
}

// set notes what Save is to write.
func (s *Spec) set(value any, path ...string) {
	s.edits = append(s.edits, edit{path, value})
}

// Save writes what was set into the bundle, if anything was, and keeps the
// file's mode. A reader sees the old spec or the new one.
func (s *Spec) Save() error {
	if len(s.edits) == 0 {
		return nil
	}
	if err := s.save(); err != nil {
		return fmt.Errorf("write the container's spec: %w", err)
	}
	return nil
}

func (s *Spec) save() error {
	document := s.document
	for _, e := range s.edits {
		var err error
		if document, err = e.apply(document); err != nil {
			return err
		}
	}
	old, err := os.Stat(s.name)
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.name+".new", document, 0o600); err != nil {
		return err
	}
	// Whatever the umask says.
	if err := os.Chmod(s.name+".new", old.Mode().Perm()); err != nil {
		return err
	}
	if err := os.Rename(s.name+".new", s.name); err != nil {
		return err
	}
	s.document, s.edits = document, nil
	return nil
}
