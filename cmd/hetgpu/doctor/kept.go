// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/v2/pkg/progress"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/keeper"
)

// keptMemory lists the device memory that snapshots have left on the GPUs.
func keptMemory(ctx context.Context, h *Host) []Result {
	if h.UID != 0 {
		return ok("what there is only root can tell")
	}
	keepers, err := keeper.Home(h.path(h.Config.KeptDir())).List(ctx)
	var results []Result
	for _, k := range keepers {
		found := fmt.Sprintf("%s of %s since %s, by process %d, for the snapshot in %s", progress.Bytes(k.Bytes()), k.Container,
			k.Since.Format("2006-01-02 15:04 MST"), k.PID, k.Dir)
		if !k.Confirmed {
			results = append(results, ok("%s, which is being made", found)...)
			continue
		}
		results = append(results, Result{Status: OK, Found: found, Advice: fmt.Sprintf(
			"restore it before the next boot, or hetgpu drain %s, or hetgpu drop --keeper %s", k.Dir, k.ID)})
	}
	if err != nil {
		results = append(results, warn("look at that process: hetgpu-gpu keep", "%v", err)...)
	}
	if len(results) == 0 {
		return ok("none")
	}
	return results
}
