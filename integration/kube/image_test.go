// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package kube

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/testbed"
)

// savedImage is an image made of an archive, as buildah makes one.
const savedImage = "test.hetgpu.local/saved:1"

// saveImage runs a pod, and makes an image of what the kubelet's archive has.
func (n *node) saveImage(ctx context.Context, t *testing.T) (last int) {
	t.Helper()
	n.apply(ctx, t, "packed", counts("packed", "", ""))
	n.waitCount(ctx, t, "packed", "main", 5)
	archive, err := n.Checkpoint(ctx, "packed", "main")
	if err != nil {
		t.Fatal(err)
	}
	last = n.count(ctx, t, "packed", "main")
	n.remove(ctx, t, "packed")
	layer, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.d.Import(ctx, testbed.Image{
		// containerd and CRI-O know it by this (checkpointctl's library).
		Name: savedImage, Layer: layer, Annotations: map[string]string{"org.criu.checkpoint.container.name": "main"},
	}); err != nil {
		t.Fatal(err)
	}
	if err := n.d.WaitImage(ctx, savedImage); err != nil {
		t.Fatal(err)
	}
	return last
}

// TestKubeImageByCRI: containerd 2.2 restores an image of a checkpoint itself.
func TestKubeImageByCRI(t *testing.T) {
	on(t, setups[1], func(ctx context.Context, t *testing.T, n *node) {
		last := n.saveImage(ctx, t)
		n.apply(ctx, t, "unpacked", strings.Replace(counts("unpacked", "", ""), "image: "+image, "image: "+savedImage, 1))
		// containerd puts the saved log before the new one, with lines that were
		// written after the dump: so numbers come twice, but it counts from 1 once.
		var log string
		err := n.Eventually(ctx, "it goes on", func() (err error) {
			log, err = n.Logs(ctx, "unpacked", "main")
			if want := fmt.Sprintf("\n%d\n", last+20); err == nil && !strings.Contains(log, want) {
				err = fmt.Errorf("it wrote %q", log)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if begins := strings.Count("\n"+log, "\n1\n"); begins != 1 || strings.Contains(log, "FAIL") {
			t.Errorf("it wrote %q", log)
		}
		if out, err := n.Exec(ctx, "unpacked", "main", "hostname"); err != nil || strings.TrimSpace(out) != testbed.PodName("unpacked") {
			t.Errorf("hostname: %q, %v", out, err)
		}
	})
}
