// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/execx"
)

// inventoryTimeout covers a driver that starts up: 2.7 s were seen with eight
// GPUs, and more without persistence mode.
const inventoryTimeout = 40 * time.Second

// kernelDriver is in the first line of /proc/driver/nvidia/version, with the
// open modules and with the others.
var kernelDriver = regexp.MustCompile(`Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)`)

// Inventory asks the device helper once.
func (h *Host) Inventory(ctx context.Context) (helperapi.Report, error) {
	h.once.Do(func() { h.report, h.repErr = h.askHelper(ctx) })
	return h.report, h.repErr
}

func (h *Host) askHelper(ctx context.Context) (helperapi.Report, error) {
	var r helperapi.Report
	path, err := h.lookup(h.Config.Helper)
	if err != nil {
		return r, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, inventoryTimeout, fmt.Errorf("no answer within %s", inventoryTimeout))
	defer cancel()
	var out, log strings.Builder
	cmd := execx.Command(ctx, path, "inventory")
	cmd.Stdout, cmd.Stderr = &out, &log
	err = execx.Run(ctx, cmd)
	// It exits with 1 where the driver is missing, and prints its report even
	// so.
	if jsonErr := json.Unmarshal([]byte(out.String()), &r); jsonErr != nil {
		return helperapi.Report{}, fmt.Errorf("%s inventory: %w", path, errors.Join(err, jsonErr, errors.New(execx.LastLines(log.String(), 3))))
	}
	return r, nil
}

// kernelModule returns the version of NVIDIA's kernel driver, "" without one.
func (h *Host) kernelModule() string {
	data, err := os.ReadFile(h.path("proc/driver/nvidia/version"))
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(data), "\n")
	if m := kernelDriver.FindStringSubmatch(line); m != nil {
		return m[1]
	}
	return "of unknown version"
}

func gpuDriver(ctx context.Context, h *Host) []Result {
	module := h.kernelModule()
	r, err := h.Inventory(ctx)
	switch {
	case err != nil && module == "" || len(r.Errors) > 0 && module == "" && len(r.Devices) == 0:
		if _, err := os.Stat(h.path("dev/kfd")); err == nil {
			return warn("containers with AMD GPUs run, and checkpoints of them are refused", "AMD's, and it has no engine yet")
		}
		return ok("none (no NVIDIA kernel driver)")
	case err != nil:
		return fail("see what is said of the device helper", "kernel driver %s, but the device helper does not answer: %v", module, err)
	case len(r.Errors) > 0:
		return fail("install the libraries of the driver (libcuda.so.1, libnvidia-ml.so.1), of the kernel driver's version",
			"kernel driver %s: %s", module, strings.Join(r.Errors, "; "))
	}
	return driverSymbols(r)
}

// driverSymbols tells by its functions what the driver can do.
func driverSymbols(r helperapi.Report) []Result {
	api := fmt.Sprintf("NVIDIA %s, CUDA %d.%d", r.Driver, r.API/1000, r.API%1000/10)
	var missing, lacking []string
	since := ""
	for _, s := range r.Symbols {
		switch {
		case s.Found:
		case s.Required:
			missing = append(missing, s.Name)
			since = max(since, s.Since)
		default:
			lacking = append(lacking, s.Name+" ("+s.Since+")")
		}
	}
	if len(missing) > 0 {
		return fail("install driver "+since+" or newer", "%s lacks %s", api, strings.Join(missing, ", "))
	}
	if len(lacking) > 0 {
		api += "; without " + strings.Join(lacking, ", ") + ", which newer drivers have"
	}
	return ok("%s", api)
}

func gpuDevices(ctx context.Context, h *Host) []Result {
	r, err := h.Inventory(ctx)
	if err != nil || len(r.Devices) == 0 {
		if h.kernelModule() == "" {
			return ok("none")
		}
		return warn("look at the kernel's log", "none, although there is a driver")
	}
	var results []Result
	for _, d := range r.Devices {
		results = append(results, device(d)...)
	}
	return results
}

func device(d gpuplugin.Device) []Result {
	line := fmt.Sprintf("/dev/%s%d: %s, %s, %d MiB", d.Vendor, d.Minor, d.Model, d.UUID, d.MemoryBytes>>20)
	if d.MIG {
		return warn("switch MIG mode off to checkpoint containers on it", "%s, MIG mode, which the driver can't checkpoint", line)
	}
	return ok("%s", line)
}

// legacyIPC tells whether it will be seen that processes share GPU memory by
// legacy CUDA IPC, with which the driver can't restore them.
func legacyIPC(_ context.Context, h *Host) []Result {
	if h.UID != 0 {
		return ok("whether it can be seen is known to root only")
	}
	err := h.CountCalls()
	switch {
	case err == nil:
		return ok("can be seen")
	case h.kernelModule() == "":
		return ok("can't be seen, and need not without NVIDIA's kernel driver: %v", err)
	}
	return warn("checkpoints of containers with several GPU processes are refused, unless an annotation promises that they use none: "+
		"io.hetgpu.nvidia.ipc=none", "can't be seen: %v", err)
}
