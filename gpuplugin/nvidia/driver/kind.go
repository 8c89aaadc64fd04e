// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
)

// fileKind is what a descriptor is of: the type of its file, and the driver of a
// device or the file system of anything else. Driver 580 makes descriptors of
// device memory on /dev/nvidiactl; another one may make others.
type fileKind struct {
	mode                    uint16
	major, fsMajor, fsMinor uint32
}

// kindOf asks for what is known here: the server of a file system, which may be
// the container, is not waited for.
func kindOf(fd int) (fileKind, error) {
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &st); err != nil {
		return fileKind{}, fmt.Errorf("statx: %w", err)
	}
	k := fileKind{mode: st.Mode & unix.S_IFMT}
	if k.mode == unix.S_IFCHR {
		k.major = st.Rdev_major
	} else {
		k.fsMajor, k.fsMinor = st.Dev_major, st.Dev_minor
	}
	return k, nil
}

// learnKind finds out what the driver makes descriptors of, by making one.
func (g *GPU) learnKind() (err error) {
	h, err := g.Create(g.granularity)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Release(h)) }()
	fd, err := g.Export(h)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	g.kind, err = kindOf(fd)
	return err
}

// refuseKind fails for a descriptor that the driver has not made.
func (g *GPU) refuseKind(fd int) error {
	kind, err := kindOf(fd)
	if err == nil && kind != g.kind {
		err = fmt.Errorf("of a file with type %#o, not of device memory", kind.mode)
	}
	if err != nil {
		return &helperapi.Error{Call: symbols[symMemImport].name, Detail: fmt.Sprintf("a descriptor %v", err)}
	}
	return nil
}
