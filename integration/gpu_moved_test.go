// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/containerd/containerd/v2/pkg/oci"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/standin"
)

// splitOn gives a container of these arguments GPUs and the split engine.
func (d *daemon) splitOn(gpus []int, args ...string) spec {
	return spec{args: args, opts: []oci.SpecOpts{d.withProgram, d.withRealLibrary, d.withGPUs(gpus...), annotated("io.hetgpu.engine", "split")}}
}

// What was saved on one GPU goes on on another one, is saved there, goes on, and comes back
// to the first, and to the other once more.
func TestGPUSplitOtherGPU(t *testing.T) {
	four := standin.H200s(4, 1)
	large := four.WithMemory(256 << 20)
	for name, tc := range map[string]struct {
		// gpus are where it is saved and, in turn, restored.
		gpus  [][]int
		ranks int
		args  []string
	}{
		"memory of each kind":     {[][]int{{0}, {1}, {0}, {1}}, 1, []string{"/vmmtoy", "-v", "-a"}},
		"managed memory":          {[][]int{{0}, {1}, {1}}, 1, []string{"/toy", "-m"}},
		"more than half of a GPU": {[][]int{{1}, {0}, {0}}, 1, []string{"/toy", "-k", "10"}},
		"several processes":       {[][]int{{0}, {1}, {1}, {0}}, 2, []string{"/toy", "-n", "2", "-b", "3000000"}},
		"several GPUs":            {[][]int{{0, 1}, {2, 3}, {0, 1}}, 2, []string{"/toy", "-n", "2", "-b", "3000000"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := onGPUs(t)
			d.change(t, large)
			if name == "more than half of a GPU" {
				d.change(t, four)
			}
			ctx := d.testContext(t)
			args := append([]string{inContainer + tc.args[0], "-i", "10"}, tc.args[1:]...)
			c := d.run(ctx, t, d.splitOn(tc.gpus[0], args...))
			c.ticksOn(ctx, tc.ranks)
			for i, gpus := range tc.gpus {
				if i > 0 {
					// It can be saved where it came to, and goes on there.
					c.mustCheckpoint(ctx, false)
					c.expectGoesOn(ctx, tc.ranks)
				}
				dir := c.mustCheckpoint(ctx, true)
				c.waitExit(ctx)
				c.delete(ctx)
				c.remove()
				expectSplit(t, dir)
				if i+1 < len(tc.gpus) {
					gpus = tc.gpus[i+1]
				}
				c = d.restore(ctx, t, d.splitOn(gpus, args...), dir)
				c.expectGoesOn(ctx, tc.ranks)
				for j, gpu := range four.GPUs {
					if !slices.Contains(gpus, j) {
						d.expectUsed(t, gpu, 0)
					}
				}
			}
			c.stop(ctx)
			c.remove()
			d.expectNothingLeft(t)
		})
	}
}

// Memory that processes share stays on its GPU; what they have for themselves does not.
func TestGPUSplitOtherGPUShared(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	args := []string{inContainer + "/toy", "-i", "10", "-n", "2", "-p", "keep"}
	c := d.run(ctx, t, d.splitOn([]int{0}, args...))
	c.ticksOn(ctx, 2)
	dir := c.mustCheckpoint(ctx, true)
	c.waitExit(ctx)
	c.delete(ctx)
	c.remove()
	d.expectRestoreFails(ctx, t, d.splitOn([]int{1}, args...), dir, "shares device memory", usual.GPUs[0].UUID, usual.GPUs[1].UUID)
	for _, gpu := range usual.GPUs {
		d.expectUsed(t, gpu, 0)
	}
	r := d.restore(ctx, t, d.splitOn([]int{0}, args...), dir)
	r.expectGoesOn(ctx, 2)
	r.stop(ctx)
}

// What fails while memory is made and filled on another GPU ends the restore, and the next
// one has all of it.
func TestFaultsSplitOtherGPU(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	args := []string{inContainer + "/vmmtoy", "-i", "10", "-v"}
	dir, _ := d.saved(ctx, t, d.splitOn([]int{0}, args...), 1)
	s := d.splitOn([]int{1}, args...)
	for rule, says := range map[string][]string{
		"create comm=vmmtoy nth=2 error=2":       {"gpu-resume", "MAKE", "cuMemCreate", "CUDA_ERROR_OUT_OF_MEMORY"},
		"export comm=vmmtoy error=999":           {"gpu-resume"},
		"map comm=vmmtoy nth=2 error=999":        {"gpu-resume", "UNPARK", "cuMemMap"},
		"import comm=hetgpu-gpu nth=4 error=999": {"gpu-resume", "cuMemImportFromShareableHandle"},
		"import comm=hetgpu-gpu nth=4 crash":     {"gpu-resume", "device helper"},
		"restore comm=vmmtoy error=101":          {"gpu-resume", "CUDA_ERROR_INVALID_DEVICE"},
	} {
		t.Run(rule, func(t *testing.T) {
			d.logIfFailed(t)
			ctx := d.testContext(t)
			d.faults(t, rule)
			d.expectRestoreFails(ctx, t, s, dir, says...)
			d.faults(t)
			expectNoControlDir(t)
		})
	}
	// What gives no answer once is asked again.
	d.faults(t, "export comm=vmmtoy nth=2 error=999")
	r := d.restore(ctx, t, s, dir)
	r.expectGoesOn(ctx, 1)
	r.stop(ctx)
}

// The same while a process that has come to another GPU is saved and goes on: it is as it
// was, or has ended, and never runs without its memory.
func TestFaultsSplitAfterOtherGPU(t *testing.T) {
	for rule, lost := range map[string]bool{
		"create comm=toy1 nth=1 error=999":       false,
		"export comm=toy1 nth=2 error=999":       false, // the first is of the park
		"map comm=toy1 nth=1 error=999":          false,
		"import comm=hetgpu-gpu nth=4 error=999": false,
		"import comm=hetgpu-gpu nth=4 crash":     true,
	} {
		t.Run(rule, func(t *testing.T) {
			d := onGPUs(t)
			ctx := d.testContext(t)
			args := []string{inContainer + "/toy", "-i", "10", "-n", "2", "-b", "6000000"}
			dir, _ := d.saved(ctx, t, d.splitOn([]int{0}, args...), 2)
			s := d.splitOn([]int{1}, args...)
			p := &patient{container: d.restore(ctx, t, s, dir), ranks: 2, dir: filepath.Join(t.TempDir(), "snapshot")}
			p.ticksOn(ctx, 2)
			p.files = p.allFiles()
			d.faults(t, rule)
			err := p.checkpointDirectly(ctx, false)
			d.faults(t)
			t.Logf("the checkpoint says: %v", err)
			if lost {
				expectError(t, err, "device memory is lost", "the container was ended")
				p.expectEnded(t)
				return
			}
			if err == nil {
				expectSplit(t, p.dir)
				p.startOver()
			}
			p.expectRecovered(ctx)
		})
	}
}
