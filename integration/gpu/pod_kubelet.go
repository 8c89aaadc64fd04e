// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/testbed"
)

const (
	// podDevices is what pods ask the kubelet for, and shares how many may have it.
	podDevices   = "hetgpu.io/gpu"
	deviceShares = 4
)

// kubeletPods are static pods. They get the CDI device by a device plugin.
type kubeletPods struct {
	*testbed.Kubelet
	n *node
}

var _ pods = kubeletPods{}

// startKubelet starts one, which a cleanup ends.
func (n *node) startKubelet(ctx context.Context) (pods, error) {
	if _, err := n.d.Lookup("kubelet"); err != nil {
		return nil, skipError(fmt.Sprintf("there is no kubelet: %v", err))
	}
	k, err := n.d.StartKubelet(ctx, nil)
	if err != nil {
		return nil, err
	}
	n.t.cleanup(func(ctx context.Context) error {
		return errors.Join(n.t.keepLog(k.LogPath(), "kubelet.log"), k.Stop(ctx))
	})
	return kubeletPods{k, n}, k.ServeDevices(ctx, podDevices, deviceShares, n.device)
}

// It has to be asked for a log.
func (k kubeletPods) logInterval() time.Duration { return 200 * time.Millisecond }

func (k kubeletPods) start(ctx context.Context, name string, command []string, annotations map[string]string) (running, error) {
	type object map[string]any
	var env, volumes, mounts []object
	for _, e := range k.n.t.podEnv() {
		name, value, _ := strings.Cut(e, "=")
		env = append(env, object{"name": name, "value": value})
	}
	for i, path := range k.n.t.podMounts() {
		volume := fmt.Sprintf("v%d", i)
		volumes = append(volumes, object{"name": volume, "hostPath": object{"path": path}})
		mounts = append(mounts, object{"name": volume, "mountPath": path})
	}
	manifest, err := json.Marshal(object{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": object{"name": name, "namespace": "default", "annotations": annotations},
		"spec": object{
			"terminationGracePeriodSeconds": 1, "restartPolicy": "Never", "hostNetwork": k.n.onHost != nil, "volumes": volumes,
			"containers": []object{{
				"name": inPod, "image": podImage, "imagePullPolicy": "Never", "command": command, "env": env, "volumeMounts": mounts,
				"resources": object{"limits": object{podDevices: 1}},
			}},
		},
	})
	if err != nil {
		return nil, err
	}
	if err := k.Apply(name, string(manifest)); err != nil {
		return nil, err
	}
	p := kubeletPod{k, name}
	_, err = k.WaitPod(ctx, name, func(pod *testbed.Pod) error {
		c := pod.Container(inPod)
		switch {
		case c.State.Running != nil:
			return nil
		case pod.Status.Phase == "Failed":
			return testbed.Permanent(fmt.Errorf("it has failed: %s %s; its container is %s", pod.Status.Reason, pod.Status.Message, c.State))
		}
		return fmt.Errorf("it is %s, its container is %s", pod.Status.Phase, c.State)
	})
	return p, err
}

// kubeletPod is a static pod.
type kubeletPod struct {
	kubeletPods
	name string
}

func (p kubeletPod) log(ctx context.Context) (string, error) {
	log, err := p.Logs(ctx, p.name, inPod)
	if err != nil {
		// A container that never ran has none, and the kubelet can't say so.
		log = ""
	}
	return log, nil
}

func (p kubeletPod) checkpoint(ctx context.Context) (string, error) {
	return p.Checkpoint(ctx, p.name, inPod)
}

func (p kubeletPod) exec(ctx context.Context, args ...string) (string, error) {
	return p.Exec(ctx, p.name, inPod, args...)
}

func (p kubeletPod) status(ctx context.Context) (*testbed.Pod, error) {
	return p.WaitPod(ctx, p.name, func(*testbed.Pod) error { return nil })
}

func (p kubeletPod) address(ctx context.Context) (string, error) {
	pod, err := p.status(ctx)
	if err != nil {
		return "", err
	}
	return pod.Status.PodIP, nil
}

func (p kubeletPod) state(ctx context.Context) (string, error) {
	pod, err := p.status(ctx)
	if err != nil {
		return "", err
	}
	return pod.Container(inPod).State.String(), nil
}

func (p kubeletPod) remove(ctx context.Context) error { return p.Remove(ctx, p.name) }
