// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package kube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/testbed"
)

// TestKubeRestore: a pod is checkpointed and removed; another one goes on where it
// was, and has everything of its own that is not in the processes.
func TestKubeRestore(t *testing.T) {
	each(t, func(ctx context.Context, t *testing.T, n *node) {
		n.apply(ctx, t, "before", counts("before", "", ""))
		n.waitCount(ctx, t, "before", "main", 5)
		archive, err := n.Checkpoint(ctx, "before", "main")
		if err != nil {
			t.Fatal(err)
		}
		last := n.count(ctx, t, "before", "main")
		n.remove(ctx, t, "before")

		// It is where the kubelet has put it.
		n.apply(ctx, t, "after", counts("after", fmt.Sprintf("io.hetgpu.restore: %q", filepath.Base(archive)), ""))
		pod, err := n.WaitPod(ctx, "after", ready("main"))
		if err != nil {
			t.Fatal(err)
		}
		first := n.waitCount(ctx, t, "after", "main", last+5)
		if first < 5 || first > last+1 {
			t.Errorf("it goes on with %d, and had counted to %d", first, last)
		}
		for command, want := range map[string]string{
			"hostname":         testbed.PodName("after"),
			"cat /etc/pod/job": "after",
			"hostname -i":      pod.Status.PodIP,
		} {
			if out, err := n.Exec(ctx, "after", "main", strings.Fields(command)...); err != nil || strings.TrimSpace(out) != want {
				t.Errorf("%s: %q, %v; want %s", command, out, err, want)
			}
		}
		if out, err := n.Exec(ctx, "after", "main", "env"); err != nil || !strings.Contains(out, "WHICH=after") {
			t.Errorf("env: %q, %v", out, err)
		}
		// So do the processes themselves see the new pod.
		if out, err := n.Exec(ctx, "after", "main", "cat", "/proc/1/root/etc/pod/job"); err != nil || out != "after" {
			t.Errorf("the label that the restored process sees: %q, %v", out, err)
		}
		if used := n.memoryUsed(ctx, t, "after"); used == 0 {
			t.Error("no statistics")
		}
		// Nothing is left of what was unpacked.
		if left, err := filepath.Glob(filepath.Join(n.d.Dir, "root/io.containerd.runtime.v2.task/k8s.io/*/hetgpu-restore")); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
		// It can be checkpointed again.
		again, err := n.Checkpoint(ctx, "after", "main")
		if err != nil {
			t.Fatal(err)
		}
		n.expectArchive(ctx, t, again, "main")
	})
}

// TestKubeRestoreSnapshot: what `hetgpu checkpoint` made of a pod's container is
// restored by a pod that names the directory.
func TestKubeRestoreSnapshot(t *testing.T) {
	on(t, setups[0], func(ctx context.Context, t *testing.T, n *node) {
		n.apply(ctx, t, "short", counts("short", "", ""))
		n.waitCount(ctx, t, "short", "main", 5)
		pod, err := n.WaitPod(ctx, "short", ready("main"))
		if err != nil {
			t.Fatal(err)
		}
		if out, err := n.Exec(ctx, "short", "main", "touch", "/made"); err != nil {
			t.Fatal(out, err)
		}
		_, id, _ := strings.Cut(pod.Container("main").ContainerID, "://")
		if _, err := n.d.Exec(ctx, "hetgpu", "checkpoint", "--address", n.d.Address(), "--namespace", n.d.Namespace, "--dir", filepath.Join(n.snapshots(), "short"), id); err != nil {
			t.Fatal(err)
		}
		last := n.count(ctx, t, "short", "main")
		n.waitCount(ctx, t, "short", "main", last+3)
		n.remove(ctx, t, "short")
		n.apply(ctx, t, "longer", counts("longer", "io.hetgpu.restore: short", ""))
		if first := n.waitCount(ctx, t, "longer", "main", last+5); first < 5 || first > last+1 {
			t.Errorf("it goes on with %d, and had counted to %d", first, last)
		}
		for command, want := range map[string]string{"hostname": testbed.PodName("longer"), "cat /etc/pod/job": "longer", "ls /made": "/made"} {
			if out, err := n.Exec(ctx, "longer", "main", strings.Fields(command)...); err != nil || strings.TrimSpace(out) != want {
				t.Errorf("%s: %q, %v; want %s", command, out, err, want)
			}
		}
	})
}

// expectNotStarted waits until a container could not be started, for a reason that
// the pod's status has, and looks whether anything of it has run.
func (n *node) expectNotStarted(ctx context.Context, t *testing.T, pod, reason string) {
	t.Helper()
	_, err := n.WaitPod(ctx, pod, func(p *testbed.Pod) error {
		c := p.Container("main")
		if c.State.Running != nil {
			return testbed.Permanent(errors.New("it runs"))
		}
		for _, s := range []testbed.ContainerState{c.State, c.LastState} {
			if s.Terminated != nil && s.Terminated.Reason == "StartError" {
				t.Log(s)
				if !strings.Contains(s.Terminated.Message, reason) {
					return testbed.Permanent(fmt.Errorf("its status has no %q: %s", reason, s))
				}
				return nil
			}
		}
		return fmt.Errorf("it is %s", c.State)
	})
	if err != nil {
		t.Error(err)
	}
	if log, err := n.Logs(ctx, pod, "main"); err == nil && strings.TrimSpace(log) != "" {
		t.Errorf("it wrote %q", log)
	}
}

// TestKubeNotRestored: what can't be restored is not started either, and the pod's
// status says why.
func TestKubeNotRestored(t *testing.T) {
	each(t, func(ctx context.Context, t *testing.T, n *node) {
		n.apply(ctx, t, "origin", counts("origin", "", ""))
		n.waitCount(ctx, t, "origin", "main", 3)
		archive, err := n.Checkpoint(ctx, "origin", "main")
		if err != nil {
			t.Fatal(err)
		}
		n.keep(t, archive, "origin.tar")
		n.remove(ctx, t, "origin")
		good := filepath.Join(n.snapshots(), "origin.tar")
		data, err := os.ReadFile(good)
		if err != nil {
			t.Fatal(err)
		}
		write := func(name string, data []byte, mode os.FileMode, uid int) {
			t.Helper()
			file := filepath.Join(n.snapshots(), name)
			if err := errors.Join(os.WriteFile(file, data, 0o600), os.Chmod(file, mode), os.Chown(file, uid, -1)); err != nil {
				t.Fatal(err)
			}
		}
		damaged := bytes.Clone(data)
		at := bytes.Index(damaged, []byte("checkpoint/pages-1.img"))
		damaged[at+512+100] ^= 1
		write("damaged.tar", damaged, 0o600, 0)
		write("writable.tar", data, 0o622, 0)
		write("another.tar", data, 0o600, 1000)
		if err := os.Symlink(good, filepath.Join(n.snapshots(), "link.tar")); err != nil {
			t.Fatal(err)
		}
		other := "test.hetgpu.local/other:1"
		if _, err := n.d.Ctr(ctx, "images", "tag", image, other); err != nil {
			t.Fatal(err)
		}
		if err := n.d.WaitImage(ctx, other); err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]struct {
			annotation, edit, to, reason string
		}{
			"missing":   {annotation: "io.hetgpu.restore: nowhere.tar", reason: "no such snapshot"},
			"traversal": {annotation: "io.hetgpu.restore: ../snapshots/origin.tar", reason: "not the name of a snapshot"},
			"absolute":  {annotation: "io.hetgpu.restore: " + good, reason: "not the name of a snapshot"},
			"link":      {annotation: "io.hetgpu.restore: link.tar", reason: "is a link"},
			"writable":  {annotation: "io.hetgpu.restore: writable.tar", reason: "not root's alone"},
			"another":   {annotation: "io.hetgpu.restore: another.tar", reason: "not root's alone"},
			"damaged":   {annotation: "io.hetgpu.restore/main: damaged.tar", reason: "damaged"},
			"image":     {annotation: "io.hetgpu.restore: origin.tar", edit: image, to: other, reason: "the image is " + other},
			"namespace": {annotation: "io.hetgpu.restore: origin.tar", edit: "namespace: default", to: "namespace: other", reason: "the Kubernetes namespace is other"},
			"command":   {annotation: "io.hetgpu.restore: origin.tar", edit: `-m, "8"`, to: `-m, "4"`, reason: "the command is"},
			"mount":     {annotation: "io.hetgpu.restore: origin.tar", edit: "mountPath: /etc/pod", to: "mountPath: /etc/other", reason: "no mount at /etc/pod"},
			"user":      {annotation: "io.hetgpu.restore: origin.tar", edit: "env:", to: "securityContext: {runAsUser: 1000}\n    env:", reason: "the user is 1000"},
			"rights":    {annotation: "io.hetgpu.restore: origin.tar", edit: "env:", to: "securityContext: {capabilities: {drop: [ALL]}}\n    env:", reason: "capabilities"},
		} {
			// Who looks a name up and compares is our shim, however it came to be that.
			if n.setup != setups[0] && name != "damaged" && name != "command" {
				continue
			}
			t.Run(name, func(t *testing.T) {
				pod := counts(name, c.annotation, "")
				if c.edit != "" {
					edited := strings.Replace(pod, c.edit, c.to, 1)
					if edited == pod {
						t.Fatal("nothing was edited")
					}
					pod = edited
				}
				n.apply(ctx, t, name, pod)
				n.expectNotStarted(ctx, t, name, c.reason)
			})
		}
	})
}
