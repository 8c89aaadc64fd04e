// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
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
