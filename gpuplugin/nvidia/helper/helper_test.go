// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package helper_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helper"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
)

// fake is a driver of which Symbols and Inventory do what a test says.
type fake struct {
	helper.Driver
	symbolsErr, inventoryErr error
}

func (f fake) Symbols() ([]*helperapi.Symbol, error) {
	if f.symbolsErr != nil {
		return nil, f.symbolsErr
	}
	return []*helperapi.Symbol{{Name: "cuInit", Found: true}}, nil
}

func (f fake) Inventory() (gpuplugin.Inventory, error) {
	if f.inventoryErr != nil {
		return gpuplugin.Inventory{}, f.inventoryErr
	}
	return gpuplugin.Inventory{Driver: "580.1", Devices: []gpuplugin.Device{{UUID: "GPU-a"}}}, nil
}

func TestReportHasWhatThereIs(t *testing.T) {
	broken := &helperapi.Error{Class: helperapi.Class_CLASS_UNAVAILABLE, Detail: "broken"}
	tests := map[string]struct {
		driver           fake
		symbols, devices int
		failure          string
	}{
		"all":       {driver: fake{}, symbols: 1, devices: 1},
		"no CUDA":   {driver: fake{symbolsErr: broken}, devices: 1, failure: "broken"},
		"no NVML":   {driver: fake{inventoryErr: broken}, symbols: 1, failure: "broken"},
		"no driver": {driver: fake{symbolsErr: broken, inventoryErr: errors.New("other")}, failure: "broken"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := helper.Report(test.driver)
			if len(r.GetSymbols()) != test.symbols || len(r.GetDevices()) != test.devices || r.GetFailure().GetDetail() != test.failure {
				t.Errorf("report = %v", r)
			}
		})
	}
}

func TestServeRefusesWhatIsNoSocket(t *testing.T) {
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	if err := helper.Serve(t.Context(), f.Fd(), fake{}, nil); err == nil || !strings.Contains(err.Error(), "take over socket") {
		t.Errorf("err = %v", err)
	}
}

func TestServeEndsWithTheConnection(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- helper.Serve(t.Context(), uintptr(fds[1]), fake{}, nil) }()
	if err := unix.Close(fds[0]); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it serves on")
	}
}
