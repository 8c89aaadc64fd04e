// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
)

// nodeName is the name of the node, which the kubelet adds to those of static pods.
const nodeName = "node"

// kubeletTimeout is how long a kubelet may take to serve, and to end.
const kubeletTimeout = 2 * time.Minute

// Kubelet is a kubelet on a daemon that serves the CRI. It runs the pods of a
// directory, and those of a cluster if it is in one.
type Kubelet struct {
	// Dir is its root directory.
	Dir string

	d       *Daemon
	cluster *ControlPlane
	process *server
	client  *http.Client
	base    string
	// plugins give it devices.
	plugins []*grpc.Server
	// together ends its mount namespace's ties with the machine.
	together func() error
}

// StartKubelet starts a kubelet and waits until it serves. The cluster is nil for
// none.
func (d *Daemon) StartKubelet(ctx context.Context, cluster *ControlPlane) (_ *Kubelet, err error) {
	k := &Kubelet{Dir: d.kubeletDir(), d: d, cluster: cluster, client: &http.Client{Transport: &http.Transport{
		// Its certificate is its own.
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}}
	defer func() {
		if err != nil {
			err = fmt.Errorf("start the kubelet: %w\n%s", err, k.LogTail())
		}
	}()
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	k.base = fmt.Sprintf("https://%s:%d", k.address(), port)
	for _, dir := range []string{k.pods(), filepath.Join(k.Dir, "certificates")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	if err := k.writeConfig(port); err != nil {
		return nil, err
	}
	program, err := d.Lookup("kubelet")
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program, "--config", k.configPath(), "--root-dir", k.Dir, "--cert-dir", filepath.Join(k.Dir, "certificates"),
		"--hostname-override", nodeName, "--node-ip", k.address(), "-v", "2")
	if cluster != nil {
		user, err := cluster.kubeconfig("system:node:"+nodeName, "system:nodes")
		if err != nil {
			return nil, err
		}
		cmd.Args = append(cmd.Args, "--kubeconfig", user)
	}
	// It is nothing of the daemon's.
	cmd.Env = withoutEnv(d.env, markerEnv)
	if k.together, err = runApart(cmd, k.Fixed("/"), k.Dir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, k.together())
		}
	}()
	if k.process, err = serve(cmd, k.LogPath()); err != nil {
		return nil, err
	}
	k.process.name = "kubelet"
	ctx, cancel := context.WithTimeout(ctx, kubeletTimeout)
	defer cancel()
	err = k.Eventually(ctx, "the kubelet serves", func() error {
		_, err := k.Get(ctx, "/healthz")
		if err == nil && cluster != nil {
			err = cluster.nodeReady(ctx)
		}
		return err
	})
	if err != nil {
		k.process.kill()
		return nil, err
	}
	return k, nil
}

func freePort(ctx context.Context) (int, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// address is where it serves, on the loopback.
func (k *Kubelet) address() string {
	if k.cluster == nil {
		return "127.0.0.1"
	}
	return k.cluster.address
}

func (k *Kubelet) configPath() string { return filepath.Join(k.d.Dir, "kubelet.json") }

// LogPath is the kubelet's log.
func (k *Kubelet) LogPath() string { return filepath.Join(k.d.Dir, "kubelet.log") }

// pods is the directory of static pods.
func (k *Kubelet) pods() string { return filepath.Join(k.Dir, "static") }

// Fixed is where the machine sees what the kubelet sees at a path that is not ours to
// choose.
func (k *Kubelet) Fixed(path string) string { return filepath.Join(k.d.Dir, "kubelet-fixed", path) }

// URL is where the kubelet serves.
func (k *Kubelet) URL() string { return k.base }

// Checkpoints is the directory of the kubelet's archives.
func (k *Kubelet) Checkpoints() string { return k.d.KubeletCheckpoints() }

func (d *Daemon) kubeletDir() string { return filepath.Join(d.Dir, "kubelet") }

// KubeletCheckpoints is where a kubelet of the daemon has its archives, or will.
func (d *Daemon) KubeletCheckpoints() string { return filepath.Join(d.kubeletDir(), "checkpoints") }

func (k *Kubelet) writeConfig(port int) error {
	type object map[string]any
	never := object{"memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%", "imagefs.inodesFree": "0%", "pid.available": "0%"}
	config, err := json.MarshalIndent(object{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"containerRuntimeEndpoint": "unix://" + k.d.Address(),
		"staticPodPath":            k.pods(), "fileCheckFrequency": "1s", "syncFrequency": "1s",
		"podLogsDir": filepath.Join(k.Dir, "logs"), "volumePluginDir": filepath.Join(k.Dir, "plugins"),
		"address": k.address(), "port": port, "healthzPort": 0, "readOnlyPort": 0,
		"authentication": object{"anonymous": object{"enabled": true}, "webhook": object{"enabled": false}},
		"authorization":  object{"mode": "AlwaysAllow"},
		// Nothing of the machine's is changed, and no limit of it is in the way.
		"cgroupDriver": "cgroupfs", "cgroupsPerQOS": false, "enforceNodeAllocatable": []string{},
		"failCgroupV1": false, "failSwapOn": false, "oomScoreAdj": 0, "makeIPTablesUtilChains": false, "protectKernelDefaults": false,
		"evictionHard": never, "imageGCHighThresholdPercent": 100,
		"registerNode": k.cluster != nil, "enableControllerAttachDetach": false,
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(k.configPath(), config, 0o600)
}

// LogTail returns the end of the kubelet's log.
func (k *Kubelet) LogTail() string {
	const most = 16 << 10
	log, err := os.ReadFile(k.LogPath())
	if err != nil {
		return err.Error()
	}
	return string(log[max(0, len(log)-most):])
}

// askInterval is how often the kubelet is asked, for which that is work.
const askInterval = 100 * time.Millisecond

// Eventually is [Eventually] for what the kubelet has to be asked.
func (k *Kubelet) Eventually(ctx context.Context, what string, try func() error) error {
	return eventually(ctx, askInterval, what, func() error {
		if err := k.process.alive(); err != nil {
			return err
		}
		return try()
	})
}

// Stop waits until nothing is left of pods that were removed, and ends the
// kubelet.
func (k *Kubelet) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, kubeletTimeout)
	defer cancel()
	err := k.Eventually(ctx, "what the pods had mounted is gone", func() error {
		mounts, err := k.d.mounts()
		mounts = slices.DeleteFunc(mounts, func(m string) bool { return m == k.Dir })
		if err == nil && len(mounts) > 0 {
			err = fmt.Errorf("mounted is %s", strings.Join(mounts, ", "))
		}
		return err
	})
	err = errors.Join(err, k.process.end(syscall.SIGTERM))
	for _, p := range k.plugins {
		p.Stop()
	}
	return errors.Join(err, k.together())
}

// Get asks for something by the kubelet's API.
func (k *Kubelet) Get(ctx context.Context, path string) ([]byte, error) {
	return k.do(ctx, http.MethodGet, path)
}

// Post asks the kubelet to do something.
func (k *Kubelet) Post(ctx context.Context, path string) ([]byte, error) {
	return k.do(ctx, http.MethodPost, path)
}

func (k *Kubelet) do(ctx context.Context, method, path string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, k.base+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	answer, err := k.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s: %s", method, path, answer.Status, bytes.TrimSpace(body))
	}
	return body, err
}

// Apply makes the kubelet run a pod, given in YAML or JSON, in place of the one
// that it knows by the same name.
func (k *Kubelet) Apply(name, manifest string) error {
	// The kubelet reads no file that begins with a dot.
	hidden := filepath.Join(k.pods(), "."+name)
	if err := os.WriteFile(hidden, []byte(manifest), 0o600); err != nil {
		return err
	}
	return os.Rename(hidden, filepath.Join(k.pods(), name+".yaml"))
}

// Remove ends a pod and waits until it is gone.
func (k *Kubelet) Remove(ctx context.Context, name string) error {
	if err := os.Remove(filepath.Join(k.pods(), name+".yaml")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return k.WaitGone(ctx, PodName(name))
}

// WaitGone waits until the kubelet knows nothing of a pod any more, and nothing
// of it runs. The name is that of the API.
func (k *Kubelet) WaitGone(ctx context.Context, pod string) error {
	return k.Eventually(ctx, "pod "+pod+" is gone", func() error {
		pods, err := k.Pods(ctx)
		if err != nil {
			return err
		}
		for _, p := range pods {
			if p.Metadata.Name == pod {
				return fmt.Errorf("it is %s", p.Status.Phase)
			}
		}
		return k.d.noTasks(ctx, pod)
	})
}

// noTasks fails while a container of the pod has a task.
func (d *Daemon) noTasks(ctx context.Context, pod string) error {
	ctx = d.Context(ctx)
	containers, err := d.Client.Containers(ctx, fmt.Sprintf("labels.%q==%s", "io.kubernetes.pod.name", pod))
	if err != nil {
		return err
	}
	for _, c := range containers {
		if _, err := c.Task(ctx, nil); err == nil {
			return fmt.Errorf("its container %s has a task", c.ID())
		}
		d.ids = append(d.ids, c.ID())
	}
	return nil
}

// PodName is the name that the kubelet gives a static pod.
func PodName(name string) string { return name + "-" + nodeName }

// Pod is what the kubelet says of a pod.
type Pod struct {
	Metadata struct{ Name, Namespace, UID string }
	Status   struct {
		Phase, PodIP, Reason, Message            string
		InitContainerStatuses, ContainerStatuses []ContainerStatus
	}
}

// ContainerStatus is what the kubelet says of a container.
type ContainerStatus struct {
	Name, ContainerID string
	Ready             bool
	RestartCount      int
	State, LastState  ContainerState
}

// ContainerState has one of three.
type ContainerState struct {
	Waiting *struct{ Reason, Message string }
	Running *struct{ StartedAt time.Time }
	// Terminated has the exit code and, for one that could not be started, why.
	Terminated *struct {
		ExitCode        int
		Reason, Message string
	}
}

// Container returns what is known of one of the pod's containers; nothing if
// the kubelet does not know it yet.
func (p *Pod) Container(name string) ContainerStatus {
	for _, c := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
		if c.Name == name {
			return c
		}
	}
	return ContainerStatus{}
}

// Pods lists the pods that the kubelet knows.
func (k *Kubelet) Pods(ctx context.Context) ([]Pod, error) {
	body, err := k.Get(ctx, "/pods")
	if err != nil {
		return nil, err
	}
	var list struct{ Items []Pod }
	return list.Items, json.Unmarshal(body, &list)
}

// WaitPod waits until the pod is as wanted: until there is nothing that want
// says is missing.
func (k *Kubelet) WaitPod(ctx context.Context, name string, want func(*Pod) error) (*Pod, error) {
	var pod *Pod
	err := k.Eventually(ctx, "pod "+name+" is as wanted", func() error {
		pods, err := k.Pods(ctx)
		if err != nil {
			return err
		}
		for i := range pods {
			if pods[i].Metadata.Name == PodName(name) {
				pod = &pods[i]
				return want(pod)
			}
		}
		return errors.New("the kubelet does not know it")
	})
	return pod, err
}

// Logs returns what a container of a pod in the default namespace has written.
func (k *Kubelet) Logs(ctx context.Context, pod, container string) (string, error) {
	body, err := k.Get(ctx, "/containerLogs/default/"+PodName(pod)+"/"+container)
	return string(body), err
}

// Exec runs a command in a container and returns what it wrote.
func (k *Kubelet) Exec(ctx context.Context, pod, container string, args ...string) (string, error) {
	query := url.Values{"cmd": {strings.Join(args, " ")}}
	body, err := k.Post(ctx, "/run/default/"+PodName(pod)+"/"+container+"?"+query.Encode())
	return string(body), err
}

// Checkpoint asks for a checkpoint of a container and returns the archive.
func (k *Kubelet) Checkpoint(ctx context.Context, pod, container string) (archive string, err error) {
	body, err := k.Post(ctx, "/checkpoint/default/"+PodName(pod)+"/"+container)
	if err != nil {
		return "", err
	}
	var list struct{ Items []string }
	if err := json.Unmarshal(body, &list); err != nil || len(list.Items) != 1 {
		return "", fmt.Errorf("the kubelet answered %q: %w", body, err)
	}
	return list.Items[0], nil
}

// String tells which of the three it is, and why.
func (s ContainerState) String() string {
	switch {
	case s.Waiting != nil:
		return fmt.Sprintf("waiting, %s: %s", s.Waiting.Reason, s.Waiting.Message)
	case s.Running != nil:
		return "running"
	case s.Terminated != nil:
		return fmt.Sprintf("ended with %d, %s: %s", s.Terminated.ExitCode, s.Terminated.Reason, s.Terminated.Message)
	}
	return "not known"
}
