// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const (
	module = "github.com/hetgpu/containerd-shim-hetgpu/"
	stock  = "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2"
)

// beyond are the packages that the shim links and the stock shim does not, ours
// aside. Each container has a shim, and the shim has in its memory most of what it
// links: the kernel maps 64 KiB around each byte that is touched. So what only some
// checkpoints or restores need is done by another program (hetgpu-hook, hetgpu-gpu).
var beyond = map[string]string{
	"archive/tar": "runtime/depot unpacks the kubelet's archives, runtime/rootfs writes a layer",
	"crypto/aes":  "internal/memfile reads the index of device memory that is encrypted",
	"crypto/hkdf": "internal/memfile names keys", "crypto/internal/fips140/hkdf": "", "crypto/internal/fips140hash": "", "crypto/sha3": "",
	"github.com/checkpoint-restore/go-criu/v8/magic":               "internal/criuimg finds the mounts of a snapshot",
	"github.com/containerd/containerd/api/types/runtimeoptions/v1": "options as containerd's CRI sends them, which are TOML",
	"github.com/pelletier/go-toml/v2":                              "these, and the configuration",
	"github.com/pelletier/go-toml/v2/internal/parserbridge":        "",
	"github.com/pelletier/go-toml/v2/internal/tracker":             "",
	"github.com/pelletier/go-toml/v2/unstable":                     "",
}

func TestLinks(t *testing.T) {
	linked := func(program string) []string {
		// The tag is that of both programs' Makefiles.
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-tags", "no_grpc", program).CombinedOutput()
		if err != nil {
			t.Fatalf("go list: %v: %s", err, out)
		}
		return strings.Fields(string(out))
	}
	ours, theirs := linked("."), linked(stock)
	for _, pkg := range ours {
		if _, allowed := beyond[pkg]; !allowed && !slices.Contains(theirs, pkg) && !strings.HasPrefix(pkg, module) {
			t.Errorf("the shim links %s, and the stock shim does not: can another program do what needs it?", pkg)
		}
	}
	for pkg := range beyond {
		if !slices.Contains(ours, pkg) || slices.Contains(theirs, pkg) {
			t.Errorf("%s is not linked any more, or the stock shim links it too: take it from the list", pkg)
		}
	}
}

// initialized are our packages that run code when the program starts.
var initialized = map[string]string{
	"gpuplugin/nvidia/helperapi": "generated: its messages are registered",
	"internal/memfile/indexpb":   "generated",
	"shim/plugin":                "registers the task service",
}

// A variable that is made by code costs each of the three starts of the program for
// a container its time, and a shim the page with the code, with those around it. The
// compiler writes into the program's data what it can: constants, errors.New,
// lazyregexp.New, arrays, structs of these. Maps, sync.OnceValue and values of other
// packages' variables it can't.
func TestInitializes(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^$") // this program links all of the shim
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	seen := 0
	for line := range strings.Lines(string(out)) {
		pkg, ours := strings.CutPrefix(line, "init "+module)
		pkg, _, _ = strings.Cut(pkg, " ")
		if !ours || strings.HasPrefix(pkg, "cmd/") { // this test's own
			continue
		}
		if initialized[pkg] == "" {
			t.Errorf("package %s runs code when the shim starts: which of its variables is not constant?", pkg)
		}
		seen++
	}
	if seen != len(initialized) {
		t.Errorf("%d of our packages run code when the shim starts, and %d are listed", seen, len(initialized))
	}
}
