// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package gpuplugin_test

import (
	"errors"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
)

func TestNoneFindsNothing(t *testing.T) {
	procs, err := gpuplugin.None{}.Processes(t.Context(), []int{1, 2})
	if err != nil || len(procs) != 0 {
		t.Errorf("Processes = %v, %v; want none", procs, err)
	}
	if got := (gpuplugin.None{}).Engine(); got != "none" {
		t.Errorf("Engine = %q", got)
	}
}

func TestNoneRefusesGPUState(t *testing.T) {
	var none gpuplugin.None
	ops := map[string]func([]gpuplugin.Process) error{
		"prepare": func(p []gpuplugin.Process) error { return none.Prepare(t.Context(), p) },
		"lock":    func(p []gpuplugin.Process) error { return none.Lock(t.Context(), p) },
		"suspend": func(p []gpuplugin.Process) error { return none.Suspend(t.Context(), p) },
		"resume":  func(p []gpuplugin.Process) error { return none.Resume(t.Context(), p, nil) },
		"undo":    func(p []gpuplugin.Process) error { return none.Undo(t.Context(), p) },
	}
	for name, op := range ops {
		t.Run(name, func(t *testing.T) {
			if err := op(nil); err != nil {
				t.Errorf("without a process: %v", err)
			}
			err := op([]gpuplugin.Process{{PID: 7}, {PID: 8}})
			if !errors.Is(err, gpuplugin.ErrUnsupported) {
				t.Fatalf("err = %v, want ErrUnsupported", err)
			}
			var pe *gpuplugin.ProcessError
			if !errors.As(err, &pe) || pe.PID != 7 {
				t.Errorf("err = %v, want it to name process 7", err)
			}
		})
	}
}

func TestNoneFitsNoDevice(t *testing.T) {
	if _, err := (gpuplugin.None{}).Match(t.Context(), gpuplugin.Inventory{}, nil); err != nil {
		t.Errorf("without a device: %v", err)
	}
	saved := gpuplugin.Inventory{Devices: []gpuplugin.Device{{UUID: "GPU-1"}}}
	if _, err := (gpuplugin.None{}).Match(t.Context(), saved, nil); !errors.Is(err, gpuplugin.ErrIncompatible) {
		t.Errorf("err = %v, want ErrIncompatible", err)
	}
}
