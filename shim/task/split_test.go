// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/hetgpu/containerd-shim-hetgpu/internal/config"
	"github.com/hetgpu/containerd-shim-hetgpu/oci"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// someLibrary is a directory with a library, whose build id it returns.
func someLibrary(t *testing.T) (dir, id string) {
	t.Helper()
	found, err := filepath.Glob("/lib/*-linux-gnu*/libc.so.6")
	if err != nil || len(found) == 0 {
		t.Skip("no C library to take for another")
	}
	if id, err = buildID(found[0]); err != nil || !regexp.MustCompile(`^[0-9a-f]{16,}$`).MatchString(id) {
		t.Fatalf("build id of %s: %q, %v", found[0], id, err)
	}
	dir = t.TempDir()
	if err := os.Symlink(found[0], filepath.Join(dir, libraryName)); err != nil {
		t.Fatal(err)
	}
	return dir, id
}

func TestWantSplit(t *testing.T) {
	lib, id := someLibrary(t)
	saved := t.TempDir()
	m := &snapshot.Manifest{
		Engine: snapshot.EngineDriver, Created: time.Now(), Container: snapshot.Container{ID: "c"}, Library: &snapshot.Library{BuildID: "00"},
	}
	if err := snapshot.Write(t.Context(), saved, m); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		engine       oci.Engine
		enabled      bool
		given        bool
		dir, restore string
		want         bool
		fails        string
		reason       string
	}{
		"by itself":                   {engine: oci.EngineAuto, dir: lib},
		"chosen":                      {engine: oci.EngineSplit, dir: lib, want: true},
		"chosen, and not installed":   {engine: oci.EngineSplit, dir: t.TempDir(), fails: "not installed"},
		"the driver is chosen":        {engine: oci.EngineDriver, enabled: true, dir: lib},
		"enabled, driver not known":   {engine: oci.EngineAuto, enabled: true, dir: lib, reason: "the driver's version can't be told"},
		"enabled, and not installed":  {engine: oci.EngineAuto, enabled: true, dir: t.TempDir(), reason: "not installed"},
		"restored with it":            {engine: oci.EngineAuto, dir: lib, restore: saved, want: true},
		"restored, not installed":     {engine: oci.EngineAuto, dir: t.TempDir(), restore: saved, fails: "not installed"},
		"restored, driver is chosen":  {engine: oci.EngineDriver, dir: lib, restore: saved},
		"restored from what has none": {engine: oci.EngineAuto, dir: lib, restore: t.TempDir()},
		"given by CDI":                {engine: oci.EngineAuto, given: true, dir: lib, want: true},
		"given, the driver is chosen": {engine: oci.EngineDriver, given: true, dir: lib, want: true},
		"given, and not installed":    {engine: oci.EngineAuto, given: true, dir: t.TempDir(), fails: "not installed"},
		"restored, and chosen":        {engine: oci.EngineSplit, dir: lib, restore: t.TempDir(), want: true},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := os.Stat(kernelDriver); err == nil && tc.enabled {
				t.Skip("this machine has a driver")
			}
			s := &service{config: config.Config{Split: config.Split{Enabled: tc.enabled, LibraryDir: tc.dir}}}
			c := &container{policy: oci.Policy{Engine: tc.engine}, request: &taskapi.CreateTaskRequest{Checkpoint: tc.restore}}
			spec := &oci.Spec{}
			if tc.given {
				spec.Mounts = []specs.Mount{{Destination: oci.InjectedLibrary}}
			}
			got, err := s.wantSplit(t.Context(), c, spec)
			if tc.fails != "" {
				if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), tc.fails) {
					t.Errorf("error is %v", err)
				}
				return
			}
			if err != nil || (got != nil) != tc.want || (c.engineReason == "") != (tc.reason == "") || !strings.Contains(c.engineReason, tc.reason) {
				t.Errorf("got %v, %v, reason %q", got, err, c.engineReason)
			}
			if got != nil && got.library.BuildID != id {
				t.Errorf("build id %s, want %s", got.library.BuildID, id)
			}
		})
	}
}

func TestTestedDriver(t *testing.T) {
	for version, ok := range map[string]bool{"580.159.04\n": true, "580": true, "58.1": false, "5800.1": false, "590.10": false, "": false} {
		file := filepath.Join(t.TempDir(), "version")
		if err := os.WriteFile(file, []byte(version), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := testedDriver(file); (err == nil) != ok {
			t.Errorf("%q: %v", version, err)
		}
	}
}

// A library that was replaced can't be given to the processes again.
func TestCheckLibrary(t *testing.T) {
	lib, id := someLibrary(t)
	s := &service{}
	c := &container{}
	if err := s.checkLibrary(c); err != nil {
		t.Errorf("without one: %v", err)
	}
	c.injected = &injected{dir: lib, library: snapshot.Library{BuildID: id}}
	if err := s.checkLibrary(c); err != nil {
		t.Error(err)
	}
	c.injected.library.BuildID = "00"
	if err := s.checkLibrary(c); err == nil || !strings.Contains(err.Error(), "another one") {
		t.Errorf("replaced: %v", err)
	}
	c.injected.dir = t.TempDir()
	if err := s.checkLibrary(c); err == nil {
		t.Error("removed, and no error")
	}
}
