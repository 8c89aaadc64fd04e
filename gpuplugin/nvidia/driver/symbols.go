// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package driver

import "github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"

// symbol is one function of libcuda.
type symbol struct {
	name string
	// version is the version of CUDA whose form of the function is meant
	// (12080 is 12.8), as cuGetProcAddress wants it.
	version int
	// since is the driver that brought it, for people.
	since    string
	required bool
}

// The functions, as indices of symbols.
const (
	symInit = iota
	symDriverGetVersion
	symGetErrorName
	symLock
	symCheckpoint
	symRestore
	symUnlock
	symGetState
	symGetRestoreThreadID
	symOperationComplete
	symCount
)

// symbols is the one list of what is looked up. Sources: the release notes of
// CUDA 12.8 and 13.4 and the "CUDA Checkpointing" group of the driver API.
// GPU pairs came with 580 (CUDA 13.0) as fields of the arguments, so no symbol
// tells of them: the version of the driver does.
var symbols = [symCount]symbol{
	symInit:               {"cuInit", 2000, "450", true},
	symDriverGetVersion:   {"cuDriverGetVersion", 2020, "450", true},
	symGetErrorName:       {"cuGetErrorName", 6000, "450", true},
	symLock:               {"cuCheckpointProcessLock", 12080, "570", true},
	symCheckpoint:         {"cuCheckpointProcessCheckpoint", 12080, "570", true},
	symRestore:            {"cuCheckpointProcessRestore", 12080, "570", true},
	symUnlock:             {"cuCheckpointProcessUnlock", 12080, "570", true},
	symGetState:           {"cuCheckpointProcessGetState", 12080, "570", true},
	symGetRestoreThreadID: {"cuCheckpointProcessGetRestoreThreadId", 12080, "570", false},
	symOperationComplete:  {"cuCheckpointOperationComplete", 13040, "615", false},
}

// CUresult values that are told apart (cuda.h).
const (
	cudaSuccess              = 0
	cudaErrorInvalidValue    = 1
	cudaErrorNotInitialized  = 3
	cudaErrorOperatingSystem = 304
	cudaErrorIllegalState    = 401
	cudaErrorNotReady        = 600
	cudaErrorNotSupported    = 801
)

// classOf sorts a result. What an uninitialized driver says is also what it
// says of a process without CUDA (measured on 580), so the caller must have
// initialized it; gone says that the process has exited.
func classOf(result int, gone bool) helperapi.Class {
	switch {
	case gone:
		return helperapi.Class_CLASS_GONE
	case result == cudaErrorNotSupported:
		return helperapi.Class_CLASS_UNSUPPORTED
	case result == cudaErrorNotReady:
		return helperapi.Class_CLASS_NOT_READY
	case result == cudaErrorIllegalState:
		return helperapi.Class_CLASS_ILLEGAL_STATE
	case result == cudaErrorNotInitialized:
		return helperapi.Class_CLASS_NO_STATE
	}
	return helperapi.Class_CLASS_OTHER
}
