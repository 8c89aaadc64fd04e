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
const settleTimeout = 30 * time.Second

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
//
// A thing is named once: what one caller was told of does not fail the next.
func (d *Daemon) Leftovers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	var left []string
	err := Eventually(ctx, "nothing is left of "+d.marker, func() (err error) {
		left, err = d.left()
		left = slices.DeleteFunc(left, func(thing string) bool { return d.told[thing] })
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("left behind:\n%s", strings.Join(left, "\n"))
		}
		return err
	})
	for _, thing := range left {
		d.told[thing] = true
	}
	return err
}

// left lists what there is at this moment.
func (d *Daemon) left() (things []string, err error) {
	procs, err := d.Processes()
	for _, p := range procs {
		things = append(things, fmt.Sprintf("process %d: %s", p.PID, p.Command))
	}
	mounts, mountErr := d.mounts()
	for _, m := range mounts {
		things = append(things, "mount "+m)
	}
	for _, dir := range d.containerCgroups() {
		things = append(things, "cgroup "+dir+frozenMark(dir))
	}
	for _, pattern := range []string{"state/io.containerd.runtime.v2.task/*/*", "tmp/*"} {
		files, globErr := filepath.Glob(filepath.Join(d.Dir, pattern))
		things, err = append(things, files...), errors.Join(err, globErr)
	}
	return things, errors.Join(err, mountErr)
}

// Processes lists what the daemon started, itself excluded: shims and
// whatever they run (by an environment variable that they inherit), CRIU,
// which overwrites its environment (by its open files), and the processes of
// containers (by their cgroup).
func (d *Daemon) Processes() ([]Process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	marker := []byte(markerEnv + "=" + d.marker)
	var procs []Process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == d.process.cmd.Process.Pid || pid == os.Getpid() {
			continue
		}
		dir := filepath.Join("/proc", e.Name())
		// Processes come and go while we look: one that can't be read is gone.
		environ, _ := os.ReadFile(filepath.Join(dir, "environ"))
		cgroup, _ := os.ReadFile(filepath.Join(dir, "cgroup"))
		marked := slices.ContainsFunc(bytes.Split(environ, []byte{0}), func(e []byte) bool { return bytes.Equal(e, marker) })
		contained := bytes.Contains(cgroup, []byte("/"+d.marker+"/"))
		contained = contained || d.rootIsOurs(dir)
		marked = marked || d.isOurCRIU(dir)
		if !marked && !contained || isZombie(dir) {
			continue
		}
		procs = append(procs, Process{PID: pid, Command: commandLine(dir), Container: contained})
	}
	return procs, nil
}

// isOurCRIU tells whether a process is a CRIU with a file of this daemon open:
// its log, or the images.
func (d *Daemon) isOurCRIU(dir string) bool {
	name, err := os.ReadFile(filepath.Join(dir, "comm"))
	if err != nil || strings.TrimSpace(string(name)) != "criu" {
		return false
	}
	links, _ := filepath.Glob(filepath.Join(dir, "fd", "*"))
	return slices.ContainsFunc(links, func(link string) bool {
		file, err := os.Readlink(link)
		return err == nil && strings.HasPrefix(file, d.Dir+"/")
	})
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
	for _, pattern := range []string{"/sys/fs/cgroup/" + d.marker, "/sys/fs/cgroup/*/" + d.marker} {
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
	ours := slices.DeleteFunc(d.cgroups(), func(dir string) bool { return filepath.Base(dir) == d.marker })
	return append(ours, d.podCgroups()...)
}

// podCgroups lists the cgroups of the containers of a kubelet's pods that were
// removed.
func (d *Daemon) podCgroups() (dirs []string) {
	for _, id := range d.ids {
		for _, pattern := range []string{"/sys/fs/cgroup/" + id, "/sys/fs/cgroup/*/" + id} {
			found, _ := filepath.Glob(pattern)
			dirs = append(dirs, found...)
		}
	}
	return dirs
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
