// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package helperapi

import "github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"

// FromDevice puts a device into the protocol's form.
func FromDevice(d gpuplugin.Device) *Device {
	return &Device{
		Uuid:        d.UUID,
		Model:       d.Model,
		MemoryBytes: d.MemoryBytes,
		UsedBytes:   d.UsedBytes,
		Minor:       int32(d.Minor),
		Pci:         d.PCI,
		Mig:         d.MIG,
	}
}

// ToInventory is the way back, of all devices.
func ToInventory(r *InventoryResponse) gpuplugin.Inventory {
	inv := gpuplugin.Inventory{Driver: r.GetDriver(), API: int(r.GetApi())}
	for _, d := range r.GetDevices() {
		inv.Devices = append(inv.Devices, gpuplugin.Device{
			UUID:        d.GetUuid(),
			Vendor:      "nvidia",
			Model:       d.GetModel(),
			MemoryBytes: d.GetMemoryBytes(),
			UsedBytes:   d.GetUsedBytes(),
			Minor:       int(d.GetMinor()),
			PCI:         d.GetPci(),
			MIG:         d.GetMig(),
		})
	}
	return inv
}
