// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package kube

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/testbed"
)

// counts is a pod with a container that counts, keeps a file open in its root,
// and sees what a pod gets from Kubernetes. More are annotations and containers.
func counts(name, annotations, containers string) string {
	return `
apiVersion: v1
kind: Pod
metadata:
  name: ` + name + `
  namespace: default
  labels: {job: ` + name + `}
  annotations: {` + annotations + `}
spec:
  terminationGracePeriodSeconds: 1
  restartPolicy: Never
  containers:
  - name: main
    image: ` + image + `
    imagePullPolicy: Never
    command: [counter, -i, "20", -m, "8", -f, /count]
    env: [{name: WHICH, value: ` + name + `}]
    volumeMounts: [{name: pod, mountPath: /etc/pod}]
` + containers + `
  volumes:
  - name: pod
    downwardAPI:
      items: [{path: job, fieldRef: {fieldPath: "metadata.labels['job']"}}]
`
}

// TestKubeCheckpoint: the archive has everything, and the container goes on.
func TestKubeCheckpoint(t *testing.T) {
	each(t, func(ctx context.Context, t *testing.T, n *node) {
		n.apply(ctx, t, "saved", counts("saved", "", `
  - name: other
    image: `+image+`
    imagePullPolicy: Never
    command: [counter, -i, "20"]
`))
		n.waitCount(ctx, t, "saved", "main", 5)
		n.waitCount(ctx, t, "saved", "other", 5)
		// One after the other.
		for _, container := range []string{"main", "other", "main"} {
			archive, err := n.Checkpoint(ctx, "saved", container)
			if err != nil {
				t.Fatal(err)
			}
			n.expectArchive(ctx, t, archive, container)
			last := n.count(ctx, t, "saved", container)
			n.waitCount(ctx, t, "saved", container, last+3)
		}
	})
}

// TestKubeCheckpointExit: a container that asks for that ends with its checkpoint, and
// goes on in another pod with the last number that it has written.
func TestKubeCheckpointExit(t *testing.T) {
	on(t, setups[0], func(ctx context.Context, t *testing.T, n *node) {
		n.apply(ctx, t, "exits", counts("exits", `io.hetgpu.checkpoint.exit: "true"`, ""))
		n.waitCount(ctx, t, "exits", "main", 5)
		archive, err := n.Checkpoint(ctx, "exits", "main")
		if err != nil {
			t.Fatal(err)
		}
		n.expectArchive(ctx, t, archive, "main")
		_, err = n.WaitPod(ctx, "exits", func(p *testbed.Pod) error {
			if c := p.Container("main"); c.State.Terminated == nil {
				return fmt.Errorf("it is %s", c.State)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		last := n.count(ctx, t, "exits", "main")
		n.apply(ctx, t, "continues", counts("continues", fmt.Sprintf("io.hetgpu.restore: %q", path.Base(archive)), ""))
		if first := n.waitCount(ctx, t, "continues", "main", last+3); first != last+1 {
			t.Errorf("it goes on with %d, and had counted to %d", first, last)
		}
	})
}

// expectArchive looks at an archive of the kubelet's, which may have to have more
// files than any, by all tools there are.
func (n *node) expectArchive(ctx context.Context, t *testing.T, archive, container string, more ...string) {
	t.Helper()
	files := entries(t, archive)
	for _, want := range append(more,
		"spec.dump", "config.dump", "status.dump", "rootfs-diff.tar", "container.log", "checkpoint/hetgpu.json", "checkpoint/inventory.img", "checkpoint/pages-1.img") {
		if !files[want] {
			t.Errorf("the archive has no %s", want)
		}
	}
	// Only a handler of runc's name is asked for CRIU's log and numbers.
	for _, file := range []string{"dump.log", "stats-dump"} {
		if has := files[file]; has != n.setup.asRunc {
			t.Errorf("%s in the archive: %t", file, has)
		}
	}
	for name := range files {
		if rest, below := strings.CutPrefix(name, "checkpoint/"); below && strings.Contains(rest, "/") {
			t.Errorf("the archive has %s", name)
		}
	}
	out, err := n.d.Exec(ctx, "hetgpu", "inspect", "--json", archive)
	if err != nil {
		t.Fatal(err)
	}
	var report struct {
		Digests  string
		Manifest struct{ Container struct{ ID string } }
		Problems []string
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || report.Digests != "ok" || len(report.Problems) > 0 || report.Manifest.Container.ID == "" {
		t.Errorf("hetgpu inspect: %s, %v", out, err)
	}
	if out, err := n.d.Exec(ctx, "checkpointctl", "show", archive); err != nil || !strings.Contains(strings.ToUpper(out), strings.ToUpper(container)) {
		t.Errorf("checkpointctl show: %s, %v", out, err)
	}
	if info, err := os.Stat(archive); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the archive: %v, %v", info.Mode(), err)
	}
}

// entries lists the regular files of a tar.
func entries(t *testing.T, archive string) map[string]bool {
	t.Helper()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	files := map[string]bool{}
	r := tar.NewReader(f)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		switch h.Typeflag {
		case tar.TypeReg:
			files[path.Clean(h.Name)] = true
		case tar.TypeDir:
		default:
			t.Errorf("%s has the type %c", h.Name, h.Typeflag)
		}
	}
}

var number = regexp.MustCompile(`^[0-9]+$`)

// counted reads the numbers that a container has written. They follow one
// another, or it is an error.
func (n *node) counted(ctx context.Context, pod, container string) (first, last int, err error) {
	log, err := n.Logs(ctx, pod, container)
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(log) {
		line = strings.TrimSpace(line)
		if !number.MatchString(line) {
			return 0, 0, testbed.Permanent(fmt.Errorf("it wrote %q", line))
		}
		i, err := strconv.Atoi(line)
		switch {
		case err != nil:
			return 0, 0, err
		case last != 0 && i != last+1:
			return 0, 0, testbed.Permanent(fmt.Errorf("it wrote %d after %d", i, last))
		case first == 0:
			first = i
		}
		last = i
	}
	return first, last, nil
}

// count is the last number that a container has written.
func (n *node) count(ctx context.Context, t *testing.T, pod, container string) int {
	t.Helper()
	_, last, err := n.counted(ctx, pod, container)
	if err != nil {
		t.Fatal(err)
	}
	return last
}

// waitCount waits until a container has counted that far, and returns where it
// began.
func (n *node) waitCount(ctx context.Context, t *testing.T, pod, container string, want int) (first int) {
	t.Helper()
	err := n.Eventually(ctx, fmt.Sprintf("%s counts to %d", container, want), func() error {
		var last int
		var err error
		if first, last, err = n.counted(ctx, pod, container); err == nil && last < want {
			err = fmt.Errorf("it has counted to %d", last)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return first
}

// keep puts an archive where pods can name it.
func (n *node) keep(t *testing.T, archive, name string) {
	t.Helper()
	data, err := os.ReadFile(archive)
	if err == nil {
		err = os.WriteFile(filepath.Join(n.snapshots(), name), data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
