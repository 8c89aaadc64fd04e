// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// procfs reads what the kernel says of processes.
type procfs string

// status returns the named lines of /proc/PID/status. It fails with
// fs.ErrNotExist if there is no such process.
func (p procfs) status(pid int, names ...string) (map[string]string, error) {
	f, err := os.Open(filepath.Join(string(p), strconv.Itoa(pid), "status"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	values := make(map[string]string, len(names))
	s := bufio.NewScanner(f)
	for s.Scan() {
		if name, value, ok := strings.Cut(s.Text(), ":"); ok && slices.Contains(names, name) {
			values[name] = strings.TrimSpace(value)
		}
	}
	err = s.Err()
	if errors.Is(err, unix.ESRCH) { // it ended while we were reading
		err = fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return values, err
}

// alive tells whether there is such a process, and not only what its parent
// has not waited for.
func (p procfs) alive(pid int) bool {
	values, err := p.status(pid, "State")
	return err == nil && !strings.HasPrefix(values["State"], "Z") && !strings.HasPrefix(values["State"], "X")
}

// stopped fails with all processes that a signal has stopped. CRIU 4.2 seizes a
// process of a version 1 freezer while it is frozen, and waits for one that was
// stopped before for as long as it is let; on the unified hierarchy it doesn't.
func (p procfs) stopped(pids []int) error {
	var errs []error
	for _, pid := range pids {
		values, err := p.status(pid, "Name", "State")
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			errs = append(errs, err)
		} else if strings.HasPrefix(values["State"], "T") || p.stoppedFrozen(pid) {
			errs = append(errs, fmt.Errorf("process %d (%s) %w", pid, values["Name"], ErrStopped))
		}
	}
	return errors.Join(errs...)
}

// stoppedFrozen tells whether a process was stopped before it was frozen. Its
// state is that of any frozen process then, but it still waits where the stop
// made it wait (Linux, kernel/signal.c). Where the kernel does not tell, the
// checkpoint meets its time-out.
func (p procfs) stoppedFrozen(pid int) bool {
	where, err := os.ReadFile(filepath.Join(string(p), strconv.Itoa(pid), "wchan"))
	return err == nil && string(where) == "do_signal_stop"
}

// nsPIDs returns the process's PID in each PID namespace below ours, outermost
// first; its PID in ours if it is in ours.
func (p procfs) nsPIDs(pid int) ([]int, error) {
	values, err := p.status(pid, "NSpid")
	if err != nil {
		return nil, err
	}
	var pids []int
	for field := range strings.FieldsSeq(values["NSpid"]) {
		n, err := strconv.Atoi(field)
		if err != nil {
			return nil, fmt.Errorf("NSpid of process %d: %w", pid, err)
		}
		pids = append(pids, n)
	}
	switch len(pids) {
	case 0:
		return nil, fmt.Errorf("process %d has no NSpid", pid)
	case 1:
		return pids, nil
	}
	return pids[1:], nil
}

// descends tells whether the process is root or one of its descendants, which
// is what CRIU dumps: a process that entered by exec is not.
func (p procfs) descends(pid, root int) (bool, error) {
	for pid != root {
		if pid <= 1 {
			return false, nil
		}
		values, err := p.status(pid, "PPid")
		if err != nil {
			return false, err
		}
		if pid, err = strconv.Atoi(values["PPid"]); err != nil {
			return false, fmt.Errorf("PPid: %w", err)
		}
	}
	return true, nil
}

// anonymous returns the bytes of anonymous memory of the processes, which is
// the least that CRIU will write. A process that has exited has none.
func (p procfs) anonymous(pids []int) (uint64, error) {
	var sum uint64
	for _, pid := range pids {
		values, err := p.status(pid, "RssAnon")
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, err
		}
		// A kernel thread or zombie has no such line.
		if value, ok := strings.CutSuffix(values["RssAnon"], " kB"); ok {
			kb, err := strconv.ParseUint(strings.TrimSpace(value), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("RssAnon of process %d: %w", pid, err)
			}
			sum += kb << 10
		}
	}
	return sum, nil
}

// describe makes the manifest's list of the processes that hold GPU state, some
// of which are split or none, and gives each its key. The memory of those that
// are is apart, in the manifest's word for it; "" says that there are none.
func (p procfs) describe(procs []gpuplugin.Process, apart string) ([]snapshot.Process, error) {
	list := make([]snapshot.Process, 0, len(procs))
	for i, proc := range procs {
		ns, err := p.nsPIDs(proc.PID)
		if err != nil {
			return nil, err
		}
		comm, err := os.ReadFile(filepath.Join(string(p), strconv.Itoa(proc.PID), "comm"))
		if err != nil {
			return nil, err
		}
		// A lock, ours or another tool's, does not outlive a restore.
		state := proc.State
		if state == gpuplugin.StateLocked {
			state = gpuplugin.StateRunning
		}
		procs[i].Key = key(ns)
		saved := snapshot.Process{NSPIDs: ns, Command: strings.TrimSpace(string(comm)), State: state}
		switch {
		case proc.Split:
			saved.Memory = apart
		case apart != "":
			saved.Memory = snapshot.MemoryDriver
		}
		list = append(list, saved)
	}
	return list, nil
}

// key is a process's name in its container: it keeps its PIDs there.
func key(ns []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(ns), " ", "."), "[]")
}

// reason says why processes are not split that could have been, "" if there is
// none.
func reason(procs []gpuplugin.Process) string {
	byReason := map[string][]string{}
	for _, p := range procs {
		if p.Reason != "" {
			byReason[p.Reason] = append(byReason[p.Reason], p.Key)
		}
	}
	var texts []string
	for why, keys := range byReason {
		texts = append(texts, fmt.Sprintf("process %s: %s", strings.Join(keys, ", "), why))
	}
	slices.Sort(texts)
	return snapshot.Text(strings.Join(texts, "; "))
}

// find returns the host's PIDs of a manifest's processes among pids, in their
// order. It fails if one is not there.
func (p procfs) find(saved []snapshot.Process, pids []int) ([]gpuplugin.Process, error) {
	byNS := make(map[string]int, len(pids))
	for _, pid := range pids {
		ns, err := p.nsPIDs(pid)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		byNS[fmt.Sprint(ns)] = pid
	}
	procs := make([]gpuplugin.Process, 0, len(saved))
	for _, s := range saved {
		pid, ok := byNS[fmt.Sprint(s.NSPIDs)]
		if !ok {
			return nil, fmt.Errorf("%w: process %v (%s) of the snapshot, which held GPU state, is not among them", ErrProcesses, s.NSPIDs, s.Command)
		}
		proc := unplaced(s)
		proc.PID = pid
		procs = append(procs, proc)
	}
	return procs, nil
}

// unplaced is a manifest's process, which has no PID on this host yet.
func unplaced(s snapshot.Process) gpuplugin.Process {
	return gpuplugin.Process{State: s.State, Split: s.Apart(), Key: key(s.NSPIDs)}
}
