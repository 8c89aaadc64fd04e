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
	symDeviceGetCount
	symDeviceGet
	symDeviceGetUUID
	symPrimaryRetain
	symPrimarySetFlags
	symPrimaryRelease
	symCtxSetCurrent
	symMemGetInfo
	symGranularity
	symMemCreate
	symMemRelease
	symMemExport
	symMemImport
	symMemProperties
	symAddressReserve
	symAddressFree
	symMemMap
	symMemUnmap
	symMemSetAccess
	symMemAlloc
	symMemFree
	symMemHostAlloc
	symMemFreeHost
	symMemcpyDtoH
	symMemcpyHtoD
	symMemcpyDtoD
	symMemsetD8
	symStreamCreate
	symStreamDestroy
	symStreamSynchronize
	symStreamGetCtx
	symModuleLoadData
	symModuleGetFunction
	symLaunchKernel
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

	// What moves device memory; the split engine and custom storage need it.
	symDeviceGetCount:    {"cuDeviceGetCount", 2000, "450", false},
	symDeviceGet:         {"cuDeviceGet", 2000, "450", false},
	symDeviceGetUUID:     {"cuDeviceGetUuid", 11040, "470", false},
	symPrimaryRetain:     {"cuDevicePrimaryCtxRetain", 7000, "450", false},
	symPrimarySetFlags:   {"cuDevicePrimaryCtxSetFlags", 11000, "450", false},
	symPrimaryRelease:    {"cuDevicePrimaryCtxRelease", 11000, "450", false},
	symCtxSetCurrent:     {"cuCtxSetCurrent", 4000, "450", false},
	symMemGetInfo:        {"cuMemGetInfo", 3020, "450", false},
	symGranularity:       {"cuMemGetAllocationGranularity", 10020, "450", false},
	symMemCreate:         {"cuMemCreate", 10020, "450", false},
	symMemRelease:        {"cuMemRelease", 10020, "450", false},
	symMemExport:         {"cuMemExportToShareableHandle", 10020, "450", false},
	symMemImport:         {"cuMemImportFromShareableHandle", 10020, "450", false},
	symMemProperties:     {"cuMemGetAllocationPropertiesFromHandle", 10020, "450", false},
	symAddressReserve:    {"cuMemAddressReserve", 10020, "450", false},
	symAddressFree:       {"cuMemAddressFree", 10020, "450", false},
	symMemMap:            {"cuMemMap", 10020, "450", false},
	symMemUnmap:          {"cuMemUnmap", 10020, "450", false},
	symMemSetAccess:      {"cuMemSetAccess", 10020, "450", false},
	symMemAlloc:          {"cuMemAlloc", 3020, "450", false},
	symMemFree:           {"cuMemFree", 3020, "450", false},
	symMemHostAlloc:      {"cuMemHostAlloc", 2020, "450", false},
	symMemFreeHost:       {"cuMemFreeHost", 2000, "450", false},
	symMemcpyDtoH:        {"cuMemcpyDtoHAsync", 3020, "450", false},
	symMemcpyHtoD:        {"cuMemcpyHtoDAsync", 3020, "450", false},
	symMemcpyDtoD:        {"cuMemcpyDtoDAsync", 3020, "450", false},
	symMemsetD8:          {"cuMemsetD8Async", 3020, "450", false},
	symStreamCreate:      {"cuStreamCreate", 2000, "450", false},
	symStreamDestroy:     {"cuStreamDestroy", 4000, "450", false},
	symStreamSynchronize: {"cuStreamSynchronize", 2000, "450", false},
	symStreamGetCtx:      {"cuStreamGetCtx", 9020, "450", false},
	symModuleLoadData:    {"cuModuleLoadData", 2000, "450", false},
	symModuleGetFunction: {"cuModuleGetFunction", 2000, "450", false},
	symLaunchKernel:      {"cuLaunchKernel", 4000, "450", false},
}

// gpuSymbols are the functions without which no device memory is moved.
var gpuSymbols = [...]int{
	symDeviceGetCount,
	symDeviceGet,
	symDeviceGetUUID,
	symPrimaryRetain,
	symPrimaryRelease,
	symCtxSetCurrent,
	symMemGetInfo,
	symGranularity,
	symMemCreate,
	symMemRelease,
	symMemExport,
	symMemImport,
	symMemProperties,
	symAddressReserve,
	symAddressFree,
	symMemMap,
	symMemUnmap,
	symMemSetAccess,
	symMemAlloc,
	symMemFree,
	symMemHostAlloc,
	symMemFreeHost,
	symMemcpyDtoH,
	symMemcpyHtoD,
	symMemcpyDtoD,
	symMemsetD8,
	symStreamCreate,
	symStreamDestroy,
	symStreamSynchronize,
	symModuleLoadData,
	symModuleGetFunction,
	symLaunchKernel,
}

// CUresult values that are told apart (cuda.h).
const (
	cudaSuccess              = 0
	cudaErrorInvalidValue    = 1
	cudaErrorOutOfMemory     = 2
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
