// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/v2/pkg/oci"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/testbed"
)

// What the host lacks is said, with what to do, and the container goes on.
func TestUnusableCRIU(t *testing.T) {
	skipOnStock(t, "it passes on what runc says")
	for name, tc := range map[string]struct {
		script string
		want   []string
	}{
		"missing":           {"", []string{"install"}},
		"too old":           {`echo "Version: 3.17.1"`, []string{"3.17.1", "4.1"}},
		"fails its check":   {`[ "$1" = --version ] && echo "Version: 4.2.1" && exit; echo "Error (x): no such syscall" >&2; exit 1`, []string{"no such syscall"}},
		"no version at all": {`echo nonsense`, []string{"nonsense"}},
	} {
		t.Run(name, func(t *testing.T) {
			eachDaemon(t, func(t *testing.T, d *daemon) {
				ctx := d.testContext(t)
				program := filepath.Join(t.TempDir(), "criu")
				if tc.script != "" {
					program = writeScript(t, "criu", tc.script+"\n")
				}
				d.configure(t, fmt.Sprintf("[criu]\npath = %q\n", program))
				c := d.run(ctx, t, counting())
				c.stdout.waitMore(ctx, t, 3)
				_, err := d.Ctr(ctx, "task", "checkpoint", c.id)
				if err == nil {
					t.Fatal("the checkpoint succeeded")
				}
				for _, want := range append(tc.want, program) {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("the error does not say %q:\n%v", want, err)
					}
				}
				c.stdout.waitMore(ctx, t, 3)
				c.stop(ctx)
				d.expectNothingLeft(t)
			})
		})
	}
}

// An annotation that makes no sense is refused before anything runs.
func TestBadAnnotation(t *testing.T) {
	skipOnStock(t, "it knows no such annotation")
	for key, value := range map[string]string{
		"io.hetgpu.engine":             "warp",
		"io.hetgpu.tcp":                "maybe",
		"io.hetgpu.checkpoint.timeout": "-1s",
		"io.hetgpu.checkpoint.exit":    "perhaps",
	} {
		t.Run(key, func(t *testing.T) {
			eachDaemon(t, func(t *testing.T, d *daemon) {
				ctx := d.testContext(t)
				s := counting()
				s.opts = []oci.SpecOpts{oci.WithAnnotations(map[string]string{key: value})}
				c := d.createContainer(ctx, t, s)
				_, err := c.tryCreateTask(ctx, s)
				if err == nil || !strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), value) {
					t.Errorf("the error does not name the annotation: %v", err)
				}
				d.expectNothingLeft(t)
			})
		})
	}
}

// A checkpoint needs no iptables: not at all as long as no connection is to be
// saved, and then nftables will do, which CRIU speaks itself.
func TestWithoutIPTables(t *testing.T) {
	skipOnStock(t, "its CRIU always runs iptables-restore")
	t.Setenv("PATH", pathWithout(t, "iptables", "ip6tables", "xtables", "nft"))
	path, err := installed.Path(daemons[0].version)
	if err != nil {
		t.Fatal(err)
	}
	own, err := testbed.Start(t.Context(), testbed.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{Daemon: own, version: daemons[0].version}
	t.Cleanup(func() {
		ctx, cancel := d.cleanupContext()
		defer cancel()
		if err := own.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	d.logIfFailed(t)
	ctx := d.testContext(t)
	image, err := testImage(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if d.image, err = d.Import(ctx, image); err != nil {
		t.Fatal(err)
	}
	d.moved(ctx, t, counting("-m", "8"), &options.CheckpointOptions{}).stop(ctx)

	if _, err := d.Exec(ctx, "criu", "check", "--feature", "network_lock_nftables"); err != nil {
		t.Skipf("connections: CRIU or this kernel has no nftables: %v", err)
	}
	s := counting("-t")
	s.opts = []oci.SpecOpts{annotated("io.hetgpu.tcp", "established"), withOwnNetwork(t)}
	d.moved(ctx, t, s, &options.CheckpointOptions{}).stop(ctx)
}

// pathWithout returns a PATH that has all programs of this one, except those
// whose names begin with one of the prefixes.
func pathWithout(t *testing.T, prefixes ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, from := range filepath.SplitList(os.Getenv("PATH")) {
		entries, err := os.ReadDir(from)
		if err != nil {
			continue
		}
		for _, e := range entries {
			hidden := slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(e.Name(), prefix) })
			if hidden {
				continue
			}
			// The first of a name wins, as in PATH.
			err := os.Symlink(filepath.Join(from, e.Name()), filepath.Join(dir, e.Name()))
			if err != nil && !errors.Is(err, fs.ErrExist) {
				t.Fatal(err)
			}
		}
	}
	return dir
}
