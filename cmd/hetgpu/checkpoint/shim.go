// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/v2/pkg/shim"
	"github.com/containerd/ttrpc"
)

const (
	// bootstrapName is the file of a bundle in which containerd keeps how to
	// reach the shim (containerd 2.x, core/runtime/v2).
	bootstrapName = "bootstrap.json"
	dialTimeout   = 10 * time.Second
)

// dialShim connects to the shim of a container with that first process.
//
// containerd tells nobody where its state is. But the process is a child of its
// shim, whose working directory is a bundle: the container's own or, in a pod,
// that of the first of its containers. Beside it is the container's.
func dialShim(proc, id string, pid uint32) (taskapi.TTRPCTaskService, io.Closer, error) {
	parent, err := parentOf(proc, pid)
	if err != nil {
		return nil, nil, fmt.Errorf("find the shim of %s: %w", id, err)
	}
	cwd, err := os.Readlink(filepath.Join(proc, strconv.Itoa(parent), "cwd"))
	if err != nil {
		return nil, nil, fmt.Errorf("find the shim of %s: %w", id, err)
	}
	address, err := readBootstrap(filepath.Join(filepath.Dir(cwd), id, bootstrapName))
	if err != nil {
		return nil, nil, fmt.Errorf("find the shim of %s (process %d, in %s): %w", id, parent, cwd, err)
	}
	conn, err := shim.Connect(address, func(address string, _ time.Duration) (net.Conn, error) { return shim.AnonDialer(address, dialTimeout) })
	if err != nil {
		return nil, nil, fmt.Errorf("connect to the shim of %s: %w", id, err)
	}
	client := ttrpc.NewClient(conn)
	return taskapi.NewTTRPCTaskClient(client), client, nil
}

func parentOf(proc string, pid uint32) (int, error) {
	data, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(int(pid)), "stat"))
	if err != nil {
		return 0, err
	}
	// The name, in parentheses, may hold anything.
	rest := data[bytes.LastIndexByte(data, ')')+1:]
	fields := strings.Fields(string(rest))
	if len(fields) < 2 {
		return 0, fmt.Errorf("process %d: its stat is %q", pid, data)
	}
	return strconv.Atoi(fields[1])
}

// readBootstrap reads the address of a shim that speaks ttrpc.
func readBootstrap(name string) (string, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	var params struct {
		Version  int    `json:"version"`
		Address  string `json:"address"`
		Protocol string `json:"protocol"`
	}
	if err := json.Unmarshal(data, &params); err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	const taskVersion = 3
	if params.Address == "" || params.Protocol != "ttrpc" || params.Version != taskVersion {
		return "", errors.New(name + ": it is no shim that speaks version 3 over ttrpc")
	}
	return params.Address, nil
}
