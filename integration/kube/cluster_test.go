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
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/testbed"
)

// inCluster is a node of a cluster.
var inCluster = setup{name: "cluster", inCluster: true}

// contrib is where the manifests are, from here.
const contrib = "../../contrib/kubernetes"

// defaultAccount is what a controller makes in a cluster. Its token would need
// another's configuration map.
const defaultAccount = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: default, namespace: default}
automountServiceAccountToken: false
`

// onCluster runs a test on a node of a cluster, whose pods are bound to it.
func onCluster(t *testing.T, test func(ctx context.Context, t *testing.T, n *node)) {
	t.Helper()
	on(t, inCluster, func(ctx context.Context, t *testing.T, n *node) {
		n.kubectl(ctx, t, defaultAccount, "apply", "-f", "-")
		n.schedule(ctx, t)
		test(ctx, t, n)
	})
}

// kubectl runs kubectl, which has to succeed.
func (n *node) kubectl(ctx context.Context, t *testing.T, input string, args ...string) string {
	t.Helper()
	out, err := n.cluster.Kubectl(ctx, input, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// schedule binds pods to the node until the test ends, as a scheduler would.
func (n *node) schedule(ctx context.Context, t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- n.cluster.Schedule(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// ends removes a pod of the cluster at the end of the test.
func (n *node) ends(ctx context.Context, t *testing.T, pod string) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		_, err := n.cluster.Kubectl(ctx, "", "delete", "pod", pod, "--ignore-not-found", "--grace-period=1", "--timeout=50s")
		if err == nil {
			err = n.WaitGone(ctx, pod)
		}
		if err != nil {
			t.Error(err)
		}
	})
}

// kubectlLogs are the numbers that a counter's log begins and ends with.
func (n *node) kubectlLogs(ctx context.Context, pod string) (first, last int, err error) {
	log, err := n.cluster.Kubectl(ctx, "", "logs", pod)
	lines := strings.Fields(log)
	if err != nil || len(lines) == 0 {
		return 0, 0, fmt.Errorf("log of %s: %q, %w", pod, log, err)
	}
	if first, err = strconv.Atoi(lines[0]); err != nil {
		return 0, 0, err
	}
	last, err = strconv.Atoi(lines[len(lines)-1])
	return first, last, err
}

// TestKubeCluster does with kubectl what docs/kubernetes.md says of a cluster:
// with contrib's RuntimeClass, and the documentation's pods as they stand.
func TestKubeCluster(t *testing.T) {
	all, err := recipes()
	if err != nil {
		t.Fatal(err)
	}
	onCluster(t, func(ctx context.Context, t *testing.T, n *node) {
		dir := t.TempDir()
		root, err := filepath.Abs("../..")
		if err == nil {
			err = os.Symlink(filepath.Join(root, "contrib"), filepath.Join(dir, "contrib"))
		}
		if err != nil {
			t.Fatal(err)
		}
		var last, steps int
		for _, r := range all {
			text := n.here(r.text)
			switch {
			case strings.HasPrefix(r.name, "train"):
				continue
			case r.language == "yaml":
				if err := os.WriteFile(filepath.Join(dir, r.name+".yaml"), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				n.ends(ctx, t, r.name)
			case r.name != "cluster":
				continue
			default:
				steps++
				script := fmt.Sprintf("cd %q\nexport KUBECONFIG=%q\n%s", dir, n.cluster.Kubeconfig(), text)
				if strings.Contains(text, "delete pod counter") {
					if _, last, err = n.kubectlLogs(ctx, "counter"); err != nil {
						t.Fatal(err)
					}
				}
				out, err := n.d.Exec(ctx, "bash", "-euc", script)
				if err != nil {
					t.Fatalf("%s: %s, %v", text, out, err)
				}
				t.Logf("%s%s", text, out)
			}
		}
		if steps != 4 {
			t.Errorf("%d steps of a cluster in docs/kubernetes.md", steps)
		}
		n.expectRuntime(ctx, t, "counter-2")
		err = n.cluster.Eventually(ctx, "it goes on", func() error {
			first, now, err := n.kubectlLogs(ctx, "counter-2")
			switch {
			case err != nil:
				return err
			case first == 1 || last == 0:
				return testbed.Permanent(fmt.Errorf("it began with %d, and the one that was saved had come to %d", first, last))
			case now < last+3:
				return fmt.Errorf("it has counted to %d", now)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		if out := n.kubectl(ctx, t, "", "exec", "counter-2", "--", "hostname"); strings.TrimSpace(out) != "counter-2" {
			t.Errorf("its hostname is %q", out)
		}
	})
}

// expectRuntime checks that a pod's containers run with our shim.
func (n *node) expectRuntime(ctx context.Context, t *testing.T, pod string) {
	t.Helper()
	ctx = n.d.Context(ctx)
	containers, err := n.d.Client.Containers(ctx, fmt.Sprintf("labels.%q==%s", "io.kubernetes.pod.name", pod))
	if err != nil || len(containers) < 2 {
		t.Fatalf("%d containers of %s, %v", len(containers), pod, err)
	}
	for _, c := range containers {
		if info, err := c.Info(ctx); err != nil || info.Runtime.Name != ours {
			t.Errorf("%s runs with %q, %v", c.ID(), info.Runtime.Name, err)
		}
	}
}

// TestKubeContrib: an API server takes all manifests of contrib/kubernetes, and the
// pod for NVIDIA's device plugin runs. There is no plugin here, so it gets no GPU.
func TestKubeContrib(t *testing.T) {
	onCluster(t, func(ctx context.Context, t *testing.T, n *node) {
		n.kubectl(ctx, t, "", "apply", "-f", contrib+"/runtimeclass.yaml", "-f", contrib+"/daemonset.yaml")
		n.kubectl(ctx, t, "", "label", "--overwrite", "node", "node", "hetgpu.io/node=true")
		n.kubectl(ctx, t, n.manifest(t, "uninstall.yaml"), "apply", "-f", "-")
		n.kubectl(ctx, t, n.manifest(t, "pod-split.yaml"), "apply", "--dry-run=server", "-f", "-")
		n.ends(ctx, t, "train")
		n.kubectl(ctx, t, n.manifest(t, "pod-nvidia.yaml"), "apply", "-f", "-")
		n.kubectl(ctx, t, "", "wait", "--for=condition=Ready", "--timeout=2m", "pod/train")
		n.expectRuntime(ctx, t, "train")
		if class := n.kubectl(ctx, t, "", "get", "pod", "train", "-o", "jsonpath={.spec.runtimeClassName} {.spec.nodeSelector}"); !strings.HasPrefix(class, "hetgpu ") || !strings.Contains(class, "hetgpu.io/node") {
			t.Errorf("the pod's class and nodes: %s", class)
		}
		n.kubectl(ctx, t, "", "delete", "-f", contrib+"/daemonset.yaml", "--wait=false")
	})
}

// manifest is one of contrib/kubernetes, with what has to be filled in.
func (n *node) manifest(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(contrib, name))
	if err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer(
		"image: IMAGE", "image: "+image+"\n      command: [counter, -i, \"100\"]\n      imagePullPolicy: Never", "nodeName: NODE", "nodeName: node",
	).Replace(string(text))
}

// TestKubeClusterRefuses: what can't be is said where kubectl shows it.
func TestKubeClusterRefuses(t *testing.T) {
	onCluster(t, func(ctx context.Context, t *testing.T, n *node) {
		n.admit(ctx, t)
		if _, err := n.cluster.Kubectl(ctx, ofClass("unknown", counts("unknown", "", "")), "apply", "-f", "-"); err == nil || !strings.Contains(err.Error(), `RuntimeClass "unknown" not found`) {
			t.Errorf("a class that there is not: %v", err)
		}
		n.ends(ctx, t, "missing")
		n.kubectl(ctx, t, ofClass("hetgpu", counts("missing", "io.hetgpu.restore: missing.tar", "")), "apply", "-f", "-")
		n.kubectl(ctx, t, "", "wait", "--for=jsonpath={.status.containerStatuses[0].state.terminated.reason}=StartError", "--timeout=2m", "pod/missing")
		message := n.kubectl(ctx, t, "", "get", "pod", "missing", "-o", "jsonpath={.status.containerStatuses[0].state.terminated.message}")
		if !strings.Contains(message, "missing.tar") {
			t.Errorf("the pod's status says %q", message)
		}
	})
}

// TestKubeRestorePolicy: with contrib's policy only pods of namespaces with a label
// may name snapshots.
func TestKubeRestorePolicy(t *testing.T) {
	onCluster(t, func(ctx context.Context, t *testing.T, n *node) {
		n.admit(ctx, t)
		const policy, label = contrib + "/restore-policy.yaml", "hetgpu.io/restore"
		n.kubectl(ctx, t, "", "apply", "-f", policy)
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
			defer cancel()
			for _, undo := range [][]string{{"delete", "-f", policy}, {"label", "namespace", "default", label + "-"}} {
				if _, err := n.cluster.Kubectl(ctx, "", undo...); err != nil {
					t.Error(err)
				}
			}
		})
		makes := func(pod string) error {
			_, err := n.cluster.Kubectl(ctx, pod, "create", "--dry-run=server", "-f", "-")
			return err
		}
		names := ofClass("hetgpu", counts("names", "io.hetgpu.restore: a.tar", ""))
		one := ofClass("hetgpu", counts("one", "io.hetgpu.restore/main: a.tar", ""))
		// The API server learns of it a moment later.
		err := n.cluster.Eventually(ctx, "the policy is there", func() error {
			if err := makes(names); err == nil || !strings.Contains(err.Error(), label+"=allowed") {
				return fmt.Errorf("a pod that names a snapshot: %w", err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := makes(one); err == nil || !strings.Contains(err.Error(), label+"=allowed") {
			t.Errorf("a pod that names a snapshot for a container: %v", err)
		}
		for _, annotations := range []string{"", "io.hetgpu.engine: driver"} {
			if err := makes(ofClass("hetgpu", counts("other", annotations, ""))); err != nil {
				t.Errorf("a pod with the annotations %q: %v", annotations, err)
			}
		}
		// Nor later, by any way.
		n.ends(ctx, t, "later")
		n.kubectl(ctx, t, ofClass("hetgpu", counts("later", "", "")), "create", "-f", "-")
		for _, more := range []string{"", "--subresource=status"} {
			args := []string{"patch", "pod", "later", "--type=merge", "--patch", `{"metadata": {"annotations": {"io.hetgpu.restore": "a.tar"}}}`}
			if more != "" {
				args = append(args, more)
			}
			if _, err := n.cluster.Kubectl(ctx, "", args...); err == nil || !strings.Contains(err.Error(), label+"=allowed") {
				t.Errorf("patch %s: %v", more, err)
			}
		}
		// The API server gives a pod the annotations of what binds it.
		binding := `{"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "later", "annotations": {"io.hetgpu.restore": "a.tar"}}, "target": {"kind": "Node", "name": "node"}}`
		for _, path := range []string{"pods/later/binding", "bindings"} {
			_, err := n.cluster.Kubectl(ctx, binding, "create", "--raw", "/api/v1/namespaces/default/"+path, "-f", "-")
			if err == nil || !strings.Contains(err.Error(), label+"=allowed") {
				t.Errorf("%s: %v", path, err)
			}
		}
		n.kubectl(ctx, t, "", "wait", "--for=condition=Ready", "--timeout=2m", "pod/later")
		n.kubectl(ctx, t, "", "label", "namespace", "default", label+"=allowed")
		if err := n.cluster.Eventually(ctx, "the namespace is allowed to", func() error { return makes(names) }); err != nil {
			t.Error(err)
		}
	})
}

// admit makes the class, and the node one of it.
func (n *node) admit(ctx context.Context, t *testing.T) {
	t.Helper()
	n.kubectl(ctx, t, "", "apply", "-f", contrib+"/runtimeclass.yaml")
	n.kubectl(ctx, t, "", "label", "--overwrite", "node", "node", "hetgpu.io/node=true")
}

// ofClass is a pod with a RuntimeClass.
func ofClass(class, manifest string) string {
	return strings.Replace(manifest, "spec:\n", "spec:\n  runtimeClassName: "+class+"\n", 1)
}

// TestKubeClusterGPU: a pod that computes on a GPU is saved through the API server,
// deleted, and goes on as another one.
func TestKubeClusterGPU(t *testing.T) {
	onCluster(t, func(ctx context.Context, t *testing.T, n *node) {
		n.admit(ctx, t)
		// waitTick waits for a tick, and returns the first and the last.
		waitTick := func(pod string, want int) (first, last int) {
			t.Helper()
			err := n.cluster.Eventually(ctx, fmt.Sprintf("%s comes to tick %d", pod, want), func() error {
				log, err := n.cluster.Kubectl(ctx, "", "logs", pod)
				if err == nil {
					first, last, err = ticksIn(log)
				}
				if err == nil && last < want {
					err = fmt.Errorf("it is at %d", last)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			return first, last
		}
		n.ends(ctx, t, "computes")
		n.ends(ctx, t, "goes-on")
		n.kubectl(ctx, t, ofClass("hetgpu", n.toys("computes", "")), "apply", "-f", "-")
		waitTick("computes", 5)
		answer := n.kubectl(ctx, t, "", "create", "--raw", "/api/v1/nodes/node/proxy/checkpoint/default/computes/main", "-f", "-")
		var list struct{ Items []string }
		if err := json.Unmarshal([]byte(answer), &list); err != nil || len(list.Items) != 1 {
			t.Fatalf("the kubelet answered %q, %v", answer, err)
		}
		n.keep(t, list.Items[0], "computes.tar")
		_, last := waitTick("computes", 6)
		n.kubectl(ctx, t, "", "delete", "pod", "computes")

		n.kubectl(ctx, t, ofClass("hetgpu", n.toys("goes-on", "io.hetgpu.restore: computes.tar")), "apply", "-f", "-")
		if first, _ := waitTick("goes-on", last+5); first < 5 || first > last+1 {
			t.Errorf("it goes on with tick %d, and had come to %d", first, last)
		}
		n.expectRuntime(ctx, t, "goes-on")
	})
}
