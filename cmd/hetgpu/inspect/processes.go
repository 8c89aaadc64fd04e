// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	criu_core "github.com/checkpoint-restore/go-criu/v8/crit/images/criu-core"
	"github.com/checkpoint-restore/go-criu/v8/crit/images/pstree"
	"google.golang.org/protobuf/proto"

	"github.com/hetgpu/containerd-shim-hetgpu/internal/criuimg"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

const (
	// treeName is CRIU's image of the process tree. A core-N.img has what is
	// known of the thread N beside; a process's name is in that of its first.
	treeName   = "pstree.img"
	corePrefix = "core-"
	imgSuffix  = ".img"
	// maxImage is the largest of these images that is decoded. It has room for
	// a million threads, or for 30,000 signals that wait for a process.
	maxImage = 4 << 20
	// maxCommand is generous: the kernel's own limit is 15.
	maxCommand = 64
)

// Process is a process that CRIU saved.
type Process struct {
	// PID is the process's in the container, and PPID its parent's, 0 for the
	// first.
	PID     int    `json:"pid"`
	PPID    int    `json:"ppid"`
	Threads int    `json:"threads"`
	Command string `json:"command"`
	// GPU tells whether the manifest says that it held GPU state.
	GPU bool `json:"gpu"`

	depth int
}

// saved collects what CRIU's images say of the processes, in any order.
type saved struct {
	list     []Process
	commands map[int]string
	// err is the first thing that could not be read.
	err error
}

// isSaved tells whether a file is an image that saved reads.
func isSaved(name string) bool {
	_, isCore := coreOf(name)
	return isCore || name == treeName
}

// coreOf returns the N of a core-N.img.
func coreOf(name string) (n int, ok bool) {
	digits, isCore := strings.CutPrefix(name, corePrefix)
	digits, isImage := strings.CutSuffix(digits, imgSuffix)
	id, err := strconv.ParseUint(digits, 10, 31)
	return int(id), isCore && isImage && err == nil
}

// add decodes an image that isSaved chose; err is why it could not be read.
func (s *saved) add(name string, data []byte, err error) {
	switch id, isCore := coreOf(name); {
	case err != nil:
	case isCore:
		err = s.addCore(id, data)
	default:
		s.list, err = decodeTree(data)
	}
	if err != nil && s.err == nil {
		s.err = fmt.Errorf("%w: %s: %w", snapshot.ErrCorrupt, name, err)
	}
}

func (s *saved) addCore(id int, data []byte) error {
	var core criu_core.CoreEntry
	err := criuimg.EachMessage(data, "CORE", func(message []byte) error { return proto.Unmarshal(message, &core) })
	// Only the first thread of a process has this part.
	if err != nil || core.Tc == nil {
		return err
	}
	command := core.Tc.GetComm()
	if len(command) > maxCommand {
		return fmt.Errorf("a command of %d bytes", len(command))
	}
	if s.commands == nil {
		s.commands = map[int]string{}
	}
	s.commands[id] = command
	return nil
}

// processes returns the processes, parents before their children.
func (s *saved) processes() ([]Process, error) {
	switch {
	case s.err != nil:
		return nil, s.err
	case len(s.list) == 0:
		return nil, fmt.Errorf("%w: no process in %s", snapshot.ErrCorrupt, treeName)
	}
	for i, p := range s.list {
		command, ok := s.commands[p.PID]
		if !ok {
			return nil, fmt.Errorf("%w: %s%d%s says nothing of the process in %s", snapshot.ErrCorrupt, corePrefix, p.PID, imgSuffix, treeName)
		}
		s.list[i].Command = command
	}
	return s.list, nil
}

// decodeTree reads the tree as CRIU does at a restore, which asks of it that
// parents come first and that there is one root. So there are no cycles.
func decodeTree(data []byte) ([]Process, error) {
	var list []Process
	depths := map[int]int{}
	err := criuimg.EachMessage(data, "PSTREE", func(message []byte) error {
		var e pstree.PstreeEntry
		if err := proto.Unmarshal(message, &e); err != nil {
			return err
		}
		p := Process{PID: int(e.GetPid()), PPID: int(e.GetPpid()), Threads: len(e.GetThreads())}
		above, known := depths[p.PPID]
		switch _, twice := depths[p.PID]; {
		case p.PID == 0:
			return errors.New("a process without a PID")
		case twice:
			return fmt.Errorf("process %d is there twice", p.PID)
		case known:
			p.depth = above + 1
		case p.PPID != 0 || len(list) > 0:
			return fmt.Errorf("process %d has no parent %d", p.PID, p.PPID)
		}
		depths[p.PID] = p.depth
		list = append(list, p)
		return nil
	})
	return list, err
}

// markGPU marks the processes of which the manifest says that they held GPU
// state. A restore needs all of them.
func markGPU(list []Process, m *snapshot.Manifest) error {
	if m == nil {
		return nil
	}
	index := make(map[int]int, len(list))
	for i, p := range list {
		index[p.PID] = i
	}
	var errs []error
	for _, p := range m.Processes {
		// CRIU's PIDs are those of the container's own namespace, and it saves
		// none with others below.
		i, ok := index[p.NSPIDs[len(p.NSPIDs)-1]]
		if !ok {
			errs = append(errs, fmt.Errorf("%w: process %v (%s), which held GPU state, is not in %s", snapshot.ErrCorrupt, p.NSPIDs, p.Command, treeName))
			continue
		}
		list[i].GPU = true
	}
	return errors.Join(errs...)
}
