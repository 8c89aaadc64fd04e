// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package cgroup freezes and thaws a container's processes and lists them, on
// the unified hierarchy and on version 1.
//
// github.com/containerd/cgroups does it too, but waits without a context, and
// on the unified hierarchy for the request to be written, not for the processes
// to be frozen. runc does it by a program start, which costs as much as a
// driver's lock. The package holds no lock.
package cgroup

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Root is where distributions mount the hierarchies.
const Root = "/sys/fs/cgroup"

// poll is how often a change of the freezer is looked for. The kernel tells of
// it by a file notification on the unified hierarchy only.
const poll = time.Millisecond

// killFreeze is how long a kill waits for the processes to stand still.
const killFreeze = time.Second

// Cgroup is the control group of one container.
type Cgroup struct {
	dir     string
	unified bool
}

// Of returns the control group in which the kernel can freeze the process.
//
// As runc does, it goes by what is mounted at [Root]: on a hybrid machine, which
// has the unified hierarchy one level below, version 1 is in charge.
func Of(pid int) (*Cgroup, error) {
	unified, err := isUnified()
	if err != nil {
		return nil, fmt.Errorf("find the cgroup of process %d: %w", pid, err)
	}
	return of("/proc", Root, pid, unified)
}

func isUnified() (bool, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(Root, &fs); err != nil {
		return false, fmt.Errorf("%s: %w", Root, err)
	}
	return fs.Type == unix.CGROUP2_SUPER_MAGIC, nil
}

func of(proc, root string, pid int, unified bool) (*Cgroup, error) {
	name := filepath.Join(proc, strconv.Itoa(pid), "cgroup")
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("find the cgroup of process %d: %w", pid, err)
	}
	for line := range strings.Lines(string(data)) {
		// hierarchy-ID:controller-list:path (cgroups(7)); the path may contain colons.
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 {
			return nil, fmt.Errorf("find the cgroup of process %d: %s: bad line %q", pid, name, line)
		}
		switch {
		case unified && parts[1] == "":
			return &Cgroup{dir: filepath.Join(root, parts[2]), unified: true}, nil
		case !unified && parts[1] == "freezer":
			return &Cgroup{dir: filepath.Join(root, "freezer", parts[2])}, nil
		}
	}
	return nil, fmt.Errorf("find the cgroup of process %d: %s names no freezer", pid, name)
}

// Named returns the process's group or, if that lies below it, the one that
// runc made for the container: programs such as systemd and docker:dind move
// themselves into groups of their own. The path is the spec's cgroupsPath,
// PATH/NAME or SLICE:PREFIX:NAME (runc, docs/systemd.md); of it only the last
// directory counts. Where that is not found, the answer is that of [Of].
func Named(pid int, cgroupsPath string) (*Cgroup, error) {
	c, err := Of(pid)
	if err != nil {
		return nil, err
	}
	return c.named(cgroupsPath), nil
}

func (c *Cgroup) named(cgroupsPath string) *Cgroup {
	name := filepath.Base(cgroupsPath)
	if parts := strings.Split(cgroupsPath, ":"); len(parts) == 3 && !strings.Contains(cgroupsPath, "/") {
		name = parts[1] + "-" + parts[2] + ".scope"
	}
	for dir := c.dir; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if filepath.Base(dir) == name {
			return &Cgroup{dir: dir, unified: c.unified}
		}
	}
	return c
}

// Path returns the group's directory.
func (c *Cgroup) Path() string { return c.dir }

// Unified says whether the group is on the unified hierarchy (version 2).
func (c *Cgroup) Unified() bool { return c.unified }

// Frozen tells whether the processes are frozen, or about to be.
func (c *Cgroup) Frozen() (bool, error) {
	file, thawed := "freezer.state", "THAWED"
	if c.unified {
		file, thawed = "cgroup.freeze", "0"
	}
	data, err := os.ReadFile(filepath.Join(c.dir, file))
	if err != nil {
		return false, fmt.Errorf("read the freezer: %w", err)
	}
	return strings.TrimSpace(string(data)) != thawed, nil
}

// Freeze returns once every process of the group stands still.
func (c *Cgroup) Freeze(ctx context.Context) error { return c.set(ctx, true) }

// Thaw lets the processes run.
func (c *Cgroup) Thaw(ctx context.Context) error { return c.set(ctx, false) }

func (c *Cgroup) set(ctx context.Context, frozen bool) error {
	verb, file, value := "thaw", "freezer.state", "THAWED"
	switch {
	case c.unified && frozen:
		verb, file, value = "freeze", "cgroup.freeze", "1"
	case c.unified:
		file, value = "cgroup.freeze", "0"
	case frozen:
		verb, value = "freeze", "FROZEN"
	}
	for {
		// Version 1 may need the request again while processes fork.
		if err := os.WriteFile(filepath.Join(c.dir, file), []byte(value), 0); err != nil {
			return fmt.Errorf("%s: %w", verb, err)
		}
		done, err := c.settled(frozen)
		if err != nil {
			return fmt.Errorf("%s: %w", verb, err)
		}
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s %s: %w", verb, c.dir, context.Cause(ctx))
		case <-time.After(poll):
		}
	}
}

func (c *Cgroup) settled(frozen bool) (bool, error) {
	if !c.unified {
		data, err := os.ReadFile(filepath.Join(c.dir, "freezer.state"))
		return (strings.TrimSpace(string(data)) == "FROZEN") == frozen && !strings.HasPrefix(string(data), "FREEZING"), err
	}
	data, err := os.ReadFile(filepath.Join(c.dir, "cgroup.events"))
	want := "frozen 0"
	if frozen {
		want = "frozen 1"
	}
	return strings.Contains(string(data), want), err
}

// Kill sends SIGKILL to every process of the group and leaves it thawed. It
// freezes them first, so that none can fork away; one that can't be frozen in
// time, in a driver's call perhaps, gets the signal all the same. A group that is
// gone has no processes.
func (c *Cgroup) Kill(ctx context.Context) error {
	fctx, cancel := context.WithTimeoutCause(ctx, killFreeze, fmt.Errorf("not frozen within %s", killFreeze))
	defer cancel()
	// Not being able to freeze them is no reason to let them live.
	_ = c.Freeze(fctx)
	pids, err := c.PIDs()
	errs := []error{err}
	for _, pid := range pids {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("kill process %d: %w", pid, err))
		}
	}
	// On version 1 a frozen process dies once it is thawed.
	if err := c.Thaw(ctx); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENODEV) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Fresh returns the groups that runc will make for a container with this
// cgroupsPath, if none of them is there yet: what is found there later is that
// container's. It has none where one exists already (another container may be in
// it) and for a path of systemd's, which removes scopes that are empty.
func Fresh(cgroupsPath string) (Groups, error) {
	unified, err := isUnified()
	if err != nil || !filepath.IsAbs(cgroupsPath) || filepath.Clean(cgroupsPath) == "/" {
		return nil, err
	}
	return fresh(Root, filepath.Clean(cgroupsPath), unified)
}

func fresh(root, path string, unified bool) (Groups, error) {
	groups, err := at(root, path, unified)
	for _, g := range groups {
		if _, err := os.Lstat(g.dir); !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return groups, err
}

// At returns the groups of a cgroupsPath, there or not; none for a path of
// systemd's.
func At(cgroupsPath string) (Groups, error) {
	unified, err := isUnified()
	if err != nil || !filepath.IsAbs(cgroupsPath) || filepath.Clean(cgroupsPath) == "/" {
		return nil, err
	}
	return at(Root, filepath.Clean(cgroupsPath), unified)
}

func at(root, path string, unified bool) (Groups, error) {
	hierarchies := []string{root}
	if !unified {
		var err error
		if hierarchies, err = filepath.Glob(filepath.Join(root, "*")); err != nil {
			return nil, err
		}
	}
	groups := make(Groups, 0, len(hierarchies))
	for _, h := range hierarchies {
		groups = append(groups, &Cgroup{dir: h + path, unified: unified})
	}
	return groups, nil
}

// Groups are a container's, one in each hierarchy.
type Groups []*Cgroup

// PIDs returns every process in any of the groups.
func (g Groups) PIDs() ([]int, error) {
	var pids []int
	var errs []error
	for _, c := range g {
		if !c.unified && !c.hasFreezer() {
			continue
		}
		in, err := c.PIDs()
		pids = append(pids, in...)
		errs = append(errs, err)
	}
	return pids, errors.Join(errs...)
}

// Remove ends the processes in the groups and removes the groups, as far as they
// are there.
func (g Groups) Remove(ctx context.Context) error {
	var errs []error
	for _, c := range g {
		if c.unified || c.hasFreezer() {
			errs = append(errs, c.Kill(ctx))
		}
	}
	for _, c := range g {
		errs = append(errs, removeGroup(ctx, c.dir))
	}
	return errors.Join(errs...)
}

// hasFreezer tells whether a group of version 1 is the freezer's.
func (c *Cgroup) hasFreezer() bool {
	_, err := os.Stat(filepath.Join(c.dir, "freezer.state"))
	return err == nil
}

// removeGroup waits until the processes that were killed have gone.
func removeGroup(ctx context.Context, dir string) error {
	for {
		err := unix.Rmdir(dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("remove the cgroup %s: %w", dir, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("remove the cgroup %s: %w: %w", dir, err, context.Cause(ctx))
		case <-time.After(poll):
		}
	}
}

// PIDs returns every process of the group and of the groups below it, in the
// PID namespace of the caller. A group that is gone has none.
func (c *Cgroup) PIDs() ([]int, error) {
	var pids []int
	err := filepath.WalkDir(c.dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV):
			return nil
		case err != nil:
			return err
		case !entry.IsDir():
			return nil
		}
		in, err := readPIDs(filepath.Join(path, "cgroup.procs"))
		pids = append(pids, in...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the processes of %s: %w", c.dir, err)
	}
	return pids, nil
}

func readPIDs(name string) ([]int, error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var pids []int
	s := bufio.NewScanner(f)
	for s.Scan() {
		pid, err := strconv.Atoi(s.Text())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		// 0 is a process that our PID namespace has no number for.
		if pid == 0 {
			return nil, fmt.Errorf("%s has a process of another PID namespace", name)
		}
		pids = append(pids, pid)
	}
	if err := s.Err(); err != nil && !errors.Is(err, unix.ENODEV) {
		return nil, err
	}
	return pids, nil
}
