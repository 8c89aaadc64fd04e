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
	"strings"
	"syscall"
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
		if limit := n.read(ctx, t, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory.max"); limit != fmt.Sprint(64<<20) {
			t.Errorf("its limit of memory is %s", limit)
		}
		// Half of a period of 100 ms.
		if quota := n.read(ctx, t, "/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu.max"); quota != "50000" && quota != "50000 100000" {
			t.Errorf("its limit of processor time is %s", quota)
		}
		if used := n.memoryUsed(ctx, t, "runs"); used == 0 || used > 64<<20 {
			t.Errorf("it uses %d bytes of memory", used)
		}
	})
}

// TestKubeFails: a container that ends, or whose probe fails, is started again, and
// says how it ended.
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
  - name: hangs
    image: `+image+`
    imagePullPolicy: Never
    command: [sleep, "1000000"]
    livenessProbe: {exec: {command: [test, -e, /alive]}, periodSeconds: 1, failureThreshold: 1}
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
			hangs := p.Container("hangs")
			if hangs.RestartCount == 0 || hangs.LastState.Terminated == nil {
				return fmt.Errorf("the one that hangs was not started again: %+v", hangs)
			}
			if code := hangs.LastState.Terminated.ExitCode; code != 128+int(syscall.SIGKILL) {
				return testbed.Permanent(fmt.Errorf("the one that hangs ended with %d", code))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

// TestKubeApart: our kubelets have to themselves what a kubelet has at fixed places,
// and leave the machine's alone.
func TestKubeApart(t *testing.T) {
	on(t, setups[0], func(ctx context.Context, t *testing.T, n *node) {
		const socket = "/var/lib/kubelet/device-plugins/kubelet.sock"
		var own os.FileInfo
		err := n.Eventually(ctx, "device plugins can register", func() (err error) {
			own, err = os.Stat(n.Fixed(socket))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if machines, err := os.Stat(socket); err == nil && os.SameFile(own, machines) {
			t.Errorf("%s is ours", socket)
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
				CPU    struct{ UsageCoreNanoSeconds uint64 }
				Memory struct{ WorkingSetBytes uint64 }
			}
		}
	}
	if err := json.Unmarshal(body, &summary); err != nil {
		return 0, err
	}
	for _, p := range summary.Pods {
		for _, c := range p.Containers {
			if p.PodRef.Name == testbed.PodName(pod) && c.Name == "main" && c.CPU.UsageCoreNanoSeconds > 0 && c.Memory.WorkingSetBytes > 0 {
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

// read is what the main container of TestKubeRuns has in the first of these files
// that is there.
func (n *node) read(ctx context.Context, t *testing.T, files ...string) string {
	t.Helper()
	for _, file := range files {
		if out, err := n.Exec(ctx, "runs", "main", "cat", file); err == nil {
			return strings.TrimSpace(out)
		}
	}
	t.Errorf("the container has none of %q", files)
	return ""
}
