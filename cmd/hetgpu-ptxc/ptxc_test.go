// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const program = `.version 8.3
.target sm_80
.address_size 64
.file 1 "wait.cu"
.visible .entry wait(.param .u64 p)
{
	.reg .b32 %r<3>;
	.reg .b64 %d<2>;
	ld.param.u64 %d1, [p];
	cvta.to.global.u64 %d1, %d1;
	.loc 1 12 3
	bar.sync 0;
	mov.u32 %r1, %tid.x;
	st.global.u32 [%d1], %r1;
	ret;
}
`

// fatbins has one for each image of PTX, a module of its own.
func fatbins(texts ...string) []byte {
	le := binary.LittleEndian
	var all []byte
	for _, text := range texts {
		file := make([]byte, 64, 64+len(text))
		le.PutUint16(file, 1)
		le.PutUint32(file[4:], 64)
		le.PutUint32(file[8:], uint32(len(text)))
		le.PutUint32(file[28:], 80)
		file = append(file, text...)
		head := make([]byte, 16)
		le.PutUint32(head, 0xba55ed50)
		le.PutUint16(head[4:], 1)
		le.PutUint16(head[6:], 16)
		le.PutUint64(head[8:], uint64(len(file)))
		all = append(append(all, head...), file...)
	}
	return all
}

// ptxc runs the command.
func ptxc(t *testing.T, stdin string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	err = run(args, strings.NewReader(stdin), &out, &errs)
	return out.String(), errs.String(), err
}

func TestOutputs(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("in.ptx", []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, err := ptxc(t, program, "-target", "ir", "-")
	if err != nil || !strings.Contains(code, "kernel @wait") {
		t.Fatalf("%v\n%s", err, code)
	}
	ptx, _, err := ptxc(t, "", "in.ptx")
	if err != nil || !strings.Contains(ptx, ".visible .entry wait") {
		t.Fatalf("%v\n%s", err, ptx)
	}
	opencl, _, err := ptxc(t, "", "-target", "opencl", "in.ptx")
	if err != nil || !strings.Contains(opencl, "__kernel") {
		t.Fatalf("%v\n%s", err, opencl)
	}
	explained, _, err := ptxc(t, "", "-explain", "in.ptx")
	if err != nil || !strings.Contains(explained, "wait: barrier-pausable") || !strings.Contains(explained, "wait.cu:12") {
		t.Fatalf("%v\n%s", err, explained)
	}
	if _, err := os.Stat("-"); err == nil {
		t.Error(`"-" is a file`)
	}

	// Everything at once: the explanation is not among the code.
	stdout, stderr, err := ptxc(t, "", "-explain", "-target", "ir", "-layout", "layout.json", "-o", "-", "in.ptx")
	if err != nil || stdout != code || stderr != explained {
		t.Errorf("%v\n%s\n%s", err, stdout, stderr)
	}
	text, err := os.ReadFile("layout.json")
	if err != nil {
		t.Fatal(err)
	}
	var layout struct {
		Kernels []struct{ Name, Class string }
	}
	if err := json.Unmarshal(text, &layout); err != nil || len(layout.Kernels) != 1 || layout.Kernels[0].Name != "wait" {
		t.Errorf("%v\n%s", err, text)
	}

	stdout, _, err = ptxc(t, "", "--target=ir", "-o", "out.ir", "-explain", "in.ptx")
	if err != nil || stdout != explained {
		t.Errorf("%v\n%s", err, stdout)
	}
	if text, err := os.ReadFile("out.ir"); err != nil || string(text) != code {
		t.Errorf("%v\n%s", err, text)
	}
}

func TestLeave(t *testing.T) {
	out, explained, err := ptxc(t, program, "-leave", "wait", "-explain", "-o", "-", "-")
	if err != nil || !strings.Contains(explained, "wait: runs-to-end: it is to be left as it is") {
		t.Errorf("%v\n%s", err, explained)
	}
	if strings.Contains(out, "hg_launch") || !strings.Contains(out, "bar.sync") {
		t.Errorf("it is not as it was:\n%s", out)
	}
	if _, _, err := ptxc(t, program, "-leave", "none", "-"); err == nil || !strings.Contains(err.Error(), `there is no kernel "none"`) {
		t.Error(err)
	}
}

func TestFatbin(t *testing.T) {
	name := filepath.Join(t.TempDir(), "app")
	other := strings.ReplaceAll(program, "wait(", "other(")
	if err := os.WriteFile(name, fatbins(program, other), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ptxc(t, "", name); err == nil || !strings.Contains(err.Error(), "it has 2 modules with PTX: say which with -module, from 0 to 1") {
		t.Error(err)
	}
	out, _, err := ptxc(t, "", "-module", "1", "-target", "ir", name)
	if err != nil || !strings.Contains(out, "kernel @other") {
		t.Errorf("%v\n%s", err, out)
	}
	if _, _, err := ptxc(t, "", "-module", "2", name); err == nil || !strings.Contains(err.Error(), "there is no module 2") {
		t.Error(err)
	}
	out, _, err = ptxc(t, string(fatbins(program)), "-target", "ir", "-")
	if err != nil || !strings.Contains(out, "kernel @wait") {
		t.Errorf("%v\n%s", err, out)
	}
	if _, _, err := ptxc(t, "\xffELF", "-"); err == nil {
		t.Error("nothing was compiled")
	}
}

func TestErrors(t *testing.T) {
	t.Chdir(t.TempDir())
	bad := strings.Replace(program, "bar.sync", "bar.frob", 1)
	if err := os.WriteFile("bad.ptx", []byte(bad), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"bad.ptx", "-o", "x"}, errUsage.Error()}, // options stand before the file
		{[]string{}, errUsage.Error()},
		{[]string{"-frob", "bad.ptx"}, errUsage.Error()},
		{[]string{"-o", "out", "-layout", "out", "bad.ptx"}, "bad.ptx:12:2: bar.frob is not known"},
		{[]string{"-module", "1", "bad.ptx"}, "there is no module 1"},
		{[]string{"missing.ptx"}, "missing.ptx: no such file"},
		{[]string{"-target", "fortran", "-"}, `there is no target "fortran"`},
		{[]string{"-o", "none/out", "-"}, "none/out: no such file"},
	} {
		_, _, err := ptxc(t, program, test.args...)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: error %v, not %q", test.args, err, test.want)
		}
	}
	if _, err := os.Stat("out"); err == nil {
		t.Error("a program that is wrong left a file")
	}
	_, stderr, err := ptxc(t, "", "-help")
	if !errors.Is(err, flag.ErrHelp) || !strings.Contains(stderr, "usage: hetgpu-ptxc [-target ") {
		t.Errorf("%v\n%s", err, stderr)
	}
	if out, _, err := ptxc(t, "", "-version"); err != nil || !strings.HasPrefix(out, "hetgpu-ptxc ") {
		t.Errorf("%v\n%s", err, out)
	}
}

// Loops between barriers are left where that is asked for, and not otherwise.
func TestLoops(t *testing.T) {
	text, err := os.ReadFile("../../compiler/corpus/kernels/crc32.ptx")
	if err != nil {
		t.Fatal(err)
	}
	const left = "also for threads at the end of a loop's round"
	for _, loops := range []bool{false, true} {
		args := []string{"-explain", "-"}
		if loops {
			args = append([]string{"-loops"}, args...)
		}
		explained, _, err := ptxc(t, string(text), args...)
		if err != nil || !strings.Contains(explained, "crc32: barrier-pausable") || strings.Contains(explained, left) != loops {
			t.Errorf("-loops %v: %v\n%s", loops, err, explained)
		}
	}
}
