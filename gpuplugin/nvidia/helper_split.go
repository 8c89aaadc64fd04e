// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
)

var (
	_ Mover    = (*Helper)(nil)
	_ Preparer = (*Helper)(nil)
	_ Storer   = (*Helper)(nil)
)

// moverGrace is what the helper may take over the time that it was given, to
// come to the end of a call in its own way.
const moverGrace = 30 * time.Second

// operationNumbers counts what Cancel can end.
var operationNumbers atomic.Uint64

// move makes one call about device memory. Other than a call of the driver it is
// ended by the helper itself when ctx ends, so that its result is known; and a
// helper that answers a ping is never replaced, since all parcels would go with
// it.
func (h *Helper) move(ctx context.Context, what string, f func(ctx context.Context, gpu helperapi.GPUService, operation uint64) (*helperapi.Failure, error)) error {
	p, err := h.acquire(ctx)
	if err != nil {
		return err
	}
	defer h.release(p)
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", what, context.Cause(ctx))
	}
	number := operationNumbers.Add(1)
	lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { p.cancel(lasting, number, cancel) })
	defer stop()
	failure, err := f(lasting, p.gpu, number)
	switch {
	case err == nil && failure == nil:
		return nil
	case err == nil && ctx.Err() != nil:
		return fmt.Errorf("%s: %w: %w", what, context.Cause(ctx), helperapi.FromFailure(failure))
	case err == nil:
		return helperapi.FromFailure(failure)
	case lasting.Err() != nil && p.answers(ctx):
		return fmt.Errorf("%s: the device helper doesn't come to its end: %w: %w", what, helperapi.ErrNotReady, context.Cause(ctx))
	}
	p.kill()
	return fmt.Errorf("device helper died (%s) during %s, and with it all device memory that it kept: %w", p.status(), what, gpuplugin.ErrUnavailable)
}

// cancel asks the helper to end an operation until it has ended, which is when
// ctx does, and gives up waiting if it won't.
func (p *helperProcess) cancel(ctx context.Context, number uint64, giveUp context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, moverGrace)
	defer cancel()
	// Again, as the first may come before what it is to end.
	for again := time.NewTicker(100 * time.Millisecond); ; {
		// If that fails the helper is dead or doesn't answer: the time tells.
		_, _ = p.gpu.Cancel(ctx, &helperapi.CancelRequest{Operation: number})
		select {
		case <-ctx.Done():
			again.Stop()
			giveUp() // too late for an operation that has ended
			return
		case <-again.C:
		}
	}
}

// Clients implements [Mover].
func (h *Helper) Clients(ctx context.Context, dir string) ([]Client, error) {
	var resp *helperapi.ClientsResponse
	err := h.move(ctx, "list of the clients in "+dir, func(ctx context.Context, gpu helperapi.GPUService, _ uint64) (_ *helperapi.Failure, err error) {
		resp, err = gpu.Clients(ctx, &helperapi.ClientsRequest{Dir: dir})
		return resp.GetFailure(), err
	})
	if err != nil {
		return nil, err
	}
	clients := make([]Client, 0, len(resp.GetClients()))
	for _, c := range resp.GetClients() {
		clients = append(clients, Client{
			PID: int(c.GetPid()), State: ClientState(c.GetState()), Version: c.GetVersion(), Build: c.GetBuild(),
			Driver: int(c.GetDriver()), Chunks: int(c.GetChunks()), Bytes: c.GetBytes(), Steps: c.GetSteps(), Detail: c.GetDetail(),
		})
	}
	return clients, nil
}

// Prepare implements [Preparer].
func (h *Helper) Prepare(ctx context.Context, devices []string) error {
	return h.move(ctx, "preparation of devices", func(ctx context.Context, gpu helperapi.GPUService, number uint64) (*helperapi.Failure, error) {
		resp, err := gpu.Prepare(ctx, &helperapi.PrepareRequest{Devices: devices, Operation: number})
		return resp.GetFailure(), err
	})
}

// Hold implements [Mover].
func (h *Helper) Hold(ctx context.Context, dir string, pid int, timeout time.Duration) error {
	return h.moveOne(ctx, "hold", pid, func(ctx context.Context, gpu helperapi.GPUService, number uint64) (*helperapi.OperationResponse, error) {
		return gpu.Hold(ctx, &helperapi.ClientRequest{
			Dir: dir, Pid: int32(pid), TimeoutMs: uint32(max(timeout.Milliseconds(), 1)), Operation: number,
		})
	})
}

// HoldTogether implements [Mover].
func (h *Helper) HoldTogether(ctx context.Context, dir string, pids []int, timeout time.Duration) error {
	req := &helperapi.HoldTogetherRequest{Dir: dir, TimeoutMs: uint32(max(timeout.Milliseconds(), 1))}
	for _, pid := range pids {
		req.Pids = append(req.Pids, int32(pid))
	}
	return h.move(ctx, "hold", func(ctx context.Context, gpu helperapi.GPUService, number uint64) (*helperapi.Failure, error) {
		req.Operation = number
		resp, err := gpu.HoldTogether(ctx, req)
		return resp.GetFailure(), err
	})
}

// Release implements [Mover].
func (h *Helper) Release(ctx context.Context, dir string, pid int) error {
	return h.moveOne(ctx, "release", pid, func(ctx context.Context, gpu helperapi.GPUService, number uint64) (*helperapi.OperationResponse, error) {
		return gpu.Release(ctx, &helperapi.ClientRequest{Dir: dir, Pid: int32(pid), Operation: number})
	})
}

// Park implements [Mover].
func (h *Helper) Park(ctx context.Context, req ParkRequest) (Parked, error) {
	var resp *helperapi.ParkResponse
	err := h.move(ctx, about("park", req.PID), func(ctx context.Context, gpu helperapi.GPUService, number uint64) (_ *helperapi.Failure, err error) {
		resp, err = gpu.Park(ctx, &helperapi.ParkRequest{
			Dir: req.Dir, Pid: int32(req.PID), Parcel: req.Parcel, Devices: req.Devices, Operation: number,
		})
		return resp.GetFailure(), err
	})
	if err != nil {
		return Parked{}, processError(req.PID, "park", err)
	}
	return Parked{Chunks: int(resp.GetChunks()), Bytes: resp.GetBytes()}, nil
}

// Commit implements [Mover].
func (h *Helper) Commit(ctx context.Context, parcels []string) error {
	return h.move(ctx, "commit", func(ctx context.Context, gpu helperapi.GPUService, number uint64) (*helperapi.Failure, error) {
		resp, err := gpu.Commit(ctx, &helperapi.ParcelsRequest{Parcels: parcels, Operation: number})
		return resp.GetFailure(), err
	})
}

// Duplicate implements [Mover].
func (h *Helper) Duplicate(ctx context.Context, parcels []string) (bool, error) {
	var resp *helperapi.DuplicateResponse
	err := h.move(ctx, "copy of device memory", func(ctx context.Context, gpu helperapi.GPUService, number uint64) (_ *helperapi.Failure, err error) {
		resp, err = gpu.Duplicate(ctx, &helperapi.ParcelsRequest{Parcels: parcels, Operation: number})
		return resp.GetFailure(), err
	})
	return err == nil && resp.GetDone(), err
}

// Unpark implements [Mover].
func (h *Helper) Unpark(ctx context.Context, dir string, pid int, parcel string) error {
	return h.moveOne(ctx, "unpark", pid, func(ctx context.Context, gpu helperapi.GPUService, number uint64) (*helperapi.OperationResponse, error) {
		return gpu.Unpark(ctx, &helperapi.ClientRequest{Dir: dir, Pid: int32(pid), Parcel: parcel, Operation: number})
	})
}

// Save implements [Mover].
func (h *Helper) Save(ctx context.Context, req SaveRequest) (Saved, error) {
	var resp *helperapi.SaveResponse
	err := h.move(ctx, "save of device memory", func(ctx context.Context, gpu helperapi.GPUService, number uint64) (_ *helperapi.Failure, err error) {
		resp, err = gpu.Save(ctx, &helperapi.SaveRequest{Dir: req.Dir, Parcels: req.Parcels, Parent: req.Parent, Operation: number})
		return resp.GetFailure(), err
	})
	if err != nil {
		return Saved{}, err
	}
	saved := Saved{
		Bytes: resp.GetBytes(), Stored: resp.GetStored(), Zero: resp.GetZero(), Reused: resp.GetReused(),
		Phases: movePhases(resp.GetPhases()), KeyID: resp.GetKeyId(),
	}
	for _, f := range resp.GetFiles() {
		saved.Files = append(saved.Files, SavedFile{Name: f.GetName(), Size: f.GetSize()})
	}
	return saved, nil
}

// Load implements [Mover].
func (h *Helper) Load(ctx context.Context, req LoadRequest) (Loaded, error) {
	var resp *helperapi.LoadResponse
	err := h.move(ctx, "load of device memory", func(ctx context.Context, gpu helperapi.GPUService, number uint64) (_ *helperapi.Failure, err error) {
		resp, err = gpu.Load(ctx, &helperapi.LoadRequest{Dir: req.Dir, Parcels: req.Parcels, Devices: req.Devices, Operation: number})
		return resp.GetFailure(), err
	})
	if err != nil {
		return Loaded{}, err
	}
	return Loaded{Bytes: resp.GetBytes(), Read: resp.GetRead(), Phases: movePhases(resp.GetPhases())}, nil
}

// Map implements [Storer].
func (h *Helper) Map(ctx context.Context, req MapRequest) (Parked, error) {
	var resp *helperapi.ParkResponse
	err := h.move(ctx, about("checkpoint with custom storage", req.PID), func(ctx context.Context, gpu helperapi.GPUService, number uint64) (_ *helperapi.Failure, err error) {
		resp, err = gpu.Map(ctx, &helperapi.MapRequest{Pid: int32(req.PID), Parcel: req.Parcel, Devices: req.Devices, Operation: number})
		return resp.GetFailure(), err
	})
	if err != nil {
		return Parked{}, err
	}
	return Parked{Chunks: int(resp.GetChunks()), Bytes: resp.GetBytes()}, nil
}

// Settle implements [Storer].
func (h *Helper) Settle(ctx context.Context, parcel string) error {
	return h.move(ctx, "completion of a checkpoint", func(ctx context.Context, gpu helperapi.GPUService, number uint64) (*helperapi.Failure, error) {
		resp, err := gpu.Settle(ctx, &helperapi.ParcelsRequest{Parcels: []string{parcel}, Operation: number})
		return resp.GetFailure(), err
	})
}

// Fill implements [Storer].
func (h *Helper) Fill(ctx context.Context, req FillRequest) error {
	return h.move(ctx, about("restore with custom storage", req.PID), func(ctx context.Context, gpu helperapi.GPUService, number uint64) (*helperapi.Failure, error) {
		resp, err := gpu.Fill(ctx, &helperapi.FillRequest{
			Pid: int32(req.PID), Parcel: req.Parcel, Dir: req.Dir, Process: uint32(req.Process),
			Map: req.Map, Devices: req.Devices, Operation: number,
		})
		return resp.GetFailure(), err
	})
}

// Drop implements [Mover].
func (h *Helper) Drop(ctx context.Context, parcels []string) error {
	return h.move(ctx, "drop of device memory", func(ctx context.Context, gpu helperapi.GPUService, number uint64) (*helperapi.Failure, error) {
		resp, err := gpu.Drop(ctx, &helperapi.ParcelsRequest{Parcels: parcels, Operation: number})
		return resp.GetFailure(), err
	})
}

// Keep implements [Keeping].
func (h *Helper) Keep(ctx context.Context, req KeepRequest) (Kept, error) {
	var resp *helperapi.KeepResponse
	err := h.move(ctx, "hand-over of device memory", func(ctx context.Context, gpu helperapi.GPUService, number uint64) (_ *helperapi.Failure, err error) {
		resp, err = gpu.Keep(ctx, &helperapi.KeepRequest{Home: req.Home, Keeper: req.Keeper, Parcels: req.Parcels, Operation: number})
		return resp.GetFailure(), err
	})
	if err != nil {
		return Kept{}, err
	}
	return Kept{Digest: resp.GetDigest(), Bytes: resp.GetBytes()}, nil
}

// Fetch implements [Keeping].
func (h *Helper) Fetch(ctx context.Context, req FetchRequest) (Kept, error) {
	var resp *helperapi.FetchResponse
	err := h.move(ctx, "take-over of device memory", func(ctx context.Context, gpu helperapi.GPUService, number uint64) (_ *helperapi.Failure, err error) {
		resp, err = gpu.Fetch(ctx, &helperapi.FetchRequest{
			Home: req.Home, Keeper: req.Keeper, Digest: req.Digest, Parcels: req.Parcels, By: req.By, Operation: number,
		})
		return resp.GetFailure(), err
	})
	if err != nil {
		return Kept{}, err
	}
	return Kept{Digest: req.Digest, Bytes: resp.GetBytes()}, nil
}

// Spend implements [Keeping].
func (h *Helper) Spend(ctx context.Context, keeper, by string) error {
	return h.move(ctx, "end of the keeper", func(ctx context.Context, gpu helperapi.GPUService, number uint64) (*helperapi.Failure, error) {
		resp, err := gpu.Spend(ctx, &helperapi.SpendRequest{Keeper: keeper, By: by, Operation: number})
		return resp.GetFailure(), err
	})
}

// Progress implements [Mover].
func (h *Helper) Progress(ctx context.Context, parcel string) (Progress, error) {
	var resp *helperapi.ProgressResponse
	err := h.move(ctx, "progress", func(ctx context.Context, gpu helperapi.GPUService, _ uint64) (_ *helperapi.Failure, err error) {
		resp, err = gpu.Progress(ctx, &helperapi.ProgressRequest{Parcel: parcel})
		return nil, err
	})
	return Progress{Phase: resp.GetPhase(), Done: resp.GetDone(), Total: resp.GetTotal()}, err
}

// moveOne is [Helper.move] about one process.
func (h *Helper) moveOne(ctx context.Context, op string, pid int,
	f func(context.Context, helperapi.GPUService, uint64) (*helperapi.OperationResponse, error),
) error {
	err := h.move(ctx, about(op, pid), func(ctx context.Context, gpu helperapi.GPUService, number uint64) (*helperapi.Failure, error) {
		resp, err := f(ctx, gpu, number)
		return resp.GetFailure(), err
	})
	return processError(pid, op, err)
}

// processError says which process an error is about; nil stays nil.
func processError(pid int, op string, err error) error {
	var about *gpuplugin.ProcessError
	if err == nil || errors.As(err, &about) {
		return err
	}
	return &gpuplugin.ProcessError{PID: pid, Op: op, Err: err}
}

func movePhases(in []*helperapi.MovePhase) []MovePhase {
	var out []MovePhase
	for _, p := range in {
		out = append(out, MovePhase{Name: p.GetName(), Duration: time.Duration(p.GetNanoseconds())})
	}
	return out
}
