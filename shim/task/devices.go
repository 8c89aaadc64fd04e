// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
)

// defaultDeviceMode is runc's for a device whose spec has none (runc 1.5,
// libcontainer/specconv).
const defaultDeviceMode = 0o666

// rewriteDevices makes a restored container's /dev that of its own spec: CRIU
// brings back the /dev of the container that was saved, and that may have had
// other GPUs. The ones that the new container does not have go: without being
// told, the driver takes the devices that a process can open one by one, and in
// a privileged container it could open them.
func rewriteDevices(pid int, devices []specs.LinuxDevice, saved []gpuplugin.Device, minors []int) error {
	root, err := os.OpenRoot(filepath.Join("/proc", strconv.Itoa(pid), "root"))
	if err != nil {
		return fmt.Errorf("rewrite the container's devices: %w", err)
	}
	defer func() { _ = root.Close() }()
	for _, d := range devices {
		if err := addDevice(root, d); err != nil {
			return fmt.Errorf("add the container's device %s: %w", d.Path, err)
		}
	}
	if len(minors) == 0 {
		return nil // a hook decides what it has
	}
	for _, d := range saved {
		name := fmt.Sprintf("dev/nvidia%d", d.Minor)
		info, err := root.Lstat(name)
		if slices.Contains(minors, d.Minor) || err != nil || info.Mode()&os.ModeCharDevice == 0 {
			continue
		}
		if err := root.Remove(name); err != nil {
			return fmt.Errorf("remove the saved container's device /%s: %w", name, err)
		}
	}
	return nil
}

// addDevice makes a node that is missing, or that has the number which the device
// had on the saved container's host. The container's processes run by now, and its
// files are theirs: where one of its links is in the way, it fails, and one that
// is put there meanwhile leads nowhere outside its root.
func addDevice(root *os.Root, d specs.LinuxDevice) error {
	kind, ok := map[string]uint32{"c": unix.S_IFCHR, "u": unix.S_IFCHR, "b": unix.S_IFBLK}[d.Type]
	if !ok {
		return nil // a pipe is no device that a restore would lack
	}
	path := strings.TrimPrefix(filepath.Clean(d.Path), "/")
	number := unix.Mkdev(uint32(d.Major), uint32(d.Minor))
	info, missing := root.Lstat(path)
	if missing == nil {
		st, known := info.Sys().(*syscall.Stat_t)
		if info.Mode()&os.ModeDevice == 0 || known && st.Rdev == number && st.Mode&unix.S_IFMT == kind {
			return nil
		}
	}
	if err := noLinks(root, filepath.Dir(path)); err != nil {
		return err
	}
	if missing == nil {
		if err := root.Remove(path); err != nil {
			return err
		}
	}
	if err := root.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	dir, err := root.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	at, name := int(dir.Fd()), filepath.Base(path)
	err = unix.Mknodat(at, name, kind, int(number))
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	if err != nil {
		return err
	}
	// By the descriptor of what was made, whatever has the name by now.
	fd, err := unix.Openat(at, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	node := os.NewFile(uintptr(fd), name)
	defer node.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != kind || st.Rdev != number {
		return errors.New("the container replaced it while it was made")
	}
	return own(filepath.Join("/proc/self/fd", strconv.Itoa(fd)), d)
}

// charDevice describes one of the host's devices, for every user of a container;
// nil if the host has none.
func charDevice(path string) (*specs.LinuxDevice, error) {
	var st unix.Stat_t
	switch err := unix.Stat(path, &st); {
	case errors.Is(err, unix.ENOENT):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("the host's device %s: %w", path, err)
	case st.Mode&unix.S_IFMT != unix.S_IFCHR:
		return nil, fmt.Errorf("the host's %s is no device", path)
	}
	mode := os.FileMode(defaultDeviceMode)
	return &specs.LinuxDevice{
		Path: path, Type: "c", Major: int64(unix.Major(st.Rdev)), Minor: int64(unix.Minor(st.Rdev)), FileMode: &mode,
	}, nil
}

// noLinks fails if a directory's path, as far as it exists, has a link.
func noLinks(root *os.Root, dir string) error {
	for ; dir != "."; dir = filepath.Dir(dir) {
		if info, err := root.Lstat(dir); err == nil && info.Mode()&os.ModeSymlink != 0 {
			return fmt.Errorf("/%s is a link: %w", dir, unix.ELOOP)
		}
	}
	return nil
}

// own gives a node the owner and the mode of the spec.
func own(path string, d specs.LinuxDevice) error {
	var uid, gid int
	if d.UID != nil {
		uid = int(*d.UID)
	}
	if d.GID != nil {
		gid = int(*d.GID)
	}
	mode := os.FileMode(defaultDeviceMode)
	if d.FileMode != nil {
		mode = cmp.Or(d.FileMode.Perm(), mode)
	}
	return errors.Join(os.Chown(path, uid, gid), os.Chmod(path, mode))
}
