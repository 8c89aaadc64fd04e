// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/datapath"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/driver"
)

// machine gives the driver's devices to the data path, which must not know of
// what loads a driver.
type machine struct{ driver *driver.Driver }

// Open implements datapath.Machine.
func (m machine) Open(uuid string) (datapath.GPU, error) {
	g, err := m.driver.OpenGPU(uuid)
	if err != nil {
		return nil, err
	}
	return gpu{g}, nil
}

// BeginCheckpoint implements datapath.Storage.
func (m machine) BeginCheckpoint(pid int) (datapath.Operation, error) {
	return begun(m.driver.BeginCheckpoint(pid))
}

// BeginRestore implements datapath.Storage.
func (m machine) BeginRestore(pid int, devices gpuplugin.DeviceMap) (datapath.Operation, error) {
	return begun(m.driver.BeginRestore(pid, devices))
}

func begun(o *driver.Operation, err error) (datapath.Operation, error) {
	if err != nil {
		return nil, err
	}
	return operation{o}, nil
}

type operation struct{ *driver.Operation }

// Views implements datapath.Operation.
func (o operation) Views() []datapath.View {
	var views []datapath.View
	for _, v := range o.Operation.Views() {
		views = append(views, datapath.View(v))
	}
	return views
}

type gpu struct{ *driver.GPU }

// NewStream implements datapath.GPU.
func (g gpu) NewStream() (datapath.Stream, error) {
	s, err := g.GPU.NewStream()
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Digest implements datapath.GPU.
func (g gpu) Digest(ranges []datapath.Range, sums []datapath.Sum) error {
	in, out := make([]driver.Range, len(ranges)), make([]driver.Sum, len(ranges))
	for i, r := range ranges {
		in[i] = driver.Range(r)
	}
	if err := g.GPU.Digest(in, out); err != nil {
		return err
	}
	for i, s := range out {
		sums[i] = datapath.Sum{A: s.A, B: s.B, Seen: s.Seen}
	}
	return nil
}
