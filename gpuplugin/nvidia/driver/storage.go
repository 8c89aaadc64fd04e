// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package driver

/*
#cgo CFLAGS: -std=c11 -Wall -Wextra -Werror -fvisibility=hidden
#include "storage.h"
*/
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
)

// Operation is a checkpoint or restore of another process with custom storage
// (driver 615): until it is complete the process is "checkpointing" or
// "restoring", and its device memory can be read and written here. There is no
// way to take it back, and the process waits for ever if this one ends before.
//
// Coded against NVIDIA's documentation (storage.h), never run on a driver.
type Operation struct {
	lib    *cuda
	pid    int
	ctx    C.struct_hg_ctx
	handle unsafe.Pointer
	views  []View
}

// View is all memory that the process has on one device, in one range of
// addresses of ours. The driver decides what is where, and does the same at a
// restore.
type View struct {
	UUID          string
	Address, Size uint64
}

// storageSymbols are the functions without which there is no custom storage.
var storageSymbols = [...]int{symCheckpoint, symRestore, symOperationComplete, symStreamGetCtx, symCtxSetCurrent}

// BeginCheckpoint shows the memory of a locked process. All devices that it uses
// have to be open ([Driver.OpenGPU]): the driver asks for their primary contexts.
func (d *Driver) BeginCheckpoint(pid int) (*Operation, error) {
	return d.begin(symCheckpoint, pid, func(o *Operation, out **C.struct_cu_storage) C.int {
		return C.hg_storage_checkpoint(o.ctx, o.lib.fns[symCheckpoint], C.int(pid), out)
	})
}

// BeginRestore shows the memory of a checkpointed process, which holds nothing
// of value yet, on its devices or those of the map. The devices have to be open.
func (d *Driver) BeginRestore(pid int, devices gpuplugin.DeviceMap) (*Operation, error) {
	pairs, err := parsePairs(devices)
	if err != nil {
		return nil, err
	}
	return d.begin(symRestore, pid, func(o *Operation, out **C.struct_cu_storage) C.int {
		cpairs := cPairs(pairs)
		return C.hg_storage_restore(o.ctx, o.lib.fns[symRestore], C.int(pid), unsafe.SliceData(cpairs), C.uint(len(cpairs)), out)
	})
}

func (d *Driver) begin(sym, pid int, call func(*Operation, **C.struct_cu_storage) C.int) (*Operation, error) {
	lib, err := d.cuda()
	if err != nil {
		return nil, err
	}
	for _, sym := range storageSymbols {
		if err := lib.need(sym); err != nil {
			return nil, err
		}
	}
	o := &Operation{lib: lib, pid: pid}
	if o.ctx, err = d.anyContext(); err != nil {
		return nil, err
	}
	var info *C.struct_cu_storage
	if err := lib.check(sym, pid, int(call(o, &info))); err != nil {
		return nil, err
	}
	if info == nil || info.handle == nil || info.count > 0 && info.devices == nil {
		return nil, &helperapi.Error{Call: symbols[sym].name, Detail: "the driver shows no memory, and gives no handle"}
	}
	o.handle = info.handle
	for _, device := range unsafe.Slice(info.devices, info.count) {
		view, err := d.view(lib, device)
		if err != nil {
			return nil, err
		}
		if view.Size > 0 {
			o.views = append(o.views, view)
		}
	}
	return o, nil
}

// view finds out of which device the memory is: its pointer can't be asked, and
// its stream is one of the device's primary context.
func (d *Driver) view(lib *cuda, device C.struct_cu_storage_device) (View, error) {
	var context unsafe.Pointer
	r := int(C.hg_stream_context(lib.fns[symStreamGetCtx], device.stream, &context))
	if r != cudaSuccess {
		return View{}, &helperapi.Error{Call: symbols[symStreamGetCtx].name, Code: r, Name: lib.errorName(r)}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	open, ok := d.contexts[context]
	if !ok {
		return View{}, &helperapi.Error{Call: symbols[symStreamGetCtx].name, Detail: "memory of a device that is not open"}
	}
	return View{UUID: open.gpu.uuid, Address: uint64(device.address), Size: uint64(device.size)}, nil
}

// PID is the process.
func (o *Operation) PID() int { return o.pid }

// Views are where its memory can be read and written, one for each device on
// which it has any.
func (o *Operation) Views() []View { return o.views }

// Complete ends the operation and takes the views away: the process is
// checkpointed, and its memory is nowhere else any more, or it is locked. It can
// be called once: what the driver does with a handle that failed is not known.
func (o *Operation) Complete() error {
	if o.handle == nil {
		return fmt.Errorf("%w: the operation was completed already", helperapi.ErrIllegalState)
	}
	handle := o.handle
	o.handle, o.views = nil, nil
	r := C.hg_storage_complete(o.ctx, o.lib.fns[symOperationComplete], handle)
	return o.lib.check(symOperationComplete, o.pid, int(r))
}

// Gone tells whether the process has ended, and with it the use of its memory.
func (o *Operation) Gone() bool { return exited(o.pid) }

// openContext is a primary context, of which there is one for all that have the
// device open.
type openContext struct {
	gpu   *GPU
	count int
}

func (d *Driver) retained(g *GPU) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.contexts == nil {
		d.contexts = map[unsafe.Pointer]openContext{}
	}
	d.contexts[g.ctx.context] = openContext{g, d.contexts[g.ctx.context].count + 1}
}

func (d *Driver) released(g *GPU) {
	d.mu.Lock()
	defer d.mu.Unlock()
	open := d.contexts[g.ctx.context]
	if open.count--; open.count <= 0 {
		delete(d.contexts, g.ctx.context)
		return
	}
	d.contexts[g.ctx.context] = open
}

// anyContext returns the context of a device that is open.
func (d *Driver) anyContext() (C.struct_hg_ctx, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, open := range d.contexts {
		return open.gpu.ctx, nil
	}
	return C.struct_hg_ctx{}, &helperapi.Error{Class: helperapi.Class_CLASS_ILLEGAL_STATE, Detail: "custom storage needs an open device"}
}
