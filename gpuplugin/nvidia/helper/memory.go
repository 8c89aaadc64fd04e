// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package helper

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
)

// operations are the calls that Cancel can end, by their callers' numbers.
type operations struct {
	mu      sync.Mutex
	cancels map[uint64]context.CancelFunc
}

// begin makes the context of an operation. Number 0 is one that nobody cancels.
func (o *operations) begin(ctx context.Context, number uint64) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if number == 0 {
		return ctx, cancel
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.cancels[number] = cancel
	return ctx, func() {
		cancel()
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.cancels, number)
	}
}

func (o *operations) cancel(number uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if cancel, ok := o.cancels[number]; ok {
		cancel()
	}
}

// Clients implements helperapi.GPUService.
func (s service) Clients(ctx context.Context, req *helperapi.ClientsRequest) (*helperapi.ClientsResponse, error) {
	clients, err := s.memory.Clients(ctx, req.GetDir())
	resp := &helperapi.ClientsResponse{Failure: failure(err)}
	for _, c := range clients {
		resp.Clients = append(resp.Clients, &helperapi.Client{
			Pid: int32(c.PID), State: string(c.State), Version: c.Version, Build: c.Build,
			Driver: int32(c.Driver), Chunks: uint32(c.Chunks), Bytes: c.Bytes, Steps: c.Steps, Detail: c.Detail,
		})
	}
	return resp, nil
}

// Prepare implements helperapi.GPUService.
func (s service) Prepare(ctx context.Context, req *helperapi.PrepareRequest) (*helperapi.OperationResponse, error) {
	ctx, end := s.operations.begin(ctx, req.GetOperation())
	defer end()
	if p, ok := s.memory.(nvidia.Preparer); ok {
		return answerMove(p.Prepare(ctx, req.GetDevices()))
	}
	return answer(nil)
}

// Hold implements helperapi.GPUService.
func (s service) Hold(ctx context.Context, req *helperapi.ClientRequest) (*helperapi.OperationResponse, error) {
	return answerMove(s.memory.Hold(ctx, req.GetDir(), int(req.GetPid()), time.Duration(req.GetTimeoutMs())*time.Millisecond))
}

// HoldTogether implements helperapi.GPUService.
func (s service) HoldTogether(ctx context.Context, req *helperapi.HoldTogetherRequest) (*helperapi.OperationResponse, error) {
	ctx, end := s.operations.begin(ctx, req.GetOperation())
	defer end()
	pids := make([]int, 0, len(req.GetPids()))
	for _, pid := range req.GetPids() {
		pids = append(pids, int(pid))
	}
	return answerMove(s.memory.HoldTogether(ctx, req.GetDir(), pids, time.Duration(req.GetTimeoutMs())*time.Millisecond))
}

// Release implements helperapi.GPUService.
func (s service) Release(ctx context.Context, req *helperapi.ClientRequest) (*helperapi.OperationResponse, error) {
	return answerMove(s.memory.Release(ctx, req.GetDir(), int(req.GetPid())))
}

// Park implements helperapi.GPUService.
func (s service) Park(ctx context.Context, req *helperapi.ParkRequest) (*helperapi.ParkResponse, error) {
	ctx, end := s.operations.begin(ctx, req.GetOperation())
	defer end()
	parked, err := s.memory.Park(ctx, nvidia.ParkRequest{
		Dir: req.GetDir(), PID: int(req.GetPid()), Parcel: req.GetParcel(), Devices: req.GetDevices(),
	})
	return &helperapi.ParkResponse{
		Failure: failure(err), Chunks: uint32(parked.Chunks), Bytes: maps.Clone(parked.Bytes),
	}, nil
}

// Commit implements helperapi.GPUService.
func (s service) Commit(ctx context.Context, req *helperapi.ParcelsRequest) (*helperapi.OperationResponse, error) {
	ctx, end := s.operations.begin(ctx, req.GetOperation())
	defer end()
	return answerMove(s.memory.Commit(ctx, slices.Clone(req.GetParcels())))
}

// Duplicate implements helperapi.GPUService.
func (s service) Duplicate(ctx context.Context, req *helperapi.ParcelsRequest) (*helperapi.DuplicateResponse, error) {
	ctx, end := s.operations.begin(ctx, req.GetOperation())
	defer end()
	done, err := s.memory.Duplicate(ctx, slices.Clone(req.GetParcels()))
	return &helperapi.DuplicateResponse{Failure: failure(err), Done: done}, nil
}

// Unpark implements helperapi.GPUService.
func (s service) Unpark(ctx context.Context, req *helperapi.ClientRequest) (*helperapi.OperationResponse, error) {
	return answerMove(s.memory.Unpark(ctx, req.GetDir(), int(req.GetPid()), req.GetParcel()))
}

// Save implements helperapi.GPUService.
func (s service) Save(ctx context.Context, req *helperapi.SaveRequest) (*helperapi.SaveResponse, error) {
	ctx, end := s.operations.begin(ctx, req.GetOperation())
	defer end()
	saved, err := s.memory.Save(ctx, nvidia.SaveRequest{Dir: req.GetDir(), Parcels: req.GetParcels(), Parent: req.GetParent()})
	resp := &helperapi.SaveResponse{
		Failure: failure(err), Bytes: saved.Bytes, Stored: saved.Stored, Zero: saved.Zero, Reused: saved.Reused,
		Phases: phases(saved.Phases), KeyId: saved.KeyID,
	}
	for _, f := range saved.Files {
		resp.Files = append(resp.Files, &helperapi.SavedFile{Name: f.Name, Size: f.Size})
	}
	return resp, nil
}

// Load implements helperapi.GPUService.
func (s service) Load(ctx context.Context, req *helperapi.LoadRequest) (*helperapi.LoadResponse, error) {
	ctx, end := s.operations.begin(ctx, req.GetOperation())
	defer end()
	loaded, err := s.memory.Load(ctx, nvidia.LoadRequest{
		Dir: req.GetDir(), Parcels: req.GetParcels(), Devices: gpuplugin.DeviceMap(req.GetDevices()),
	})
	return &helperapi.LoadResponse{
		Failure: failure(err), Bytes: loaded.Bytes, Read: loaded.Read, Phases: phases(loaded.Phases),
	}, nil
}

// storer is what has custom storage; without one, no process has.
func (s service) storer() (nvidia.Storer, error) {
	if storer, ok := s.memory.(nvidia.Storer); ok {
		return storer, nil
	}
	return nil, &helperapi.Error{Class: helperapi.Class_CLASS_UNSUPPORTED, Call: "custom storage"}
}

// Map implements helperapi.GPUService.
func (s service) Map(ctx context.Context, req *helperapi.MapRequest) (*helperapi.ParkResponse, error) {
	storer, err := s.storer()
	if err != nil {
		return &helperapi.ParkResponse{Failure: failure(err)}, nil
	}
	ctx, end := s.operations.begin(ctx, req.GetOperation())
	defer end()
	parked, err := storer.Map(ctx, nvidia.MapRequest{PID: int(req.GetPid()), Parcel: req.GetParcel(), Devices: req.GetDevices()})
	return &helperapi.ParkResponse{Failure: failure(err), Chunks: uint32(parked.Chunks), Bytes: maps.Clone(parked.Bytes)}, nil
}

// Settle implements helperapi.GPUService.
func (s service) Settle(ctx context.Context, req *helperapi.ParcelsRequest) (*helperapi.OperationResponse, error) {
	storer, err := s.storer()
	for _, parcel := range req.GetParcels() {
		if err == nil {
			err = storer.Settle(ctx, parcel)
		}
	}
	return answerMove(err)
}

// Fill implements helperapi.GPUService.
func (s service) Fill(ctx context.Context, req *helperapi.FillRequest) (*helperapi.OperationResponse, error) {
	storer, err := s.storer()
	if err != nil {
		return answerMove(err)
	}
	ctx, end := s.operations.begin(ctx, req.GetOperation())
	defer end()
	return answerMove(storer.Fill(ctx, nvidia.FillRequest{
		PID: int(req.GetPid()), Parcel: req.GetParcel(), Dir: req.GetDir(), Process: int(req.GetProcess()),
		Map: gpuplugin.DeviceMap(req.GetMap()), Devices: req.GetDevices(),
	}))
}

// Drop implements helperapi.GPUService.
func (s service) Drop(ctx context.Context, req *helperapi.ParcelsRequest) (*helperapi.OperationResponse, error) {
	return answerMove(s.memory.Drop(ctx, req.GetParcels()))
}

// Keep implements helperapi.GPUService.
func (s service) Keep(ctx context.Context, req *helperapi.KeepRequest) (*helperapi.KeepResponse, error) {
	ctx, end := s.operations.begin(ctx, req.GetOperation())
	defer end()
	kept, err := s.memory.Keep(ctx, nvidia.KeepRequest{Home: req.GetHome(), Keeper: req.GetKeeper(), Parcels: req.GetParcels()})
	return &helperapi.KeepResponse{Failure: failure(err), Digest: kept.Digest, Bytes: kept.Bytes}, nil
}

// Fetch implements helperapi.GPUService.
func (s service) Fetch(ctx context.Context, req *helperapi.FetchRequest) (*helperapi.FetchResponse, error) {
	ctx, end := s.operations.begin(ctx, req.GetOperation())
	defer end()
	kept, err := s.memory.Fetch(ctx, nvidia.FetchRequest{
		KeepRequest: nvidia.KeepRequest{Home: req.GetHome(), Keeper: req.GetKeeper(), Parcels: req.GetParcels()},
		Digest:      req.GetDigest(), By: req.GetBy(),
	})
	return &helperapi.FetchResponse{Failure: failure(err), Bytes: kept.Bytes}, nil
}

// Spend implements helperapi.GPUService.
func (s service) Spend(ctx context.Context, req *helperapi.SpendRequest) (*helperapi.OperationResponse, error) {
	ctx, end := s.operations.begin(ctx, req.GetOperation())
	defer end()
	return answerMove(s.memory.Spend(ctx, req.GetKeeper(), req.GetBy()))
}

// Progress implements helperapi.GPUService.
func (s service) Progress(ctx context.Context, req *helperapi.ProgressRequest) (*helperapi.ProgressResponse, error) {
	p, err := s.memory.Progress(ctx, req.GetParcel())
	if err != nil {
		return nil, err
	}
	return &helperapi.ProgressResponse{Phase: p.Phase, Done: p.Done, Total: p.Total}, nil
}

// Cancel implements helperapi.GPUService.
func (s service) Cancel(_ context.Context, req *helperapi.CancelRequest) (*helperapi.OperationResponse, error) {
	s.operations.cancel(req.GetOperation())
	return answer(nil)
}

func phases(in []nvidia.MovePhase) []*helperapi.MovePhase {
	var out []*helperapi.MovePhase
	for _, p := range in {
		out = append(out, &helperapi.MovePhase{Name: p.Name, Nanoseconds: uint64(p.Duration)})
	}
	return out
}

func answerMove(err error) (*helperapi.OperationResponse, error) {
	return &helperapi.OperationResponse{Failure: failure(err)}, nil
}

// failure keeps what is said around the driver's or the library's word: which
// file, which chunk.
func failure(err error) *helperapi.Failure {
	f := helperapi.ToFailure(err)
	var inner *helperapi.Error
	if err == nil || !errors.As(err, &inner) || err.Error() == inner.Error() {
		return f
	}
	text := err.Error()
	// The class says its own word again on the other side.
	if class := helperapi.FromFailure(&helperapi.Failure{Class: f.GetClass()}).Error(); class != "" {
		text = strings.TrimSuffix(text, ": "+class)
	}
	return &helperapi.Failure{Class: f.GetClass(), Detail: text}
}
