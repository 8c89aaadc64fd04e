// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
)

// nvmlSymbols are the functions that are called below. go-nvml binds lazily: a
// call of one that is missing would end the process, so they are looked up
// before the first.
var nvmlSymbols = []string{
	"nvmlSystemGetDriverVersion",
	"nvmlDeviceGetCount_v2",
	"nvmlDeviceGetHandleByIndex_v2",
	"nvmlDeviceGetUUID",
	"nvmlDeviceGetName",
	"nvmlDeviceGetMemoryInfo",
	"nvmlDeviceGetMinorNumber",
	"nvmlDeviceGetPciInfo_v3",
	"nvmlDeviceGetMigMode",
	"nvmlDeviceGetComputeRunningProcesses_v3",
}

// nvmlLibrary is the loaded and initialized NVML.
type nvmlLibrary struct{ nvml.Interface }

func openNVML(path string) (*nvmlLibrary, error) {
	lib := nvml.New(nvml.WithLibraryPath(path))
	if ret := lib.Init(); ret != nvml.SUCCESS {
		return nil, nvmlError("nvmlInit_v2", ret, path)
	}
	for _, name := range nvmlSymbols {
		if err := lib.Extensions().LookupSymbol(name); err != nil {
			_ = lib.Shutdown() // what matters is that it can't be used
			return nil, unavailable(name, fmt.Sprintf("%s has no such function; driver 570 or later is needed", path))
		}
	}
	return &nvmlLibrary{lib}, nil
}

func (l *nvmlLibrary) inventory() (gpuplugin.Inventory, error) {
	version, ret := l.SystemGetDriverVersion()
	if ret != nvml.SUCCESS {
		return gpuplugin.Inventory{}, nvmlError("nvmlSystemGetDriverVersion", ret, "")
	}
	inv := gpuplugin.Inventory{Driver: version}
	err := l.each(func(dev nvml.Device) error {
		d, err := describe(dev)
		inv.Devices = append(inv.Devices, d)
		return err
	})
	return inv, err
}

func (l *nvmlLibrary) each(visit func(nvml.Device) error) error {
	n, ret := l.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return nvmlError("nvmlDeviceGetCount_v2", ret, "")
	}
	for i := range n {
		dev, ret := l.DeviceGetHandleByIndex(i)
		if ret != nvml.SUCCESS {
			return nvmlError("nvmlDeviceGetHandleByIndex_v2", ret, fmt.Sprintf("device %d", i))
		}
		if err := visit(dev); err != nil {
			return err
		}
	}
	return nil
}

func describe(dev nvml.Device) (gpuplugin.Device, error) {
	d := gpuplugin.Device{Vendor: "nvidia"}
	var ret nvml.Return
	if d.UUID, ret = dev.GetUUID(); ret != nvml.SUCCESS {
		return d, nvmlError("nvmlDeviceGetUUID", ret, "")
	}
	if d.Model, ret = dev.GetName(); ret != nvml.SUCCESS {
		return d, nvmlError("nvmlDeviceGetName", ret, d.UUID)
	}
	mem, ret := dev.GetMemoryInfo()
	if ret != nvml.SUCCESS {
		return d, nvmlError("nvmlDeviceGetMemoryInfo", ret, d.UUID)
	}
	// What the driver keeps for itself can't be had, so it counts as used.
	d.MemoryBytes, d.UsedBytes = mem.Total, mem.Total-mem.Free
	if d.Minor, ret = dev.GetMinorNumber(); ret != nvml.SUCCESS {
		return d, nvmlError("nvmlDeviceGetMinorNumber", ret, d.UUID)
	}
	pci, ret := dev.GetPciInfo()
	if ret != nvml.SUCCESS {
		return d, nvmlError("nvmlDeviceGetPciInfo_v3", ret, d.UUID)
	}
	d.PCI = pciAddress(pci)
	mode, _, ret := dev.GetMigMode()
	switch ret {
	case nvml.SUCCESS:
		d.MIG = mode == nvml.DEVICE_MIG_ENABLE
	case nvml.ERROR_NOT_SUPPORTED: // a model without MIG
	default:
		return d, nvmlError("nvmlDeviceGetMigMode", ret, d.UUID)
	}
	return d, nil
}

// pciAddress is the address as the kernel writes it ("0000:81:00.0"); NVML's
// own text has a domain of eight digits.
func pciAddress(pci nvml.PciInfo) string {
	return fmt.Sprintf("%04x:%02x:%02x.0", pci.Domain, pci.Bus, pci.Device)
}

func (l *nvmlLibrary) usage(pids []int) (map[string]uint64, error) {
	out := map[string]uint64{}
	err := l.each(func(dev nvml.Device) error {
		uuid, ret := dev.GetUUID()
		if ret != nvml.SUCCESS {
			return nvmlError("nvmlDeviceGetUUID", ret, "")
		}
		used, err := usageOf(dev, uuid, pids)
		if used > 0 {
			out[uuid] = used
		}
		return err
	})
	return out, err
}

// usageOf is what the processes use of one device. Where NVML can't tell for
// one of them, it is all that is used of the device: an upper bound.
func usageOf(dev nvml.Device, uuid string, pids []int) (uint64, error) {
	procs, ret := dev.GetComputeRunningProcesses()
	if ret != nvml.SUCCESS {
		return 0, nvmlError("nvmlDeviceGetComputeRunningProcesses_v3", ret, uuid)
	}
	var used uint64
	for _, p := range procs {
		if !slices.Contains(pids, int(p.Pid)) {
			continue
		}
		if p.UsedGpuMemory == math.MaxUint64 { // NVML_VALUE_NOT_AVAILABLE
			mem, ret := dev.GetMemoryInfo()
			if ret != nvml.SUCCESS {
				return 0, nvmlError("nvmlDeviceGetMemoryInfo", ret, uuid)
			}
			return mem.Used, nil
		}
		used += p.UsedGpuMemory
	}
	return used, nil
}

func nvmlError(call string, ret nvml.Return, detail string) error {
	// Without a library there is no nvmlErrorString to ask; go-nvml knows that.
	text := strings.TrimSpace(nvml.ErrorString(ret))
	return &helperapi.Error{Class: helperapi.Class_CLASS_UNAVAILABLE, Call: call, Code: int(ret), Name: text, Detail: detail}
}
