// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"path"
	"strings"
)

// Rename makes the spec of one container, as a checkpoint image carries it,
// that of another: what holds the old id as a whole name (the last part of the
// cgroup's path, the hostname, paths in annotations, log paths among them)
// holds the new one then.
//
// Old is the id of the container that was saved, namespace that of the new one.
// Where old is "", because no manifest names it, only a cgroup path in
// containerd's default form, /NAMESPACE/ID, is rewritten.
func Rename(spec *Spec, namespace, old, id string) {
	spec.SetCgroupsPath(renameCgroup(spec.Linux.CgroupsPath, namespace, old, id))
	if old == "" || old == id {
		return
	}
	// nerdctl's hostname is the id's first 12 characters.
	switch spec.Hostname {
	case old:
		spec.SetHostname(id)
	case shortID(old):
		spec.SetHostname(shortID(id))
	}
	for key, value := range spec.Annotations {
		spec.SetAnnotation(key, renamePath(value, old, id))
	}
}

// shortID is the form of an id that nerdctl and Docker show.
func shortID(id string) string { return id[:min(len(id), 12)] }

// renameCgroup knows the two forms of a path: of a file system, and
// slice:prefix:name for systemd.
func renameCgroup(cgroup, namespace, old, id string) string {
	if slice, name, ok := cutLast(cgroup, ":"); ok && !strings.Contains(cgroup, "/") {
		if name == old && old != "" {
			return slice + ":" + id
		}
		return cgroup
	}
	dir, name := path.Split(cgroup)
	switch {
	case name == "":
		return cgroup
	case name == old:
		return dir + id
	case old == "" && dir == "/"+namespace+"/":
		return dir + id
	}
	return cgroup
}

// renamePath replaces the id where it is a whole component of a path.
func renamePath(value, old, id string) string {
	if !strings.Contains(value, "/") || !strings.Contains(value, old) {
		return value
	}
	parts := strings.Split(value, "/")
	for i, part := range parts {
		switch stem, ext, _ := strings.Cut(part, "."); {
		case part == old:
			parts[i] = id
		case stem == old:
			parts[i] = id + "." + ext
		case part == old+"-json.log":
			parts[i] = id + "-json.log"
		}
	}
	return strings.Join(parts, "/")
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
