// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"errors"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/opencl"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/pause"
)

// TestKernel: only a kernel that needs NVIDIA's hardware may be skipped.
func TestKernel(t *testing.T) {
	written, refused, missed := &ir.Func{Name: "written"}, &ir.Func{Name: "refused"}, &ir.Func{Name: "missed"}
	o := &OpenCL{code: &opencl.Program{Kernels: []*opencl.Kernel{
		{Plan: &pause.Plan{Func: written}, Entry: "k_written"},
		{Plan: &pause.Plan{Func: refused, Class: pause.NVIDIAOnly}, Reason: "a texture"},
		{Plan: &pause.Plan{Func: missed}, Reason: "no form"},
	}}}
	if k, err := o.kernel(written); err != nil || k.Entry != "k_written" {
		t.Errorf("written: %v, %v", k, err)
	}
	for _, c := range []struct {
		f    *ir.Func
		skip bool
	}{{refused, true}, {missed, false}, {&ir.Func{Name: "absent"}, false}} {
		if _, err := o.kernel(c.f); err == nil || errors.Is(err, ErrNotWritten) != c.skip {
			t.Errorf("%s: %v", c.f.Name, err)
		}
	}
}
