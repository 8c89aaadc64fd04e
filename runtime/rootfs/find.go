// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package rootfs takes the writable layer of a container's root file system
// while the container stands still, and makes an OCI layer of it afterwards.
//
// What is said about files is kept in memory, and their contents in one file
// without a name. So nothing is left if the program ends, and the file system
// that holds the contents need not know owners, links or extended attributes.
//
// It must not know of containerd.
package rootfs

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
)

var (
	// ErrNotOverlay means that the root has no writable layer of its own.
	ErrNotOverlay = errors.New("the container's root is no overlay")
	// ErrLayer means that the writable layer can't be said as an OCI layer.
	ErrLayer = errors.New("the writable layer can't be saved")
)

// Upper returns the directory with all that a container changed in its root
// file system, which is mounted at root. It is "" if nothing can be changed.
func Upper(root string) (string, error) {
	root, err := filepath.EvalSymlinks(root)
	if err != nil {
		return "", fmt.Errorf("find the container's root: %w", err)
	}
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) { return m.Mountpoint != root, false })
	if err != nil {
		return "", fmt.Errorf("find the container's root: %w", err)
	}
	if len(mounts) == 0 {
		return "", fmt.Errorf("%w: nothing is mounted at %s", ErrNotOverlay, root)
	}
	return upper(mounts[len(mounts)-1]) // the one on top
}

func upper(m *mountinfo.Info) (string, error) {
	if m.FSType != "overlay" {
		return "", fmt.Errorf("%w: %s is mounted from %s (%s)", ErrNotOverlay, m.Mountpoint, m.Source, m.FSType)
	}
	dir := ""
	for option := range strings.SplitSeq(m.VFSOptions, ",") {
		key, value, _ := strings.Cut(option, "=")
		if key == "upperdir" {
			dir = unescape(value)
		}
	}
	if dir != "" && !filepath.IsAbs(dir) {
		return "", fmt.Errorf("%w with a path that can be told: its upper directory is %s", ErrNotOverlay, dir)
	}
	return dir, nil
}

// unescape undoes the kernel's octal escapes for option values, which mountinfo
// undoes for paths only.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) && isOctal(s[i+1]) && isOctal(s[i+2]) && isOctal(s[i+3]) {
			b.WriteByte((s[i+1]-'0')<<6 | (s[i+2]-'0')<<3 | (s[i+3] - '0'))
			i += 3
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func isOctal(c byte) bool { return '0' <= c && c <= '7' }
