// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/oci"
)

// nameHost gives a restored container its own hostname: CRIU restores the one
// that was saved. A container without GPU state may have come to its end.
func (c *container) nameHost(pid int) error {
	m := c.restore.Manifest()
	if m == nil || !c.ownUTS || c.saved.Hostname == "" || c.saved.Hostname == m.Container.Hostname {
		return nil
	}
	err := setHostname(pid, c.saved.Hostname)
	switch {
	case err == nil:
		return nil
	case !c.restore.HasGPU() && ended(err):
		return nil
	}
	return fmt.Errorf("set the hostname %s: %w", c.saved.Hostname, err)
}

// namePod gives the pod its hostname back. A restored container joins the pod's
// namespaces (runc 1.5, libcontainer/criu_linux.go), and CRIU gives the one of
// hostnames the name that it had when the container was saved.
func (c *container) namePod() error {
	if c.podUTS == "" || c.sandbox == "" {
		return nil
	}
	own, err := os.Stat("/proc/self/ns/uts")
	if err != nil {
		return err
	}
	if pods, err := os.Stat(c.podUTS); err != nil || os.SameFile(own, pods) {
		return err // the host's, which CRIU leaves alone
	}
	sandbox, err := oci.Load(filepath.Join(filepath.Dir(c.bundle), c.sandbox))
	if err != nil {
		return err
	}
	return inUTS(c.podUTS, sethostname(sandbox.Hostname))
}

// setHostname sets the hostname in the UTS namespace of a process.
func setHostname(pid int, name string) error {
	return inUTS(filepath.Join("/proc", strconv.Itoa(pid), "ns", "uts"), sethostname(name))
}

func sethostname(name string) func() error {
	return func() error { return unix.Sethostname([]byte(name)) }
}

// ended tells whether an error means that the process is there no more.
func ended(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) }

// inUTS does something in a UTS namespace.
//
// The thread that does it comes back. It must not end: children of the shim
// are told to die with the thread that started them (runc, the device helper),
// and that may have been this one. One that can't come back waits for ever.
func inUTS(path string, do func() error) error {
	result := make(chan error, 1)
	go func() {
		goruntime.LockOSThread()
		back, err := inUTSOnThread(path, do)
		result <- err
		if !back {
			select {}
		}
		goruntime.UnlockOSThread()
	}()
	return <-result
}

// inUTSOnThread needs a locked thread; back says whether that is in its own
// namespace again.
func inUTSOnThread(path string, do func() error) (back bool, err error) {
	own, err := os.Open("/proc/thread-self/ns/uts")
	if err != nil {
		return true, err
	}
	defer own.Close()
	its, err := os.Open(path)
	if err != nil {
		return true, err
	}
	defer its.Close()
	if err := unix.Setns(int(its.Fd()), unix.CLONE_NEWUTS); err != nil {
		return true, err
	}
	err = do()
	if backErr := unix.Setns(int(own.Fd()), unix.CLONE_NEWUTS); backErr != nil {
		return false, errors.Join(err, fmt.Errorf("back to the shim's own hostname: %w", backErr))
	}
	return true, err
}
