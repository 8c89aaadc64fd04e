// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/cmd/hetgpu/doctor"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/config"
)

// run runs the command line and returns what it printed.
func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := command()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestVersion(t *testing.T) {
	out, err := run(t, "version")
	if err != nil || !strings.HasPrefix(out, "hetgpu ") {
		t.Errorf("%q, %v", out, err)
	}
}

// The real host, whatever it is: every check has a result, and the exit status
// says what the report says.
func TestDoctor(t *testing.T) {
	t.Setenv(config.Env, "") // set by --config below
	file := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(file, []byte("no_such_key = 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := run(t, "doctor", "--json", "--config", file, "--address", filepath.Join(t.TempDir(), "none.sock"))
	if !errors.Is(err, errReported) {
		t.Errorf("a bad configuration is no failure: %v", err)
	}
	var report doctor.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if report.OK {
		t.Error("ok, with a bad configuration")
	}
	seen := map[string]doctor.Result{}
	for _, r := range report.Checks {
		seen[r.Name] = r
	}
	for _, check := range doctor.Checks {
		if seen[check.Name].Found == "" {
			t.Errorf("no result of %s", check.Name)
		}
	}
	if r := seen["config"]; r.Status != doctor.Fail || !strings.Contains(r.Found, "no_such_key") {
		t.Errorf("%+v", r)
	}
}

func TestInspect(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("inspect/testdata/criu")); err != nil {
		t.Fatal(err)
	}
	out, err := run(t, "inspect", dir)
	if err != nil || !strings.Contains(out, "stock shim") {
		t.Errorf("%q, %v", out, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "hetgpu.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err = run(t, "inspect", "--json", dir)
	if !errors.Is(err, errReported) || !strings.Contains(out, `"problems": [`) || !json.Valid([]byte(out)) {
		t.Errorf("%q, %v", out, err)
	}
	for _, args := range [][]string{{"inspect"}, {"inspect", dir, dir}, {"inspect", filepath.Join(dir, "missing")}, {"doctor", "more"}} {
		if out, err := run(t, args...); err == nil || errors.Is(err, errReported) || out != "" {
			t.Errorf("%v: %q, %v", args, out, err)
		}
	}
}

// What can't be meant is refused before anything is asked.
func TestKeptArguments(t *testing.T) {
	for _, tc := range []struct{ args, says string }{
		{"checkpoint job --dir /x --keep-on-gpu", "--exit"},
		{"checkpoint job --oci /x --exit --keep-on-gpu", "--dir"},
		{"drop", "--keeper"},
		{"drop /x --keeper y", "--keeper"},
		{"drop --keeper ../x", "no keeper's name"},
		{"drain /nowhere", "/nowhere"},
	} {
		if _, err := run(t, strings.Fields(tc.args)...); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want %q", tc.args, err, tc.says)
		}
	}
}
