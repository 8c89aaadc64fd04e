// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package nvidia_test

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia"
)

// with returns a device that is used so far.
func with(d gpuplugin.Device, gib uint64) gpuplugin.Device {
	d.UsedBytes = gib << 30
	return d
}

func changed(d gpuplugin.Device, change func(*gpuplugin.Device)) gpuplugin.Device {
	change(&d)
	return d
}

func TestMatch(t *testing.T) {
	h100 := changed(gpu2, func(d *gpuplugin.Device) { d.Model = "NVIDIA H100 80GB HBM3" })
	small := changed(gpu2, func(d *gpuplugin.Device) { d.MemoryBytes = 80 << 30 })
	mig := changed(gpu2, func(d *gpuplugin.Device) { d.MIG = true })
	type devices = []gpuplugin.Device
	tests := map[string]struct {
		saved, host devices
		driver      string // the host's; the snapshot's is 580
		minors      []int
		want        gpuplugin.DeviceMap
		refused     []string
	}{
		"no device": {host: devices{gpu0}},
		"the same":  {saved: devices{gpu0}, host: devices{gpu0, gpu1}},
		"the same, in other order": {
			saved: devices{gpu1, gpu0}, host: devices{gpu0, gpu1},
			want: gpuplugin.DeviceMap{gpu0.UUID: gpu0.UUID, gpu1.UUID: gpu1.UUID},
		},
		"the same, behind another": {
			saved: devices{gpu1}, host: devices{gpu0, gpu1},
			want: gpuplugin.DeviceMap{gpu1.UUID: gpu1.UUID},
		},
		"another": {
			saved: devices{gpu0}, host: devices{gpu1},
			want: gpuplugin.DeviceMap{gpu0.UUID: gpu1.UUID},
		},
		"one stays, one moves": {
			saved: devices{gpu0, gpu1}, host: devices{gpu1, gpu2},
			want: gpuplugin.DeviceMap{gpu0.UUID: gpu2.UUID, gpu1.UUID: gpu1.UUID},
		},
		"the same is there, but not visible": {
			saved: devices{gpu0}, host: devices{gpu0, gpu1}, minors: []int{1},
			want: gpuplugin.DeviceMap{gpu0.UUID: gpu1.UUID},
		},
		"the fullest goes where most room is": {
			saved: devices{with(gpu0, 20), with(gpu1, 100)},
			host: devices{
				changed(with(gpu2, 10), func(d *gpuplugin.Device) { d.UUID = "GPU-empty" }),
				changed(with(gpu2, 90), func(d *gpuplugin.Device) { d.UUID = "GPU-full" }),
			},
			want: gpuplugin.DeviceMap{gpu0.UUID: "GPU-full", gpu1.UUID: "GPU-empty"},
		},
		"a newer driver":                 {saved: devices{gpu0}, host: devices{gpu0}, driver: "615.10"},
		"an older driver":                {saved: devices{gpu0}, host: devices{gpu0}, driver: "570.86", refused: []string{"570.86", "older than the snapshot's 580.159.04"}},
		"a driver that isn't understood": {saved: devices{gpu0}, host: devices{gpu0}, driver: "?", refused: []string{`"?"`}},
		"another model":                  {saved: devices{gpu0}, host: devices{h100}, refused: []string{gpu0.UUID, h100.UUID, "another model"}},
		"less memory":                    {saved: devices{gpu0}, host: devices{small}, refused: []string{gpu0.UUID, small.UUID, "81920 MiB of memory"}},
		"MIG":                            {saved: devices{gpu0}, host: devices{mig}, refused: []string{gpu0.UUID, mig.UUID, "MIG"}},
		"too full": {
			saved: devices{with(gpu0, 100)}, host: devices{with(gpu1, 60)},
			refused: []string{gpu0.UUID, gpu1.UUID, "82331 MiB of memory free, 102400 MiB are needed"},
		},
		"the same, but too full": {
			saved: devices{with(gpu0, 100)}, host: devices{with(gpu0, 60), gpu1},
			refused: []string{gpu0.UUID, "102400 MiB are needed"},
		},
		"too few": {
			saved: devices{gpu0, gpu1}, host: devices{gpu0},
			refused: []string{gpu1.UUID, "fewer GPUs"},
		},
		"none visible": {
			saved: devices{gpu0}, host: devices{gpu0}, minors: []int{5},
			refused: []string{gpu0.UUID, "fewer GPUs"},
		},
		"every reason": {
			saved: devices{gpu0, gpu1}, host: devices{h100, mig}, driver: "575.1",
			refused: []string{"575.1", gpu0.UUID, gpu1.UUID, "another model", "MIG"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			driver := test.driver
			if driver == "" {
				driver = "580.159.04"
			}
			got, err := nvidia.Match(
				gpuplugin.Inventory{Driver: "580.159.04", Devices: test.saved},
				gpuplugin.Inventory{Driver: driver, Devices: test.host}, test.minors)
			if test.refused == nil {
				if err != nil || !maps.Equal(got, test.want) {
					t.Errorf("got %v, %v; want %v", got, err, test.want)
				}
				return
			}
			if !errors.Is(err, gpuplugin.ErrIncompatible) || got != nil {
				t.Fatalf("got %v, %v; want ErrIncompatible", got, err)
			}
			for _, part := range test.refused {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("err = %v, want %q in it", err, part)
				}
			}
		})
	}
}

func TestMatchMovesOnlyWithPairs(t *testing.T) {
	saved := gpuplugin.Inventory{Driver: "570.86", Devices: []gpuplugin.Device{gpu0}}
	_, err := nvidia.Match(saved, gpuplugin.Inventory{Driver: "575.51", Devices: []gpuplugin.Device{gpu1}}, nil)
	if !errors.Is(err, gpuplugin.ErrIncompatible) || !strings.Contains(err.Error(), "580 or later moves them") {
		t.Errorf("err = %v", err)
	}
}
