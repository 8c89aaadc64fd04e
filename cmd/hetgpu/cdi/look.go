// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/driverlibs"
)

// Roots are where a host's files are, "/" both times where the driver is
// installed on the host itself.
type Roots struct {
	// Driver has the driver's libraries and programs, as in a container that
	// installs drivers (/run/nvidia/driver).
	Driver string
	// Dev has the directory dev with the device nodes.
	Dev string
}

// Look adds to a host what is in its files: nodes, libraries and programs.
func (h *Host) Look(ctx context.Context, inventory gpuplugin.Inventory, roots Roots) error {
	if inventory.Driver == "" {
		return errors.New("the driver's version is not known")
	}
	h.Driver, h.GPUs = inventory.Driver, inventory.Devices
	names := controlNodes
	for _, gpu := range h.GPUs {
		names = append(slices.Clip(names), "/dev/nvidia"+strconv.Itoa(gpu.Minor))
	}
	h.Nodes = map[string]string{}
	for _, name := range names {
		// CDI takes no link for a device.
		file, err := filepath.EvalSymlinks(filepath.Join(roots.Dev, name))
		if err == nil {
			h.Nodes[name] = file
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if _, err := os.Stat(userfaultfd); err == nil && h.Userfaultfd {
		h.Nodes[userfaultfd] = userfaultfd
	}
	var err error
	if h.Libraries, err = driverlibs.Find(roots.Driver, driverlibs.Dirs(ctx, roots.Driver), h.Driver); err != nil {
		return err
	}
	for _, dir := range []string{"/usr/bin", "/usr/local/bin", "/bin", "/usr/local/nvidia/bin", "/opt/bin", "/run/current-system/sw/bin"} {
		file := filepath.Join(roots.Driver, dir, "nvidia-smi")
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
			h.Programs = []string{file}
			break
		}
	}
	for _, file := range []string{filepath.Join(h.Library, libraryName), h.Hook} {
		if info, err := os.Stat(file); err != nil {
			return fmt.Errorf("`make install` installs it: %w", err)
		} else if !info.Mode().IsRegular() {
			return fmt.Errorf("%s is not a file", file)
		}
	}
	return nil
}
