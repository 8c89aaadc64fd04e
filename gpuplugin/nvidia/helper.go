// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/log"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
)

const (
	// queryTimeout bounds what only asks. The first query waits for the driver
	// to be initialized, for which 2.7 s have been seen on eight GPUs.
	queryTimeout = 30 * time.Second
	// operationTimeout bounds a call whose context has no deadline.
	operationTimeout = 10 * time.Minute
	// pingTimeout is how long a helper that is alive may take to say so.
	pingTimeout = 2 * time.Second
	// endTimeout is how long the end of a killed helper is waited for. One that
	// is stuck in the driver ends when the driver lets it.
	endTimeout = 2 * time.Second
)

// HelperConfig says how the device helper is started.
type HelperConfig struct {
	// Binary is its program: a path, or a name that is looked for beside the
	// running program and then in PATH. "hetgpu-gpu" if empty.
	Binary string
	// Env is its environment; nil stands for the own one, without what would
	// hide devices from CUDA.
	Env []string
	// KeyFile has the key with which it encrypts device memory in files; "" for
	// none. Only the helper reads it.
	KeyFile string
}

// Helper is the connection to the device helper. It starts one when there is
// something to ask and none runs, so that one that died costs the calls it was
// busy with and nothing else. It satisfies [Driver] and may be used by any
// number of goroutines.
//
// A helper that doesn't answer in time gets no further calls, and is killed when
// the others that it is busy with have ended: nobody could say what its call
// would still do, and the next one asks the driver what it has done.
type Helper struct {
	cfg HelperConfig

	mu      sync.Mutex
	current *helperProcess // nil before the first; may have died
	closed  bool
}

var _ Driver = (*Helper)(nil)

// NewHelper returns a connection that starts nothing yet.
func NewHelper(cfg HelperConfig) *Helper { return &Helper{cfg: cfg} }

// Warm starts the helper, which initializes the driver then, so that the first
// call finds it ready. It doesn't wait, and a failure is only logged: the first
// call meets it again.
func (h *Helper) Warm(ctx context.Context) {
	if _, err := h.process(ctx); err != nil {
		log.G(ctx).WithError(err).Warn("device helper not started; will try again when needed")
	}
}

// Close ends the helper and waits for its end. No call starts another then.
func (h *Helper) Close() error {
	h.mu.Lock()
	p := h.current
	h.closed = true
	h.mu.Unlock()
	if p == nil {
		return nil
	}
	p.kill()
	if !p.ended() {
		return fmt.Errorf("device helper %d does not end %v after it was killed; is the driver stuck?", p.cmd.Process.Pid, endTimeout)
	}
	return nil
}

// process returns the running helper and starts one if there is none.
func (h *Helper) process(ctx context.Context) (*helperProcess, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.processLocked(ctx)
}

// acquire returns the running helper for one call, which ends by release.
func (h *Helper) acquire(ctx context.Context) (*helperProcess, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p, err := h.processLocked(ctx)
	if err == nil {
		p.calls++
	}
	return p, err
}

func (h *Helper) release(p *helperProcess) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p.calls--
	if p.retired && p.calls == 0 {
		p.kill()
	}
}

// retire keeps further calls from a helper, one of whose calls got no answer,
// and kills it if that was its only one; those of other containers may end.
func (h *Helper) retire(p *helperProcess) {
	h.mu.Lock()
	last := p.calls == 1
	first := !p.retired
	p.retired = true
	h.mu.Unlock()
	switch {
	case last:
		p.kill()
		p.ended()
	case first:
		time.AfterFunc(operationTimeout, p.kill)
	}
}

func (h *Helper) processLocked(ctx context.Context) (*helperProcess, error) {
	if h.closed {
		return nil, fmt.Errorf("device helper: shut down: %w", gpuplugin.ErrUnavailable)
	}
	if h.current != nil && !h.current.retired && h.current.alive() {
		return h.current, nil
	}
	p, err := startHelper(ctx, h.cfg)
	if err != nil {
		return nil, fmt.Errorf("start the device helper: %w: %w", gpuplugin.ErrUnavailable, err)
	}
	h.current = p
	return p, nil
}

// call makes one call. Its failure is the helper's, f's own result the driver's.
func (h *Helper) call(ctx context.Context, what string, limit time.Duration, f func(context.Context, helperapi.GPUService) error) error {
	p, err := h.acquire(ctx)
	if err != nil {
		return err
	}
	defer h.release(p)
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	start := time.Now()
	err = f(ctx, p.gpu)
	if err == nil {
		return nil
	}
	if ctx.Err() == nil { // the connection broke: the end of the process says why
		p.kill()
		return fmt.Errorf("device helper died (%s) during %s; the next call starts another: %w", p.status(), what, gpuplugin.ErrUnavailable)
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) || !p.answers(ctx) {
		h.retire(p)
		return fmt.Errorf("device helper gave no answer to %s within %v and is replaced; is the process stopped, or the driver stuck?: %w: %w",
			what, time.Since(start).Round(time.Millisecond), gpuplugin.ErrUnavailable, context.Cause(ctx))
	}
	return fmt.Errorf("%s: %w", what, context.Cause(ctx))
}

// Inventory implements [Driver].
func (h *Helper) Inventory(ctx context.Context) (gpuplugin.Inventory, error) {
	var resp *helperapi.InventoryResponse
	err := h.call(ctx, "inventory", queryTimeout, func(ctx context.Context, gpu helperapi.GPUService) (err error) {
		resp, err = gpu.Inventory(ctx, &helperapi.InventoryRequest{})
		return err
	})
	if err == nil {
		err = helperapi.FromFailure(resp.GetFailure())
	}
	return helperapi.ToInventory(resp), err
}

// Usage implements [Driver].
func (h *Helper) Usage(ctx context.Context, pids []int) (map[string]uint64, error) {
	req := &helperapi.UsageRequest{}
	for _, pid := range pids {
		req.Pids = append(req.Pids, int32(pid))
	}
	var resp *helperapi.UsageResponse
	err := h.call(ctx, "usage", queryTimeout, func(ctx context.Context, gpu helperapi.GPUService) (err error) {
		resp, err = gpu.Usage(ctx, req)
		return err
	})
	if err == nil {
		err = helperapi.FromFailure(resp.GetFailure())
	}
	return resp.GetBytes(), err
}

// State implements [Driver].
func (h *Helper) State(ctx context.Context, pid int) (gpuplugin.State, error) {
	var resp *helperapi.StateResponse
	err := h.call(ctx, about("state", pid), queryTimeout, func(ctx context.Context, gpu helperapi.GPUService) (err error) {
		resp, err = gpu.State(ctx, processRequest(pid))
		return err
	})
	if err == nil {
		err = helperapi.FromFailure(resp.GetFailure())
	}
	return gpuplugin.State(resp.GetState()), err
}

// Lock implements [Driver].
func (h *Helper) Lock(ctx context.Context, pid int, timeout time.Duration) error {
	req := &helperapi.LockRequest{
		Pid:       int32(pid),
		TimeoutMs: uint32(timeout.Milliseconds()),
	}
	return h.operation(ctx, "lock", pid, func(ctx context.Context, gpu helperapi.GPUService) (*helperapi.OperationResponse, error) {
		return gpu.Lock(ctx, req)
	})
}

// Checkpoint implements [Driver].
func (h *Helper) Checkpoint(ctx context.Context, pid int) error {
	return h.operation(ctx, "checkpoint", pid, func(ctx context.Context, gpu helperapi.GPUService) (*helperapi.OperationResponse, error) {
		return gpu.Checkpoint(ctx, processRequest(pid))
	})
}

// Restore implements [Driver].
func (h *Helper) Restore(ctx context.Context, pid int, devices gpuplugin.DeviceMap) error {
	req := &helperapi.RestoreRequest{Pid: int32(pid), Devices: devices}
	return h.operation(ctx, "restore", pid, func(ctx context.Context, gpu helperapi.GPUService) (*helperapi.OperationResponse, error) {
		return gpu.Restore(ctx, req)
	})
}

// Unlock implements [Driver].
func (h *Helper) Unlock(ctx context.Context, pid int) error {
	return h.operation(ctx, "unlock", pid, func(ctx context.Context, gpu helperapi.GPUService) (*helperapi.OperationResponse, error) {
		return gpu.Unlock(ctx, processRequest(pid))
	})
}

func (h *Helper) operation(ctx context.Context, op string, pid int,
	f func(context.Context, helperapi.GPUService) (*helperapi.OperationResponse, error),
) error {
	var resp *helperapi.OperationResponse
	err := h.call(ctx, about(op, pid), operationTimeout, func(ctx context.Context, gpu helperapi.GPUService) (err error) {
		resp, err = f(ctx, gpu)
		return err
	})
	if err != nil {
		return err
	}
	return helperapi.FromFailure(resp.GetFailure())
}

func processRequest(pid int) *helperapi.ProcessRequest {
	return &helperapi.ProcessRequest{Pid: int32(pid)}
}

func about(op string, pid int) string { return fmt.Sprintf("%s of process %d", op, pid) }
