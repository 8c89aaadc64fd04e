// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package helper

import (
	"context"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
)

// service puts a driver and what moves device memory behind the protocol.
type service struct {
	driver     Driver
	memory     nvidia.Mover
	operations *operations
}

func newService(d Driver, memory nvidia.Mover) service {
	return service{driver: d, memory: memory, operations: &operations{cancels: map[uint64]context.CancelFunc{}}}
}

var _ helperapi.GPUService = service{}

// Ping implements helperapi.GPUService.
func (s service) Ping(context.Context, *helperapi.PingRequest) (*helperapi.PingResponse, error) {
	return &helperapi.PingResponse{}, nil
}

// Inventory implements helperapi.GPUService.
func (s service) Inventory(context.Context, *helperapi.InventoryRequest) (*helperapi.InventoryResponse, error) {
	return Report(s.driver), nil
}

// Report is the inventory and the list of functions. A driver that fails is in
// its failure, beside what could be found out nevertheless.
func Report(d Driver) *helperapi.InventoryResponse {
	resp := &helperapi.InventoryResponse{}
	symbols, err := d.Symbols()
	resp.Failure, resp.Symbols = helperapi.ToFailure(err), symbols
	inv, err := d.Inventory()
	if err != nil && resp.GetFailure() == nil {
		resp.Failure = helperapi.ToFailure(err)
	}
	resp.Driver, resp.Api = inv.Driver, int32(inv.API)
	for _, dev := range inv.Devices {
		resp.Devices = append(resp.Devices, helperapi.FromDevice(dev))
	}
	return resp
}

// Usage implements helperapi.GPUService.
func (s service) Usage(_ context.Context, req *helperapi.UsageRequest) (*helperapi.UsageResponse, error) {
	pids := make([]int, 0, len(req.GetPids()))
	for _, pid := range req.GetPids() {
		pids = append(pids, int(pid))
	}
	used, err := s.driver.Usage(pids)
	return &helperapi.UsageResponse{Failure: helperapi.ToFailure(err), Bytes: used}, nil
}

// State implements helperapi.GPUService.
func (s service) State(_ context.Context, req *helperapi.ProcessRequest) (*helperapi.StateResponse, error) {
	state, err := s.driver.State(int(req.GetPid()))
	return &helperapi.StateResponse{Failure: helperapi.ToFailure(err), State: string(state)}, nil
}

// Lock implements helperapi.GPUService.
func (s service) Lock(_ context.Context, req *helperapi.LockRequest) (*helperapi.OperationResponse, error) {
	return answer(s.driver.Lock(int(req.GetPid()), time.Duration(req.GetTimeoutMs())*time.Millisecond))
}

// Checkpoint implements helperapi.GPUService.
func (s service) Checkpoint(_ context.Context, req *helperapi.ProcessRequest) (*helperapi.OperationResponse, error) {
	return answer(s.driver.Checkpoint(int(req.GetPid())))
}

// Restore implements helperapi.GPUService.
func (s service) Restore(_ context.Context, req *helperapi.RestoreRequest) (*helperapi.OperationResponse, error) {
	return answer(s.driver.Restore(int(req.GetPid()), gpuplugin.DeviceMap(req.GetDevices())))
}

// Unlock implements helperapi.GPUService.
func (s service) Unlock(_ context.Context, req *helperapi.ProcessRequest) (*helperapi.OperationResponse, error) {
	return answer(s.driver.Unlock(int(req.GetPid())))
}

func answer(err error) (*helperapi.OperationResponse, error) {
	return &helperapi.OperationResponse{Failure: helperapi.ToFailure(err)}, nil
}
