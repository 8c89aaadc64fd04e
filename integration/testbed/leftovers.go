// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// settleTimeout is how long a shim may take to exit after its last container
// was deleted.
const settleTimeout = 10 * time.Second

// Process is a process that belongs to a daemon.
type Process struct {
	PID     int
	Command string
	// Container says that the process runs in a container of the daemon, not
	// beside it.
	Container bool
}

// Leftovers waits until nothing is left of containers that were deleted, and
// else returns an error that names each thing: shims, runc, CRIU, helpers and
// loggers, processes of containers, mounts, cgroups (frozen ones are marked),
// and directories for restores.
func (d *Daemon) Leftovers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	return Eventually(ctx, "nothing is left of "+d.Namespace, func() error {
		var errs []error
		procs, err := d.Processes()
		errs = append(errs, err)
		for _, p := range procs {
			errs = append(errs, fmt.Errorf("process %d is left: %s", p.PID, p.Command))
		}
		mounts, err := d.mounts()
		errs = append(errs, err)
		for _, m := range mounts {
			errs = append(errs, fmt.Errorf("mount %s is left", m))
		}
		for _, dir := range d.containerCgroups() {
			errs = append(errs, fmt.Errorf("cgroup %s is left%s", dir, frozenMark(dir)))
		}
		for _, pattern := range []string{"state/io.containerd.runtime.v2.task/*/*", "tmp/*"} {
			left, err := filepath.Glob(filepath.Join(d.Dir, pattern))
			errs = append(errs, err)
			for _, file := range left {
				errs = append(errs, fmt.Errorf("%s is left", file))
			}
		}
		return errors.Join(errs...)
	})
}

// Processes lists what the daemon started, itself excluded: shims and
// whatever they run (by an environment variable that they inherit), and the
// processes of containers (by their cgroup).
func (d *Daemon) Processes() ([]Process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	marker := []byte(markerEnv + "=" + d.Namespace)
	var procs []Process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == d.cmd.Process.Pid || pid == os.Getpid() {
			continue
		}
		dir := filepath.Join("/proc", e.Name())
		// Processes come and go while we look: one that can't be read is gone.
		environ, _ := os.ReadFile(filepath.Join(dir, "environ"))
		cgroup, _ := os.ReadFile(filepath.Join(dir, "cgroup"))
		marked := slices.ContainsFunc(bytes.Split(environ, []byte{0}), func(e []byte) bool { return bytes.Equal(e, marker) })
		contained := bytes.Contains(cgroup, []byte("/"+d.Namespace+"/"))
		if !marked && !contained || isZombie(dir) {
			continue
		}
		procs = append(procs, Process{PID: pid, Command: commandLine(dir), Container: contained})
	}
	return procs, nil
}

// isZombie tells of processes that only wait for their parent.
func isZombie(dir string) bool {
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return true
	}
	_, rest, _ := bytes.Cut(stat, []byte(") "))
	return bytes.HasPrefix(rest, []byte("Z"))
}

func commandLine(dir string) string {
	line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
	return strings.TrimSpace(string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
}

// killMarked kills what Leftovers complained about.
func (d *Daemon) killMarked() {
	procs, _ := d.Processes()
	for _, p := range procs {
		_ = unix.Kill(p.PID, syscall.SIGKILL)
	}
}

// mounts lists what is mounted below the daemon's directory, innermost first.
func (d *Daemon) mounts() ([]string, error) {
	infos, err := mountinfo.GetMounts(mountinfo.PrefixFilter(d.Dir))
	if err != nil {
		return nil, err
	}
	var points []string
	for _, m := range infos {
		points = append(points, m.Mountpoint)
	}
	slices.Reverse(points)
	return points, nil
}

func (d *Daemon) unmountAll() error {
	mounts, err := d.mounts()
	for _, m := range mounts {
		err = errors.Join(err, unix.Unmount(m, unix.MNT_DETACH))
	}
	return err
}

// cgroups lists the cgroups of this daemon's namespace in every hierarchy,
// innermost first.
func (d *Daemon) cgroups() []string {
	var dirs []string
	for _, pattern := range []string{"/sys/fs/cgroup/" + d.Namespace, "/sys/fs/cgroup/*/" + d.Namespace} {
		roots, _ := filepath.Glob(pattern)
		for _, root := range roots {
			_ = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
				if err == nil && e.IsDir() {
					dirs = append(dirs, path)
				}
				return nil
			})
		}
	}
	slices.Reverse(dirs)
	return dirs
}

// containerCgroups is cgroups without those of the namespace itself, which
// nobody removes.
func (d *Daemon) containerCgroups() []string {
	return slices.DeleteFunc(d.cgroups(), func(dir string) bool { return filepath.Base(dir) == d.Namespace })
}

func (d *Daemon) removeCgroups() error {
	var errs []error
	for _, dir := range d.cgroups() {
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func frozenMark(dir string) string {
	v1, _ := os.ReadFile(filepath.Join(dir, "freezer.state"))
	v2, _ := os.ReadFile(filepath.Join(dir, "cgroup.freeze"))
	if strings.TrimSpace(string(v1)) == "FROZEN" || strings.TrimSpace(string(v2)) == "1" {
		return ", frozen"
	}
	return ""
}
