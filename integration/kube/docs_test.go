// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package kube

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// recipe is a block of docs/kubernetes.md that says "tested".
type recipe struct{ language, name, text string }

var fence = regexp.MustCompile("(?ms)^```(toml|yaml|sh) tested ?([a-z0-9-]*)\n(.*?)^```$")

func recipes() ([]recipe, error) {
	text, err := os.ReadFile("../../docs/kubernetes.md")
	if err != nil {
		return nil, err
	}
	var all []recipe
	for _, m := range fence.FindAllStringSubmatch(string(text), -1) {
		all = append(all, recipe{m[1], m[2], m[3]})
	}
	return all, nil
}

// TestKubeDocsTested: there is no block in docs/kubernetes.md that no test runs.
func TestKubeDocsTested(t *testing.T) {
	text, err := os.ReadFile("../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	all, err := recipes()
	if err != nil {
		t.Fatal(err)
	}
	if fences := strings.Count("\n"+string(text), "\n```"); fences != 2*len(all) || len(all) == 0 {
		t.Errorf("%d lines begin or end a block, and %d blocks are tested", fences, len(all))
	}
	if rest := fence.ReplaceAllString(string(text), ""); strings.Contains(rest, "\n    ") {
		t.Error("there is an indented block")
	}
	// Each is one that a test picks.
	for _, r := range all {
		switch {
		case r.language == "toml" && r.name == "", r.language == "sh" && (r.name == "" || r.name == "cluster" || r.name == "gpu" || r.name == "image"):
		case r.language == "yaml" && (strings.HasPrefix(r.name, "counter") || strings.HasPrefix(r.name, "train")):
		default:
			t.Errorf("no test runs a block %s %q", r.language, r.name)
		}
	}
}

// documented is the handler of docs/kubernetes.md, for a machine without systemd.
func documented() (string, error) {
	all, err := recipes()
	if err != nil {
		return "", err
	}
	for _, r := range all {
		if r.language == "toml" {
			text := strings.Replace(r.text, "version = 3\n", "", 1)
			return strings.Replace(text, "SystemdCgroup = true", "SystemdCgroup = false", 1), nil
		}
	}
	return "", fmt.Errorf("docs/kubernetes.md configures no handler")
}

// here is a recipe with what is this node's in the place of what is usual.
func (n *node) here(text string) string {
	if n.cluster == nil {
		// A kubelet without a cluster knows no classes; the handler is its only one.
		text = strings.Replace(text, "  runtimeClassName: hetgpu\n", "", 1)
	}
	return strings.NewReplacer(
		"/var/lib/kubelet/checkpoints", n.Checkpoints(),
		"/var/lib/hetgpu/snapshots", n.snapshots(),
		"/mnt/saved", filepath.Join(n.d.TempDir(), "saved"),
		"https://127.0.0.1:10250", n.URL(),
		"ctr -n k8s.io", "ctr --address "+n.d.Address()+" -n k8s.io --debug",
		"example.org/counter:1", image, "example.org/train:1", image,
		"nvidia-ctk cdi generate --output /etc/cdi/nvidia.yaml", n.nvidiaCTK(),
	).Replace(text)
}

// TestKubeDocs does what docs/kubernetes.md says, from its begin to its end.
func TestKubeDocs(t *testing.T) {
	all, err := recipes()
	if err != nil {
		t.Fatal(err)
	}
	eachOf(t, setups[:2], func(ctx context.Context, t *testing.T, n *node) {
		var last, pods, scripts int
		for _, r := range all {
			text := n.here(r.text)
			switch {
			case r.language == "toml":
				// The node runs with it.
			case r.name == "image":
				// TestKubeImageElsewhere
			case r.name == "gpu" || strings.HasPrefix(r.name, "train"):
				// TestKubeDocsGPU
			case r.name == "cluster":
				// TestKubeCluster
			case r.language == "sh":
				scripts++
				if out, err := n.d.Exec(ctx, "bash", "-euc", text); err != nil {
					t.Fatalf("%s: %s, %v", text, out, err)
				}
			default:
				n.apply(ctx, t, r.name, text)
				first := n.waitCount(ctx, t, r.name, "main", last+3)
				if pods++; pods > 1 && first == 1 {
					t.Errorf("%s began anew", r.name)
				}
				last = n.count(ctx, t, r.name, "main")
			}
		}
		if pods != 2 || scripts != 3 {
			t.Errorf("%d pods and %d scripts in docs/kubernetes.md", pods, scripts)
		}
	})
}

// TestKubeImageElsewhere: where the CRI restores no image, what is in it can be
// named by the annotation.
func TestKubeImageElsewhere(t *testing.T) {
	on(t, setups[0], func(ctx context.Context, t *testing.T, n *node) {
		last := n.saveImage(ctx, t)
		all, err := recipes()
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range all {
			if r.name == "image" {
				if out, err := n.d.Exec(ctx, "bash", "-euc", n.here("mkdir /mnt/saved\n"+r.text+"rmdir /mnt/saved\n")); err != nil {
					t.Fatalf("%s, %v", out, err)
				}
			}
		}
		n.apply(ctx, t, "unpacked", counts("unpacked", "io.hetgpu.restore: saved", ""))
		first := n.waitCount(ctx, t, "unpacked", "main", last+5)
		if first < 5 || first > last+1 {
			t.Errorf("it goes on with %d, and had counted to %d", first, last)
		}
	})
}
