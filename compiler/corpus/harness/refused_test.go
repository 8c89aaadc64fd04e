// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/corpus"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/nvptx"
)

// notOnNVIDIA are the kernels that have pause points and can't be paused on
// NVIDIA's devices, and why. They run there as they are: no test would notice one
// more.
var notOnNVIDIA = map[string]string{
	"generic_pointers": "an address whose base can't be told", // of shared or of local memory
}

func TestNotOnNVIDIA(t *testing.T) {
	for _, c := range corpus.All() {
		p := prepared(t, c)
		for f, plan := range p.Plans {
			if len(plan.Points) == 0 {
				continue
			}
			err, why := nvptx.Pausable(p.Module, plan), notOnNVIDIA[f.Name]
			if (err != nil) != (why != "") || err != nil && !strings.Contains(err.Error(), why) {
				t.Errorf("%s: %v", f.Name, err)
			}
		}
	}
}
