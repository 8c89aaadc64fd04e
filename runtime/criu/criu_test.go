// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package criu

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// script writes a program that stands in for CRIU.
func script(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "criu")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestParseVersion(t *testing.T) {
	for _, tc := range []struct {
		out  string
		want Version
		ok   bool
	}{
		{"Version: 4.2.1\nGitID: v4.2.1\n", Version{4, 2, 1}, true},
		{"Version: 4.1\n", Version{4, 1, 0}, true},
		{"Warn  (criu/kerndat.c:1): something\nVersion: 3.17.1\n", Version{3, 17, 1}, true},
		{"Version: 4.2-rc1\n", Version{4, 2, 0}, true},
		{"", Version{}, false},
		{"Version: four", Version{}, false},
		{"Version: 99999999999999999999.1", Version{}, false},
	} {
		got, err := parseVersion(tc.out)
		if got != tc.want || (err == nil) != tc.ok {
			t.Errorf("parseVersion(%q) = %v, %v", tc.out, got, err)
		}
	}
}

func TestLess(t *testing.T) {
	order := []Version{{3, 17, 1}, {3, 19, 0}, {4, 0, 9}, {4, 1, 0}, {4, 1, 1}, {4, 2, 0}, {4, 10, 0}, {5, 0, 0}}
	for i, a := range order {
		for j, b := range order {
			if a.Less(b) != (i < j) {
				t.Errorf("%v.Less(%v) = %v", a, b, a.Less(b))
			}
		}
	}
}

func TestFind(t *testing.T) {
	good := script(t, "exit 0")
	other := script(t, "exit 0")
	plain := filepath.Join(t.TempDir(), "criu")
	if err := os.WriteFile(plain, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(t.TempDir(), "criu")
	for _, tc := range []struct {
		name, configured, own, path, want string
	}{
		{"configured wins", good, other, filepath.Dir(other), good},
		{"configured and missing is not replaced by another", missing, other, filepath.Dir(other), ""},
		{"configured and not executable", plain, other, filepath.Dir(other), ""},
		{"configured directory", filepath.Dir(good), other, "", ""},
		{"own before PATH", "", good, filepath.Dir(other), good},
		{"PATH", "", missing, filepath.Dir(other), other},
		{"nowhere", "", missing, filepath.Dir(missing), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Setenv("PATH", tc.path)
			got, err := find(tc.configured, tc.own)
			if got != tc.want {
				t.Fatalf("find = %q, %v; want %q", got, err, tc.want)
			}
			if tc.want == "" && (!errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "make setup")) {
				t.Fatalf("error %v does not say that CRIU was not found, or not what to do", err)
			}
		})
	}
}

func TestProbe(t *testing.T) {
	for _, tc := range []struct {
		name, body string
		want       error
		text       string
	}{
		{"fine", `echo "Version: 4.2.1"`, nil, ""},
		{"the oldest", `echo "Version: 4.1"`, nil, ""},
		{"too old", `echo "Version: 3.17.1"`, ErrTooOld, "3.17.1"},
		{"fails", `echo "error while loading shared libraries: libnl.so" >&2; exit 127`, nil, "libnl.so"},
		{"says nothing", `exit 0`, nil, "no version"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := script(t, tc.body)
			tool, err := Probe(t.Context(), path)
			if tc.text == "" {
				if err != nil || tool.Path != path || tool.Version.Less(MinVersion) {
					t.Fatalf("Probe = %+v, %v", tool, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.text) || !strings.Contains(err.Error(), "make setup") {
				t.Fatalf("Probe: error %v; want %q and what to do in it", err, tc.text)
			}
			if tc.want != nil && !errors.Is(err, tc.want) {
				t.Fatalf("Probe: error %v is not %v", err, tc.want)
			}
			if tool != (Tool{}) {
				t.Fatalf("Probe returned %+v beside an error", tool)
			}
		})
	}
}

func TestCheck(t *testing.T) {
	if err := Check(t.Context(), script(t, `[ "$1" = check ] && echo "Looks good."`)); err != nil {
		t.Fatal(err)
	}
	err := Check(t.Context(), script(t, `echo "Error (criu/cr-check.c:1): Kernel too odd"; exit 1`))
	if !errors.Is(err, ErrCheck) || !strings.Contains(err.Error(), "Kernel too odd") {
		t.Fatalf("Check: %v", err)
	}
}

// A CRIU that hangs, with a child that keeps its output open, ends with the
// context and says so.
func TestHang(t *testing.T) {
	pidFile := filepath.Join(t.TempDir(), "pid")
	path := script(t, "sleep 60 & echo $! >"+pidFile+"; sleep 60")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 500*time.Millisecond, errors.New("the caller gave up"))
	defer cancel()
	start := time.Now()
	err := Check(ctx, path)
	if err == nil || !strings.Contains(err.Error(), "the caller gave up") {
		t.Fatalf("Check: %v", err)
	}
	if took := time.Since(start); took > 20*time.Second {
		t.Fatalf("Check returned after %s", took)
	}
	pid, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	// It was killed, and the kernel takes its time to let it die.
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.After(20 * time.Second)
	for {
		stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("a child of CRIU is still there: %s", stat)
		}
	}
}
