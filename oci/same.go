// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// ErrOther means that a snapshot is of a container of another make.
var ErrOther = errors.New("the snapshot is of another container")

// identity is what a container that takes over another's processes must have in
// common with it: what the processes have in their memory, or run with, and no
// restore changes.
type identity struct {
	Annotations map[string]string `json:"annotations"`
	Process     struct {
		Terminal        bool                     `json:"terminal"`
		User            specs.User               `json:"user"`
		Args            []string                 `json:"args"`
		Capabilities    *specs.LinuxCapabilities `json:"capabilities"`
		NoNewPrivileges bool                     `json:"noNewPrivileges"`
		ApparmorProfile string                   `json:"apparmorProfile"`
		SelinuxLabel    string                   `json:"selinuxLabel"`
	} `json:"process"`
	Mounts []specs.Mount `json:"mounts"`
	Linux  struct {
		Namespaces    []specs.LinuxNamespace `json:"namespaces"`
		Seccomp       any                    `json:"seccomp"`
		MaskedPaths   []string               `json:"maskedPaths"`
		ReadonlyPaths []string               `json:"readonlyPaths"`
	} `json:"linux"`
}

// Takes tells whether the processes of a container that was made with the saved
// spec can go on in one with this spec, with no more rights than this spec gives:
// CRIU gives processes back the rights that they had. The error, [ErrOther], has
// all differences.
//
// What may differ: the environment, the sources of mounts, resources, the
// hostname, the pod and its network.
func (s *Spec) Takes(saved []byte) error {
	var was, is identity
	if err := json.Unmarshal(saved, &was); err != nil {
		return fmt.Errorf("read the saved container's spec: %w", err)
	}
	if err := json.Unmarshal(s.document, &is); err != nil {
		return fmt.Errorf("read the container's spec %s: %w", s.name, err)
	}
	if found := slices.Concat(was.differs(&is), was.exceeds(&is), was.mountsDiffer(&is)); len(found) > 0 {
		return fmt.Errorf("%w: %s", ErrOther, strings.Join(found, "; "))
	}
	return nil
}

// differs lists what would be another container's.
func (was *identity) differs(is *identity) (found []string) {
	compare := func(what string, was, is any) {
		if !reflect.DeepEqual(was, is) {
			found = append(found, fmt.Sprintf("%s is %v, and was %v", what, is, was))
		}
	}
	for _, a := range []struct{ key, what string }{
		// Whoever may make pods in one namespace must not read another's memory. One
		// of no pod is nobody's: who put it where pods can name it, which only root
		// can, has given it to all of them (docs/security.md).
		{annotationSandboxNamespace, "the Kubernetes namespace"},
		{annotationImageName, "the image"},
	} {
		was, known := was.Annotations[a.key]
		is, wanted := is.Annotations[a.key]
		if known && wanted {
			compare(a.what, was, is)
		}
	}
	compare("the command", was.Process.Args, is.Process.Args)
	compare("the use of a terminal", was.Process.Terminal, is.Process.Terminal)
	compare("the user", was.Process.User.UID, is.Process.User.UID)
	compare("the group", was.Process.User.GID, is.Process.User.GID)
	compare("the AppArmor profile", was.Process.ApparmorProfile, is.Process.ApparmorProfile)
	compare("the namespaces", was.namespaces(), is.namespaces())
	return found
}

// namespaces lists them, and tells the container's own from those that it joins.
func (was *identity) namespaces() []string {
	var list []string
	for _, ns := range was.Linux.Namespaces {
		kind := "own "
		if ns.Path != "" {
			kind = "shared "
		}
		list = append(list, kind+string(ns.Type))
	}
	slices.Sort(list)
	return list
}

// exceeds lists the rights that the processes would keep and the new container
// does not give.
func (was *identity) exceeds(is *identity) (found []string) {
	if extra := minus(was.capabilities(), is.bounding()); len(extra) > 0 {
		found = append(found, "it had capabilities that the container has not: "+strings.Join(extra, ", "))
	}
	if is.Process.NoNewPrivileges && !was.Process.NoNewPrivileges {
		found = append(found, "it could gain privileges, and the container must not")
	}
	if is.Linux.Seccomp != nil && !reflect.DeepEqual(was.Linux.Seccomp, is.Linux.Seccomp) {
		found = append(found, "it had another seccomp profile")
	}
	if missing := minus(is.Linux.MaskedPaths, was.Linux.MaskedPaths); len(missing) > 0 {
		found = append(found, "it saw paths that are masked in the container: "+strings.Join(missing, ", "))
	}
	if missing := minus(is.Linux.ReadonlyPaths, was.Linux.ReadonlyPaths); len(missing) > 0 {
		found = append(found, "it could write to paths that are read-only in the container: "+strings.Join(missing, ", "))
	}
	return found
}

// capabilities are all that the processes may have.
func (was *identity) capabilities() []string {
	c := was.Process.Capabilities
	if c == nil {
		return nil
	}
	return slices.Concat(c.Bounding, c.Effective, c.Permitted, c.Inheritable, c.Ambient)
}

func (was *identity) bounding() []string {
	if was.Process.Capabilities == nil {
		return nil
	}
	return was.Process.Capabilities.Bounding
}

// mountsDiffer lists mounts that only one of them has. The processes see those
// that were saved, each with the source that the new container has for it.
func (was *identity) mountsDiffer(is *identity) (found []string) {
	if missing := minus(was.mountPoints(), is.mountPoints()); len(missing) > 0 {
		found = append(found, "the container has no mount at "+strings.Join(missing, ", "))
	}
	if extra := minus(is.mountPoints(), was.mountPoints()); len(extra) > 0 {
		found = append(found, "the saved one had no mount at "+strings.Join(extra, ", "))
	}
	return found
}

func (was *identity) mountPoints() []string {
	var points []string
	for _, m := range was.Mounts {
		if !ofDriver(m.Destination) {
			points = append(points, filepath.Clean(m.Destination))
		}
	}
	return points
}

// ofDriver tells of what a GPU's driver brings along: device nodes, and files
// with its version in their names, which is the host's.
func ofDriver(path string) bool {
	name := filepath.Base(path)
	return strings.HasPrefix(path, "/dev/nvidia") || strings.Contains(name, ".so.") || strings.HasPrefix(name, "nvidia")
}

// minus returns what only the first list has, each once and in order.
func minus(a, b []string) []string {
	only := slices.DeleteFunc(slices.Clone(a), func(v string) bool { return slices.Contains(b, v) })
	slices.Sort(only)
	return slices.Compact(only)
}
