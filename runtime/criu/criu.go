// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package criu finds the CRIU program and tells whether it can be used: at
// checkpoint, before anything is changed, and in `hetgpu doctor`.
//
// It does not run dumps and restores (runc does), and must not know of
// containers, snapshots or GPUs. It holds no state and no lock.
package criu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/internal/execx"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/lazyregexp"
)

// Prefix is where `make setup` installs a CRIU of its own, with its libraries,
// on distributions whose own is too old.
const Prefix = "/opt/hetgpu/criu"

// Advice says how to get a CRIU that can be used. Every error of this package
// ends in it.
const Advice = "install CRIU 4.2 (`make setup` puts it into " + Prefix + "; 4.1, the package criu of Debian 13 and Ubuntu 25.04, does for the most), or name one in the configuration"

const (
	versionTimeout = 5 * time.Second
	// checkTimeout is generous: the check forks, loads modules and probes
	// sockets, which took 0.1 s where it was measured.
	checkTimeout = 20 * time.Second
)

// MinVersion is the oldest CRIU that is accepted: since 4.1 it dumps a process
// that the device's driver holds locked.
var MinVersion = Version{4, 1, 0}

// FullVersion is the oldest CRIU that dumps all that is saved here. An older one
// refuses a process that has met an uprobe (docs/legacy-ipc.md), and on Linux
// 6.16 and newer one with a TCP connection: the kernel has no SO_PASSCRED for it
// any more.
var FullVersion = Version{4, 2, 0}

var (
	// ErrNotFound means that there is no CRIU program.
	ErrNotFound = errors.New("CRIU not found")
	// ErrTooOld means that CRIU is older than [MinVersion].
	ErrTooOld = errors.New("CRIU is too old")
	// ErrCheck means that `criu check` failed: CRIU and this kernel, or the
	// rights it runs with, do not go together.
	ErrCheck = errors.New("criu check failed")
)

// Version is CRIU's version: major, minor, sublevel.
type Version [3]int

// String returns the version as CRIU prints it.
func (v Version) String() string {
	if v[2] == 0 {
		return fmt.Sprintf("%d.%d", v[0], v[1])
	}
	return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2])
}

// Less tells whether v is older than w.
func (v Version) Less(w Version) bool {
	for i := range v {
		if v[i] != w[i] {
			return v[i] < w[i]
		}
	}
	return false
}

// Tool is a CRIU program that can be used.
type Tool struct {
	// Path is absolute. runc looks CRIU up in PATH, so whoever runs runc puts
	// the directory of Path first there.
	Path    string
	Version Version
}

// Find returns the absolute path of the CRIU program: the configured one if a
// path is given, and no other then; else ours below [Prefix]; else the one in
// PATH.
func Find(configured string) (string, error) {
	return find(configured, filepath.Join(Prefix, "bin", "criu"))
}

func find(configured, own string) (string, error) {
	if configured != "" {
		if err := executable(configured); err != nil {
			return "", fmt.Errorf("%w: configured path: %w; %s", ErrNotFound, err, Advice)
		}
		return filepath.Abs(configured)
	}
	if executable(own) == nil {
		return own, nil
	}
	path, err := exec.LookPath("criu")
	if err != nil {
		return "", fmt.Errorf("%w: neither %s nor in PATH (%s); %s", ErrNotFound, own, os.Getenv("PATH"), Advice)
	}
	return filepath.Abs(path)
}

func executable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return fmt.Errorf("%s is not an executable file", path)
	}
	return nil
}

// ReadVersion asks the program for its version.
func ReadVersion(ctx context.Context, path string) (Version, error) {
	out, err := execx.Output(ctx, versionTimeout, path, "--version")
	if err != nil {
		return Version{}, fmt.Errorf("%s --version: %w; %s", path, err, Advice)
	}
	v, err := parseVersion(out)
	if err != nil {
		return Version{}, fmt.Errorf("%s --version: %w; %s", path, err, Advice)
	}
	return v, nil
}

var versionLine = lazyregexp.New(`(?m)^Version:\s*(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?`)

func parseVersion(out string) (Version, error) {
	m := versionLine.FindStringSubmatch(out)
	if m == nil {
		return Version{}, fmt.Errorf("no version in its output %q", execx.LastLines(out, 5))
	}
	var v Version
	for i, s := range m[1:] {
		if s != "" {
			// Six digits at most: it can't overflow.
			v[i], _ = strconv.Atoi(s)
		}
	}
	return v, nil
}

// Check runs `criu check`, which needs root.
func Check(ctx context.Context, path string) error {
	if _, err := execx.Output(ctx, checkTimeout, path, "check"); err != nil {
		return fmt.Errorf("%w: %s: %w; %s", ErrCheck, path, err, Advice)
	}
	return nil
}

// CheckFeature tells whether CRIU and the kernel have what
// `criu check --feature` calls so.
func CheckFeature(ctx context.Context, path, feature string) error {
	if _, err := execx.Output(ctx, checkTimeout, path, "check", "--feature", feature); err != nil {
		return fmt.Errorf("%s check --feature %s: %w", path, feature, err)
	}
	return nil
}

// Probe finds CRIU and asks for its version. It fails with [ErrNotFound] or
// [ErrTooOld]. It does not run [Check], which takes longer.
func Probe(ctx context.Context, configured string) (Tool, error) {
	path, err := Find(configured)
	if err != nil {
		return Tool{}, err
	}
	v, err := ReadVersion(ctx, path)
	if err != nil {
		return Tool{}, err
	}
	if v.Less(MinVersion) {
		return Tool{}, fmt.Errorf("%w: %s is version %s, %s is needed; %s", ErrTooOld, path, v, MinVersion, Advice)
	}
	return Tool{Path: path, Version: v}, nil
}
