// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/standin"
)

const (
	// driverVersion is the stand-in's.
	driverVersion = "580.159.04"
	// machineDevice is the CDI device of what the stand-in needs in a container
	// beside a driver's files.
	machineDevice = "test.hetgpu.local/standin=machine"
)

// driver is where the node has a driver's files and nodes.
func (n *node) driver() string { return filepath.Join(n.hetgpu, "driver") }

// cdi is where its containerd looks for CDI specifications.
func (n *node) cdi() string { return filepath.Join(n.hetgpu, "cdi") }

// installDriver makes the file tree of a driver, and a CDI specification of what
// the stand-in needs besides.
func (n *node) installDriver() error {
	if err := standin.InstallDriver(filepath.Join(n.driver(), "usr/lib/x86_64-linux-gnu"), n.programs, driverVersion); err != nil {
		return err
	}
	for _, dir := range []string{filepath.Join(n.driver(), "dev"), n.cdi()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := n.gpu.Nodes(filepath.Join(n.driver(), "dev"), "nvidiactl", "nvidia-uvm", "nvidia0", "nvidia1"); err != nil {
		return err
	}
	kind, name, _ := strings.Cut(machineDevice, "=")
	type object map[string]any
	spec, err := json.Marshal(object{
		"cdiVersion": "0.5.0", "kind": kind,
		"devices": []object{{"name": name, "containerEdits": object{
			"env":    []string{"HETGPU_STANDIN=" + n.gpu.Dir},
			"mounts": []object{{"hostPath": n.gpu.Dir, "containerPath": n.gpu.Dir, "options": []string{"rbind", "rw"}}},
		}}},
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(n.cdi(), "standin.json"), spec, 0o600)
}

// nvidiaCTK is the command by which NVIDIA's toolkit writes the node's CDI
// specification.
func (n *node) nvidiaCTK() string {
	hook, _ := n.d.Lookup("nvidia-cdi-hook") // it is in the same directory
	return fmt.Sprintf("nvidia-ctk --quiet cdi generate --driver-root %[1]s --dev-root %[1]s --nvidia-cdi-hook-path %[2]s --output %[3]s/nvidia.yaml", n.driver(), hook, n.cdi())
}

// serve has the kubelet give a device away, under the name of a resource.
func (n *node) serve(ctx context.Context, t *testing.T, resource, device string) {
	t.Helper()
	if n.served[resource] {
		return
	}
	if err := n.ServeDevices(ctx, resource, 4, device, machineDevice); err != nil {
		t.Fatal(err)
	}
	n.served[resource] = true
}

// trains is a pod that computes on a GPU which a device plugin gives it.
func trains(name, resource, annotations string) string {
	return `
apiVersion: v1
kind: Pod
metadata: {name: ` + name + `, namespace: default, annotations: {` + annotations + `}}
spec:
  terminationGracePeriodSeconds: 1
  restartPolicy: Never
  containers:
  - name: main
    image: ` + image + `
    imagePullPolicy: Never
    command: [train]
    resources: {limits: {` + resource + `: 1}}
`
}

// TestKubeDevices: pods that have their GPU from a device plugin and CDI, of ours and
// of NVIDIA's own tools, go on in other pods, by either engine.
func TestKubeDevices(t *testing.T) {
	each(t, func(ctx context.Context, t *testing.T, n *node) {
		for resource, cdi := range map[string]struct {
			device, generate, engine string
			files                    []string
		}{
			"hetgpu.io/gpu": {
				device: "hetgpu.io/gpu=all", engine: "split", files: []string{"checkpoint/hetgpu-mem.img", "checkpoint/hetgpu-mem-0.img"},
				generate: fmt.Sprintf("hetgpu cdi generate --driver-root %[1]s --dev-root %[1]s --library-dir %[2]s --output %[3]s/hetgpu.yaml", n.driver(), filepath.Join(n.hetgpu, "libhetcuda"), n.cdi()),
			},
			"nvidia.com/gpu": {device: "nvidia.com/gpu=all", engine: "driver", generate: n.nvidiaCTK()},
		} {
			if out, err := n.d.Exec(ctx, "bash", "-euc", cdi.generate); err != nil {
				t.Fatalf("%s, %v", out, err)
			}
			n.serve(ctx, t, resource, cdi.device)
			before, after := "before-"+cdi.engine, "after-"+cdi.engine
			n.apply(ctx, t, before, trains(before, resource, ""))
			n.waitTick(ctx, t, before, 5)
			archive, err := n.Checkpoint(ctx, before, "main")
			if err != nil {
				t.Fatal(err)
			}
			if engine := n.engineOf(ctx, t, archive); engine != cdi.engine {
				t.Errorf("%s was saved by the engine %q", resource, engine)
			}
			n.expectArchive(ctx, t, archive, "main", cdi.files...)
			n.keep(t, archive, before+".tar")
			_, last, err := n.ticks(ctx, before)
			if err != nil {
				t.Fatal(err)
			}
			n.remove(ctx, t, before)
			n.apply(ctx, t, after, trains(after, resource, "io.hetgpu.restore: "+before+".tar"))
			first, _ := n.waitTick(ctx, t, after, last+3)
			if first < 5 || first > last+1 {
				t.Errorf("it goes on with tick %d, and was at %d", first, last)
			}
			if cdi.engine == "driver" {
				n.expectHooked(ctx, t, after)
			}
			n.remove(ctx, t, after)
		}
	})
}

// engineOf is the engine that an archive's manifest names.
func (n *node) engineOf(ctx context.Context, t *testing.T, archive string) string {
	t.Helper()
	out, err := n.d.Exec(ctx, "hetgpu", "inspect", "--json", archive)
	var report struct {
		Manifest struct{ Engine string }
		Problems []string
	}
	if err == nil {
		err = json.Unmarshal([]byte(out), &report)
	}
	if err != nil || len(report.Problems) > 0 {
		t.Fatalf("%s, %v", out, err)
	}
	return report.Manifest.Engine
}

// expectHooked fails unless a pod has what NVIDIA's hooks make.
func (n *node) expectHooked(ctx context.Context, t *testing.T, pod string) {
	t.Helper()
	lib := "/usr/lib/x86_64-linux-gnu/"
	for command, want := range map[string]string{
		"readlink " + lib + "libcuda.so":                   "libcuda.so.1\n",
		"grep -c " + lib + "libcuda.so.1 /etc/ld.so.cache": "1\n",
		"readlink -f " + lib + "libcuda.so.1":              lib + "libcuda.so." + driverVersion + "\n",
	} {
		if out, err := n.Exec(ctx, pod, "main", strings.Fields(command)...); err != nil || out != want {
			t.Errorf("%s: %q, %v; want %q", command, out, err, want)
		}
	}
}

// TestKubeDocsGPU does what docs/kubernetes.md says of a pod with a GPU.
func TestKubeDocsGPU(t *testing.T) {
	all, err := recipes()
	if err != nil {
		t.Fatal(err)
	}
	eachOf(t, setups[:2], func(ctx context.Context, t *testing.T, n *node) {
		var last, steps int
		for _, r := range all {
			text := n.here(r.text)
			switch {
			case r.name == "gpu":
				steps++
				if out, err := n.d.Exec(ctx, "bash", "-euc", text); err != nil {
					t.Fatalf("%s: %s, %v", text, out, err)
				}
				n.serve(ctx, t, "nvidia.com/gpu", "nvidia.com/gpu=all")
			case strings.HasPrefix(r.name, "train"):
				steps++
				n.apply(ctx, t, r.name, text)
				var first int
				first, last = n.waitTick(ctx, t, r.name, last+3)
				if r.name == "train-2" && first == 1 {
					t.Errorf("%s began anew", r.name)
				}
			}
		}
		if steps != 4 {
			t.Errorf("%d steps of a pod with a GPU in docs/kubernetes.md", steps)
		}
	})
}
