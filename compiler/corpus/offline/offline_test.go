// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package offline compiles the corpus with compilers for devices that this machine
// doesn't have.
package offline

import (
	"bytes"
	"debug/elf"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/corpus"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/corpus/harness"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/opencl"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/pause"
)

// everything is all kernels of the corpus as one module of OpenCL C: a compiler
// starts once. It returns the text and the names of the entries. Files with numbers
// of 64-bit floating point are left out if the device has none.
func everything(t *testing.T, fp64 bool) (text string, entries []string) {
	t.Helper()
	all, plans := &ir.Module{}, map[*ir.Func]*pause.Plan{}
	for _, file := range corpus.Files() {
		source, err := corpus.PTX(file)
		if err != nil {
			t.Fatal(err)
		}
		m, err := harness.Prepare(source)
		if err != nil {
			t.Fatal(err)
		}
		own := map[*ir.Func]*pause.Plan{}
		for _, f := range m.Funcs {
			if f.Kernel {
				own[f] = pause.New(m, f)
			}
		}
		if p, err := opencl.Module(m, own); err != nil {
			t.Fatal(err)
		} else if !fp64 && strings.Contains(p.Text, "double") {
			t.Logf("left out, it needs 64-bit floating point: %s", file)
			continue
		}
		all.Vars, all.Funcs = append(all.Vars, m.Vars...), append(all.Funcs, m.Funcs...)
		maps.Copy(plans, own)
	}
	p, err := opencl.Module(all, plans)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range p.Kernels {
		if k.Entry != "" {
			entries = append(entries, k.Entry)
		}
		for _, r := range k.Resume {
			entries = append(entries, r.Entry)
		}
	}
	return p.Text, entries
}

// amdClang finds the clang that has AMD's device library, and the library:
// packages of Debian 12 and 13.
func amdClang(t *testing.T) (clang, library string) {
	t.Helper()
	for clang, library := range map[string]string{
		"clang-15": "/usr/lib/x86_64-linux-gnu/amdgcn/bitcode",
		"clang-17": "/usr/lib/llvm-17/lib/clang/17/amdgcn/bitcode",
	} {
		if _, err := os.Stat(library); errors.Is(err, os.ErrNotExist) {
			continue
		}
		if path, err := exec.LookPath(clang); err == nil {
			return path, library
		}
	}
	t.Fatal("no clang with AMD's device library: hack/setup.sh opencl installs them")
	return "", ""
}

// TestAMD: clang makes code objects for AMD's GPUs of all kernels, with nothing
// left undefined. None has run on one.
func TestAMD(t *testing.T) {
	text, entries := everything(t, true)
	clang, library := amdClang(t)
	for _, device := range []string{"gfx90a", "gfx1030"} {
		t.Run(device, func(t *testing.T) {
			t.Parallel()
			object := filepath.Join(t.TempDir(), "all.co")
			args := append(strings.Fields(opencl.Options), "-x", "cl", "-Xclang", "-finclude-default-header", "-target", "amdgcn-amd-amdhsa",
				"-mcpu="+device, "--rocm-device-lib-path="+library, "-mcode-object-version=4", "-O1", "-", "-o", object)
			compile(t, clang, args, text)
			f, err := elf.Open(object)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = f.Close() })
			symbols, err := f.DynamicSymbols()
			if err != nil {
				t.Fatal(err)
			}
			has := map[string]bool{}
			for _, s := range symbols {
				if s.Section == elf.SHN_UNDEF {
					t.Errorf("%s is undefined", s.Name)
				}
				has[s.Name] = true
			}
			for _, e := range entries {
				if !has[e+".kd"] {
					t.Errorf("no kernel descriptor of %s", e)
				}
			}
		})
	}
}

// TestIntel: Intel's offline compiler makes code for its GPUs of all kernels. None
// has run on one.
func TestIntel(t *testing.T) {
	ocloc, err := exec.LookPath("ocloc")
	if err != nil {
		t.Skip("no ocloc: Debian 12 has it (intel-opencl-icd), Debian 13 has no compiler for Intel's GPUs")
	}
	for device, fp64 := range map[string]bool{"dg2": false, "pvc": true, "tgllp": false} {
		t.Run(device, func(t *testing.T) {
			t.Parallel()
			text, entries := everything(t, fp64)
			dir := t.TempDir()
			source := filepath.Join(dir, "all.cl")
			if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			compile(t, ocloc, []string{"compile", "-file", source, "-device", device, "-options", opencl.Options, "-out_dir", dir, "-output", "all"}, "")
			made, err := filepath.Glob(filepath.Join(dir, "*.bin"))
			if err != nil || len(made) != 1 {
				t.Fatalf("ocloc made %v, %v", made, err)
			}
			code, err := os.ReadFile(made[0])
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				if !bytes.Contains(code, []byte(e)) {
					t.Errorf("no kernel %s", e)
				}
			}
		})
	}
}

// compile runs a compiler, whose text comes from standard input.
func compile(t *testing.T, program string, args []string, text string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%.4000s", program, strings.Join(args, " "), err, out)
	}
}
