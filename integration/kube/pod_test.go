// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/testbed"
)

// TestKubeRuns: what Kubernetes does with any pod it can do with ours.
func TestKubeRuns(t *testing.T) {
	each(t, func(ctx context.Context, t *testing.T, n *node) {
		n.apply(ctx, t, "runs", `
apiVersion: v1
kind: Pod
metadata:
  name: runs
  namespace: default
spec:
  terminationGracePeriodSeconds: 1
  initContainers:
  - name: first
    image: `+image+`
    imagePullPolicy: Never
    command: [sh, -c, "echo prepared >/shared/first"]
    volumeMounts: [{name: shared, mountPath: /shared}]
  - name: sidecar
    image: `+image+`
    imagePullPolicy: Never
    restartPolicy: Always
    command: [sh, -c, "echo beside >/shared/sidecar; exec sleep 1000000"]
    startupProbe: {exec: {command: [test, -e, /shared/sidecar]}, periodSeconds: 1, failureThreshold: 60}
    volumeMounts: [{name: shared, mountPath: /shared}]
  containers:
  - name: main
    image: `+image+`
    imagePullPolicy: Never
    command: [sh, -c, "cat /shared/first /shared/sidecar; hostname; mkdir /www; echo ready >/www/index.html; exec httpd -f -p 8080 -h /www"]
    ports: [{containerPort: 8080}]
    readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1, failureThreshold: 60}
    livenessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1, failureThreshold: 60}
    resources: {limits: {memory: 64Mi, cpu: 500m}}
    volumeMounts: [{name: shared, mountPath: /shared}]
  volumes:
  - name: shared
    emptyDir: {}
`)
		pod, err := n.WaitPod(ctx, "runs", ready("main", "sidecar"))
		if err != nil {
			t.Fatal(err)
		}
		if first := pod.Container("first").State.Terminated; first == nil || first.ExitCode != 0 {
			t.Errorf("the init container: %+v", pod.Container("first"))
		}
		if !strings.HasPrefix(pod.Status.PodIP, "10.203.") {
			t.Errorf("the pod's address is %q", pod.Status.PodIP)
		}
		n.waitLog(ctx, t, "prepared\nbeside\n"+testbed.PodName("runs")+"\n")
		if out, err := n.Exec(ctx, "runs", "main", "cat", "/www/index.html"); err != nil || out != "ready\n" {
			t.Errorf("exec: %q, %v", out, err)
		}
		// Sandbox and containers are one shim's.
		if shims, err := n.shims(); err != nil || shims != 1 {
			t.Errorf("%d shims for one pod, %v", shims, err)
		}
		if limit := n.memoryLimit(ctx, t); limit != 64<<20 {
			t.Errorf("its limit of memory is %d", limit)
		}
		if used := n.memoryUsed(ctx, t, "runs"); used == 0 || used > 64<<20 {
			t.Errorf("it uses %d bytes of memory", used)
		}
	})
}

// TestKubeFails: a container that ends is started again, and says how it ended.
func TestKubeFails(t *testing.T) {
	each(t, func(ctx context.Context, t *testing.T, n *node) {
		n.apply(ctx, t, "fails", `
apiVersion: v1
kind: Pod
metadata: {name: fails, namespace: default}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: `+image+`
    imagePullPolicy: Never
    command: [sh, -c, "echo it was me >/dev/termination-log; exit 7"]
`)
		_, err := n.WaitPod(ctx, "fails", func(p *testbed.Pod) error {
			c := p.Container("main")
			last := c.LastState.Terminated
			if c.RestartCount == 0 || last == nil {
				return fmt.Errorf("it was not started again: %+v", c)
			}
			if last.ExitCode != 7 || strings.TrimSpace(last.Message) != "it was me" {
				return testbed.Permanent(fmt.Errorf("it ended with %+v", *last))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

// apply runs a pod until the test ends.
func (n *node) apply(ctx context.Context, t *testing.T, name, manifest string) {
	t.Helper()
	if err := n.Apply(name, manifest); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		n.remove(ctx, t, name)
	})
}

// remove ends a pod and waits until it is gone.
func (n *node) remove(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	if err := n.Remove(ctx, name); err != nil {
		t.Error(err)
	}
}

// ready wants containers to be ready.
func ready(containers ...string) func(*testbed.Pod) error {
	return func(p *testbed.Pod) error {
		for _, name := range containers {
			if c := p.Container(name); !c.Ready {
				return fmt.Errorf("container %s is not ready: %s", name, c.State)
			}
		}
		return nil
	}
}

// waitLog waits until the container of TestKubeRuns has written a text.
func (n *node) waitLog(ctx context.Context, t *testing.T, want string) {
	t.Helper()
	err := n.Eventually(ctx, "it has written "+want, func() error {
		log, err := n.Logs(ctx, "runs", "main")
		if err == nil && !strings.Contains(log, want) {
			err = fmt.Errorf("it wrote %q", log)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// shims is the number of shims that run.
func (n *node) shims() (int, error) {
	procs, err := n.d.Processes()
	count := 0
	for _, p := range procs {
		if !p.Container && strings.Contains(p.Command, "containerd-shim-hetgpu-v2") {
			count++
		}
	}
	return count, err
}

// summary asks for the kubelet's statistics of a pod's main container.
func (n *node) summary(ctx context.Context, pod string) (used uint64, err error) {
	body, err := n.Get(ctx, "/stats/summary")
	if err != nil {
		return 0, err
	}
	var summary struct {
		Pods []struct {
			PodRef     struct{ Name string }
			Containers []struct {
				Name   string
				Memory struct{ WorkingSetBytes uint64 }
			}
		}
	}
	if err := json.Unmarshal(body, &summary); err != nil {
		return 0, err
	}
	for _, p := range summary.Pods {
		for _, c := range p.Containers {
			if p.PodRef.Name == testbed.PodName(pod) && c.Name == "main" && c.Memory.WorkingSetBytes > 0 {
				return c.Memory.WorkingSetBytes, nil
			}
		}
	}
	return 0, errors.New("no statistics yet")
}

// memoryUsed waits for the kubelet's statistics.
func (n *node) memoryUsed(ctx context.Context, t *testing.T, pod string) (used uint64) {
	t.Helper()
	err := n.Eventually(ctx, "there are statistics", func() (err error) {
		used, err = n.summary(ctx, pod)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return used
}

// memoryLimit is what the cgroup of TestKubeRuns's container has.
func (n *node) memoryLimit(ctx context.Context, t *testing.T) (limit uint64) {
	t.Helper()
	for _, file := range []string{"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory.max"} {
		out, err := n.Exec(ctx, "runs", "main", "cat", file)
		if err != nil {
			continue
		}
		if _, err := fmt.Sscan(out, &limit); err == nil {
			return limit
		}
	}
	t.Error("the container does not see its limit")
	return 0
}
