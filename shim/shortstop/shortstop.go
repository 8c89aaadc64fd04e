// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package shortstop is what `hetgpu checkpoint` asks of the shim, beyond what
// containerd's client can ask for: the options of a Task.Checkpoint that is
// called on the shim itself, by a client that has not paused the task.
package shortstop

import (
	"encoding/json"
	"time"

	"google.golang.org/protobuf/types/known/anypb"
)

// ProgressName is a file that the client makes in the directory. The shim adds to
// it, and gives the checkpoint up when it is gone. It is no part of the snapshot.
const ProgressName = "hetgpu.progress"

// Options are the options of a checkpoint. They travel as JSON.
type Options struct {
	Exit bool `json:"exit,omitempty"`
	// KeepOnGPU, with Exit only, has device memory stay where it is, for a restore
	// on this host.
	KeepOnGPU      bool `json:"keep_on_gpu,omitempty"`
	TCPEstablished bool `json:"tcp_established,omitempty"`
	UnixSockets    bool `json:"external_unix_sockets,omitempty"`
	FileLocks      bool `json:"file_locks,omitempty"`
	Terminal       bool `json:"terminal,omitempty"`
	// Timeout replaces the container's, if it is above 0.
	Timeout time.Duration `json:"timeout,omitempty"`
	// Layer says that the writable layer is taken too.
	Layer bool `json:"layer,omitempty"`
	// Parent is an earlier snapshot of the container, relative to the directory of
	// this one: what has not changed is left there. "" for none.
	Parent string `json:"parent,omitempty"`
	// Container is stored as it is.
	Container json.RawMessage `json:"container,omitempty"`
}

// Event is a line of the progress.
type Event struct {
	// Phase has begun, if there is one.
	Phase string `json:"phase,omitempty"`
	// Expect is about how many bytes are going to be written.
	Expect uint64 `json:"expect,omitempty"`
}

// typeURL names the options, with the version of their form.
const typeURL = "io.hetgpu/CheckpointOptions/v1"

// Pack makes them what a request carries.
func (o *Options) Pack() (*anypb.Any, error) {
	data, err := json.Marshal(o)
	return &anypb.Any{TypeUrl: typeURL, Value: data}, err
}

// Unpack reads them, and tells whether the message is of them at all.
func (o *Options) Unpack(packed *anypb.Any) (ours bool, err error) {
	if packed.GetTypeUrl() != typeURL {
		return false, nil
	}
	return true, json.Unmarshal(packed.GetValue(), o)
}
