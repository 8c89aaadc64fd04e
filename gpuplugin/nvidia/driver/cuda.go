// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package driver

/*
#cgo CFLAGS: -std=c11 -Wall -Wextra -Werror -fvisibility=hidden
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "abi.h"
*/
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
)

// cuda is the loaded libcuda.
type cuda struct {
	path string
	fns  [symCount]unsafe.Pointer
}

// openCUDA loads the library and looks up the table. A function that is
// missing is an error of its caller, not of loading: a report of what there is
// must not need all of it.
func openCUDA(path string) (*cuda, error) {
	cpath := C.CString(path)
	defer C.free(unsafe.Pointer(cpath))
	var cerr *C.char
	library := C.hg_open(cpath, &cerr)
	if library == nil {
		return nil, unavailable("dlopen", C.GoString(cerr))
	}
	// The library is never closed: libcuda keeps threads.
	getProc := C.hg_get_proc_address(library)
	if getProc == nil {
		return nil, unavailable("dlsym", path+" has no cuGetProcAddress_v2; driver 570 or later is needed")
	}
	c := &cuda{path: path}
	for i, s := range symbols {
		name := C.CString(s.name)
		c.fns[i] = C.hg_lookup(getProc, name, C.int(s.version))
		C.free(unsafe.Pointer(name))
	}
	return c, nil
}

// report says which of the table's functions there are.
func (c *cuda) report() []*helperapi.Symbol {
	out := make([]*helperapi.Symbol, 0, len(symbols))
	for i, s := range symbols {
		out = append(out, &helperapi.Symbol{Name: s.name, Required: s.required, Since: s.since, Found: c.fns[i] != nil})
	}
	return out
}

// need fails if the driver lacks a function.
func (c *cuda) need(sym int) error {
	if c.fns[sym] != nil {
		return nil
	}
	return &helperapi.Error{
		Class:  helperapi.Class_CLASS_UNSUPPORTED,
		Call:   symbols[sym].name,
		Detail: fmt.Sprintf("%s has no such function; driver %s or later is needed", c.path, symbols[sym].since),
	}
}

// init is cuInit.
func (c *cuda) init() error {
	if err := c.need(symInit); err != nil {
		return err
	}
	if r := int(C.hg_call_flags(c.fns[symInit], 0)); r != cudaSuccess {
		return &helperapi.Error{
			Class: helperapi.Class_CLASS_UNAVAILABLE,
			Call:  symbols[symInit].name,
			Code:  r,
			Name:  c.errorName(r),
		}
	}
	return nil
}

// version is the version of CUDA that the driver offers, 0 if unknown.
func (c *cuda) version() int {
	var v C.int
	if c.fns[symDriverGetVersion] == nil || C.hg_call_out(c.fns[symDriverGetVersion], &v) != cudaSuccess {
		return 0
	}
	return int(v)
}

// errorName is the driver's own name of a result.
func (c *cuda) errorName(result int) string {
	var text *C.char
	if c.fns[symGetErrorName] == nil ||
		C.hg_call_text(c.fns[symGetErrorName], C.int(result), &text) != cudaSuccess || text == nil {
		return "CUDA error"
	}
	return C.GoString(text)
}

// check turns the result of a function about a process into an error.
func (c *cuda) check(sym, pid, result int) error {
	if result == cudaSuccess {
		return nil
	}
	return &helperapi.Error{
		Class: classOf(result, exited(pid)),
		Call:  symbols[sym].name,
		Code:  result,
		Name:  c.errorName(result),
	}
}

// processStates are the values of CUprocessState (cuda.h; the last two are
// driver 615's, and their values are in the reference of cuda-python's
// CheckpointProcessState for CUDA 13.4).
var processStates = [...]gpuplugin.State{
	gpuplugin.StateRunning, gpuplugin.StateLocked, gpuplugin.StateCheckpointed, gpuplugin.StateFailed,
	gpuplugin.StateCheckpointing, gpuplugin.StateRestoring,
}

func (c *cuda) state(pid int) (gpuplugin.State, error) {
	if err := c.need(symGetState); err != nil {
		return "", err
	}
	state := C.int(-1)
	r := int(C.hg_call_pid_out(c.fns[symGetState], C.int(pid), &state))
	if err := c.check(symGetState, pid, r); err != nil {
		return "", err
	}
	if state < 0 || int(state) >= len(processStates) {
		return "", &helperapi.Error{Call: symbols[symGetState].name, Detail: fmt.Sprintf("unknown state %d", state)}
	}
	return processStates[state], nil
}

func (c *cuda) lock(pid int, timeoutMillis uint32) error {
	if err := c.need(symLock); err != nil {
		return err
	}
	r := C.hg_call_lock(c.fns[symLock], C.int(pid), C.uint(timeoutMillis))
	return c.check(symLock, pid, int(r))
}

func cPairs(pairs []uuidPair) []C.struct_cu_gpu_pair {
	cpairs := make([]C.struct_cu_gpu_pair, len(pairs))
	for i, p := range pairs {
		for b := range p.from {
			cpairs[i].old_uuid[b] = C.uchar(p.from[b])
			cpairs[i].new_uuid[b] = C.uchar(p.to[b])
		}
	}
	return cpairs
}

func (c *cuda) restore(pid int, pairs []uuidPair) error {
	if err := c.need(symRestore); err != nil {
		return err
	}
	cpairs := cPairs(pairs)
	// A pointer to Go memory inside of an argument would need pinning; the
	// trampoline takes it as an argument and fills the structure in C.
	r := C.hg_call_restore(c.fns[symRestore], C.int(pid), unsafe.SliceData(cpairs), C.uint(len(cpairs)))
	return c.check(symRestore, pid, int(r))
}

// operation calls checkpoint or unlock, which need nothing but the process.
func (c *cuda) operation(sym, pid int) error {
	if err := c.need(sym); err != nil {
		return err
	}
	r := C.hg_call_pid(c.fns[sym], C.int(pid))
	return c.check(sym, pid, int(r))
}

func unavailable(call, detail string) error {
	return &helperapi.Error{Class: helperapi.Class_CLASS_UNAVAILABLE, Call: call, Detail: detail}
}
