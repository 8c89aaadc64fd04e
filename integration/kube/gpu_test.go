// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/standin"
	"github.com/hetgpu/containerd-shim-hetgpu/integration/testbed"
)

// toys is a pod that computes on the GPU that stands in for one. Its nodes come by
// mounts, and so the container is privileged: there is no device plugin here.
func (n *node) toys(name, annotations string) string {
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
    command: [/standin/toy, -i, "20"]
    env: [{name: HETGPU_STANDIN, value: ` + n.gpu.Dir + `}]
    securityContext: {privileged: true}
    volumeMounts:
    - {name: programs, mountPath: /standin, readOnly: true}
    - {name: machine, mountPath: ` + n.gpu.Dir + `}
    - {name: ctl, mountPath: /dev/nvidiactl}
    - {name: gpu, mountPath: /dev/nvidia0}
  volumes:
  - {name: programs, hostPath: {path: ` + n.programs + `}}
  - {name: machine, hostPath: {path: ` + n.gpu.Dir + `}}
  - {name: ctl, hostPath: {path: ` + filepath.Join(n.gpu.DevDir(), "nvidiactl") + `}}
  - {name: gpu, hostPath: {path: ` + filepath.Join(n.gpu.DevDir(), "nvidia0") + `}}
`
}

var tick = regexp.MustCompile(`^tick ([0-9]+) sum `)

// ticks reads the first and the last tick of a toy, which has checked its memory.
func (n *node) ticks(ctx context.Context, pod string) (first, last int, err error) {
	log, err := n.Logs(ctx, pod, "main")
	if err != nil {
		return 0, 0, err
	}
	return ticksIn(log)
}

func ticksIn(log string) (first, last int, err error) {
	for line := range strings.Lines(log) {
		found := tick.FindStringSubmatch(line)
		if found == nil {
			return 0, 0, testbed.Permanent(fmt.Errorf("it wrote %q", line))
		}
		i, err := strconv.Atoi(found[1])
		if err != nil || last != 0 && i != last+1 {
			return 0, 0, testbed.Permanent(fmt.Errorf("it wrote %q after tick %d", line, last))
		}
		if first == 0 {
			first = i
		}
		last = i
	}
	return first, last, nil
}

// waitTick waits for a tick, and returns the first and the last.
func (n *node) waitTick(ctx context.Context, t *testing.T, pod string, want int) (first, last int) {
	t.Helper()
	err := n.Eventually(ctx, fmt.Sprintf("%s comes to tick %d", pod, want), func() (err error) {
		if first, last, err = n.ticks(ctx, pod); err == nil && last < want {
			err = fmt.Errorf("it is at %d", last)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return first, last
}

// faults makes calls of the driver go wrong until the test ends, or the next call.
func (n *node) faults(t *testing.T, rules ...string) {
	t.Helper()
	if err := n.gpu.SetFaults(rules...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.gpu.SetFaults() })
}

// TestKubeGPU: a checkpoint of a pod that computes on a GPU, and the way back.
func TestKubeGPU(t *testing.T) {
	each(t, func(ctx context.Context, t *testing.T, n *node) {
		n.apply(ctx, t, "computes", n.toys("computes", ""))
		n.waitTick(ctx, t, "computes", 5)
		archive, err := n.Checkpoint(ctx, "computes", "main")
		if err != nil {
			t.Fatal(err)
		}
		n.expectArchive(ctx, t, archive, "main")
		out, err := n.d.Exec(ctx, "hetgpu", "inspect", "--json", archive)
		if err != nil {
			t.Fatal(err)
		}
		var report struct {
			Manifest struct {
				Engine    string
				Processes []struct{ Command string }
			}
		}
		if err := json.Unmarshal([]byte(out), &report); err != nil || report.Manifest.Engine != "driver" || len(report.Manifest.Processes) != 1 {
			t.Fatalf("the manifest: %+v, %v", report, err)
		}
		n.keep(t, archive, "computes.tar")
		_, last, err := n.ticks(ctx, "computes")
		if err != nil {
			t.Fatal(err)
		}
		_, last = n.waitTick(ctx, t, "computes", last+3)
		n.remove(ctx, t, "computes")

		n.apply(ctx, t, "goes-on", n.toys("goes-on", "io.hetgpu.restore/main: computes.tar"))
		first, _ := n.waitTick(ctx, t, "goes-on", last+3)
		if first < 5 || first > last {
			t.Errorf("it goes on with tick %d of %d", first, last)
		}
	})
}

// TestKubeGPUNotRestored: without its GPU state a container is not there, and its
// image's command is never started.
func TestKubeGPUNotRestored(t *testing.T) {
	on(t, setups[0], func(ctx context.Context, t *testing.T, n *node) {
		n.apply(ctx, t, "source", n.toys("source", ""))
		n.waitTick(ctx, t, "source", 3)
		archive, err := n.Checkpoint(ctx, "source", "main")
		if err != nil {
			t.Fatal(err)
		}
		n.keep(t, archive, "source.tar")
		n.remove(ctx, t, "source")
		n.faults(t, "restore error=999")
		n.apply(ctx, t, "lost", n.toys("lost", "io.hetgpu.restore: source.tar"))
		n.expectNotStarted(ctx, t, "lost", "gpu-resume")
	})
}

// TestKubeCheckpointTimeout: a checkpoint that takes longer than the pod allows ends.
func TestKubeCheckpointTimeout(t *testing.T) {
	on(t, setups[0], func(ctx context.Context, t *testing.T, n *node) {
		n.apply(ctx, t, "slow", n.toys("slow", "io.hetgpu.checkpoint.timeout: 10s"))
		n.waitTick(ctx, t, "slow", 3)
		n.faults(t, "lock error=600")
		if _, err := n.Checkpoint(ctx, "slow", "main"); err == nil || !strings.Contains(err.Error(), "within 10s") {
			t.Errorf("got %v", err)
		}
		n.expectGoesOn(ctx, t, "slow")
	})
}

// TestKubeCheckpointDeadline: a checkpoint that takes longer than its caller waits
// ends. The CRI has nothing for that but the deadline of the call; the kubelet's is
// two minutes at least.
func TestKubeCheckpointDeadline(t *testing.T) {
	each(t, func(ctx context.Context, t *testing.T, n *node) {
		n.apply(ctx, t, "late", n.toys("late", ""))
		n.waitTick(ctx, t, "late", 3)
		pod, err := n.WaitPod(ctx, "late", ready("main"))
		if err != nil {
			t.Fatal(err)
		}
		runtime, err := n.d.Runtime()
		if err != nil {
			t.Fatal(err)
		}
		n.faults(t, "lock error=600")
		_, id, _ := strings.Cut(pod.Container("main").ContainerID, "://")
		short, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		archive := filepath.Join(n.Checkpoints(), "late.tar")
		if _, err := runtime.CheckpointContainer(short, &cri.CheckpointContainerRequest{ContainerId: id, Location: archive}); err == nil {
			t.Error("it was saved")
		}
		n.expectGoesOn(ctx, t, "late")
		if _, err := os.Lstat(archive); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("there is an archive: %v", err)
		}
	})
}

// TestKubeCheckpointAbandoned: a checkpoint that nobody waits for ends.
func TestKubeCheckpointAbandoned(t *testing.T) {
	each(t, func(ctx context.Context, t *testing.T, n *node) {
		for pod, fault := range map[string]string{
			// containerd pauses the container first, and that waits for the GPU.
			"in-pause": "lock delay=4000 times=1",
			"in-dump":  "checkpoint delay=4000 times=1",
		} {
			n.apply(ctx, t, pod, n.toys(pod, ""))
			n.waitTick(ctx, t, pod, 3)
			n.faults(t, fault)
			before, err := n.gpu.Calls()
			if err != nil {
				t.Fatal(err)
			}
			impatient, leave := context.WithCancel(ctx)
			done := make(chan error, 1)
			go func() {
				_, err := n.Checkpoint(impatient, pod, "main")
				done <- err
			}()
			operation, _, _ := strings.Cut(fault, " ")
			err = n.Eventually(ctx, "the driver is busy with a "+operation, func() error {
				calls, err := n.gpu.Calls()
				if err == nil && !slices.ContainsFunc(calls[min(len(before), len(calls)):], func(c standin.Call) bool { return c.Op == operation }) {
					err = fmt.Errorf("%d calls", len(calls)-len(before))
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			leave()
			if err := <-done; err == nil {
				t.Errorf("%s: no error", pod)
			}
			n.expectGoesOn(ctx, t, pod)
			n.remove(ctx, t, pod)
		}
	})
}

// expectGoesOn ends the faults, and wants the pod to go on, and to be one that can
// be checkpointed, as soon as what went wrong has been undone.
func (n *node) expectGoesOn(ctx context.Context, t *testing.T, pod string) {
	t.Helper()
	n.faults(t)
	err := n.Eventually(ctx, "it can be checkpointed", func() error {
		_, err := n.Checkpoint(ctx, pod, "main")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	_, last, err := n.ticks(ctx, pod)
	if err != nil {
		t.Fatal(err)
	}
	n.waitTick(ctx, t, pod, last+5)
}

// TestKubeCheckpointTwice: of two checkpoints of a container at once one is
// refused, and the container goes on.
func TestKubeCheckpointTwice(t *testing.T) {
	each(t, func(ctx context.Context, t *testing.T, n *node) {
		n.apply(ctx, t, "twice", n.toys("twice", ""))
		n.waitTick(ctx, t, "twice", 3)
		before, err := n.gpu.Calls()
		if err != nil {
			t.Fatal(err)
		}
		n.faults(t, "checkpoint delay=3000 times=1")
		first := make(chan error, 1)
		go func() {
			_, err := n.Checkpoint(ctx, "twice", "main")
			first <- err
		}()
		err = n.Eventually(ctx, "the first is under way", func() error {
			calls, err := n.gpu.Calls()
			if err == nil && len(calls) <= len(before)+2 {
				err = fmt.Errorf("%d calls", len(calls)-len(before))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := n.Checkpoint(ctx, "twice", "main"); err == nil || !strings.Contains(err.Error(), "is under way") {
			t.Errorf("the second: %v", err)
		}
		// containerd's CRI has one directory for both, and the second took it away.
		if err := <-first; err != nil && !strings.Contains(err.Error(), "/ctrd-checkpoint") {
			t.Errorf("the first: %v", err)
		}
		n.faults(t)
		_, last, err := n.ticks(ctx, "twice")
		if err != nil {
			t.Fatal(err)
		}
		n.waitTick(ctx, t, "twice", last+5)
		archive, err := n.Checkpoint(ctx, "twice", "main")
		if err != nil {
			t.Fatal(err)
		}
		n.expectArchive(ctx, t, archive, "main")
	})
}
