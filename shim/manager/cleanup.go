// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/pkg/shim"
	"github.com/containerd/log"
	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/hooks/controldir"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/cgroup"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/lazyregexp"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/logfields"
	"github.com/hetgpu/containerd-shim-hetgpu/oci"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/runc"
)

// cleanupTimeout bounds the end of processes that were sent SIGKILL.
const cleanupTimeout = 10 * time.Second

// Stop cleans up after a shim that has gone. One that was killed during a
// checkpoint or a restore leaves processes frozen, which runc would wait for in
// vain, and perhaps a CRIU that still holds them.
//
// containerd asks for it after every container, and whoever removes one waits:
// where no operation was cut short, it costs one look.
func (h *hetgpu) Stop(ctx context.Context, id string) (shim.StopStatus, error) {
	cwd, err := os.Getwd()
	if err != nil {
		return shim.StopStatus{}, err
	}
	bundle := filepath.Join(filepath.Dir(cwd), id)
	if _, err := os.Lstat(filepath.Join(bundle, runc.CRIUConfigName)); err == nil {
		if err := endProcesses(ctx, bundle); err != nil {
			log.G(ctx).WithError(err).WithField(logfields.ID, id).Warn("not all processes of the container could be ended")
		}
	}
	// One that was killed leaves it mounted, and containerd could not remove it.
	if err := controldir.Remove(bundle); err != nil {
		log.G(ctx).WithError(err).WithField(logfields.ID, id).Warn("the container's bundle can't be removed")
	}
	return h.Shim.Stop(ctx, id)
}

// endProcesses ends what is left of the container, if its cgroup is its alone:
// a path that has the container's id as its last part.
func endProcesses(ctx context.Context, bundle string) error {
	spec, err := oci.Load(bundle)
	if err != nil || filepath.Base(spec.Linux.CgroupsPath) != filepath.Base(bundle) {
		return err
	}
	groups, err := cgroup.At(spec.Linux.CgroupsPath)
	if err != nil {
		return err
	}
	pids, err := groups.PIDs()
	errs := []error{err, endCRIU(ctx, "/proc", pids)}
	ctx, cancel := context.WithTimeoutCause(ctx, cleanupTimeout, fmt.Errorf("not done within %s", cleanupTimeout))
	defer cancel()
	errs = append(errs, groups.Remove(ctx))
	// CRIU's view of the cgroups; its work directory is below this link.
	if work, err := filepath.EvalSymlinks(filepath.Join(bundle, "work")); err == nil {
		errs = append(errs, mount.UnmountRecursive(work, unix.MNT_DETACH))
	}
	return errors.Join(errs...)
}

// dumping matches the name that CRIU gives itself during a dump (CRIU 4.2,
// cr-service.c).
var dumping = lazyregexp.New(`^criu: dump .*-t (\d+)$`)

// endCRIU ends a CRIU that dumps one of the processes.
func endCRIU(ctx context.Context, proc string, pids []int) error {
	if len(pids) == 0 {
		return nil
	}
	names, err := filepath.Glob(filepath.Join(proc, "[0-9]*", "cmdline"))
	errs := []error{err}
	for _, name := range names {
		line, err := os.ReadFile(name)
		if err != nil {
			continue // it has gone
		}
		title := dumping.FindStringSubmatch(strings.TrimRight(string(line), "\x00 "))
		if title == nil {
			continue
		}
		target, err := strconv.Atoi(title[1])
		if err != nil || !slices.Contains(pids, target) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err == nil {
			log.G(ctx).WithField(logfields.PID, pid).Warn("ending a CRIU whose shim has gone")
			err = unix.Kill(pid, unix.SIGKILL)
		}
		if err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("end CRIU: %w", err))
		}
	}
	return errors.Join(errs...)
}
