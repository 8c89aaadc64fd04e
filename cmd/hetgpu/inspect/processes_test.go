// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	criu_core "github.com/checkpoint-restore/go-criu/v8/crit/images/criu-core"
	"github.com/checkpoint-restore/go-criu/v8/crit/images/pstree"
	"github.com/checkpoint-restore/go-criu/v8/magic"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// tree is what the images in testdata, and the manifest of gpu, say.
var tree = []Process{
	{PID: 1, PPID: 0, Threads: 1, Command: "launcher"},
	{PID: 6, PPID: 1, Threads: 1, Command: "done", depth: 1},
	{PID: 7, PPID: 1, Threads: 3, Command: "trainer", GPU: true, depth: 1},
	{PID: 8, PPID: 7, Threads: 1, Command: "loader\x1b[1m", GPU: true, depth: 2},
}

// criuImage makes an image of CRIU of messages.
func criuImage(tb testing.TB, kind string, messages ...proto.Message) string {
	tb.Helper()
	data := binary.LittleEndian.AppendUint32(nil, uint32(magic.LoadMagic().ByName["IMG_COMMON"]))
	data = binary.LittleEndian.AppendUint32(data, uint32(magic.LoadMagic().ByName[kind]))
	for _, m := range messages {
		// Partial: a hostile image may lack what is required.
		message, err := proto.MarshalOptions{AllowPartial: true}.Marshal(m)
		if err != nil {
			tb.Fatal(err)
		}
		data = binary.LittleEndian.AppendUint32(data, uint32(len(message)))
		data = append(data, message...)
	}
	return string(data)
}

func entry(pid, ppid uint32) *pstree.PstreeEntry {
	return &pstree.PstreeEntry{Pid: &pid, Ppid: &ppid, Pgid: proto.Uint32(1), Sid: proto.Uint32(1), Threads: []uint32{pid}}
}

func core(command string) *criu_core.CoreEntry {
	return &criu_core.CoreEntry{Mtype: criu_core.CoreEntry_X86_64.Enum(), Tc: &criu_core.TaskCoreEntry{
		TaskState: proto.Uint32(1), ExitCode: proto.Uint32(0), Personality: proto.Uint32(0),
		Flags: proto.Uint32(0), BlkSigset: proto.Uint64(0), Comm: &command,
	}}
}

// What can't be read of the processes is a reason not to restore: CRIU could
// not either.
func TestDamagedProcesses(t *testing.T) {
	good := stock(t)
	trees := func(entries ...proto.Message) string { return criuImage(t, "PSTREE", entries...) }
	for _, tc := range []struct{ name, file, data, text string }{
		{"empty", treeName, "", "pstree.img: it is no image of the kind PSTREE"},
		{"text", treeName, strings.Repeat("text", 100), "no image"},
		{"another kind", treeName, good["core-1.img"], "no image"},
		{"no process", treeName, trees(), "no process"},
		{"half a length", treeName, good[treeName] + "\x01\x00", "unexpected EOF"},
		{"too long", treeName, good[treeName] + "\xff\xff\xff\xff", "unexpected EOF"},
		{"too large", treeName, good[treeName] + strings.Repeat("\x00", maxImage), "more than 4194304"},
		{"no fields", treeName, trees(&pstree.PstreeEntry{}), "required field"},
		{"PID 0", treeName, trees(entry(0, 0)), "without a PID"},
		{"twice", treeName, trees(entry(1, 0), entry(7, 1), entry(7, 1)), "process 7 is there twice"},
		{"two roots", treeName, trees(entry(1, 0), entry(7, 0)), "process 7 has no parent 0"},
		{"a cycle", treeName, trees(entry(1, 0), entry(7, 8), entry(8, 7)), "process 7 has no parent 8"},
		{"its own parent", treeName, trees(entry(1, 1)), "process 1 has no parent 1"},
		{"no root", treeName, trees(entry(7, 1)), "process 7 has no parent 1"},
		{"not known beside", treeName, good[treeName] + trees(entry(99, 1))[8:], "core-99.img says nothing"},
		{"of a thread", "core-8.img", good["core-9.img"], "core-8.img says nothing"},
		{"no message", "core-8.img", criuImage(t, "CORE"), "core-8.img says nothing"},
		{"no protobuf", "core-8.img", good["core-8.img"][:12] + strings.Repeat("\xff", len(good["core-8.img"])-12), "core-8.img: proto"},
		{"a long name", "core-8.img", criuImage(t, "CORE", core(strings.Repeat("x", maxCommand+1))), "65 bytes"},
		{"a large core", "core-10.img", strings.Repeat("x", maxImage+1), "core-10.img"},
	} {
		snap := stock(t).with(tc.file, tc.data)
		for kind, path := range map[string]string{"directory": snap.dir(t), "tar": write(t, snap.tar(t, ""))} {
			r, err := Inspect(t.Context(), path, Options{})
			if !errors.Is(err, ErrProblems) || len(r.Problems) != 1 || !strings.Contains(r.Problems[0], tc.text) || r.Processes != nil {
				t.Errorf("%s in a %s: %v, %+v; want one problem with %q", tc.name, kind, err, r, tc.text)
			}
		}
	}
}

// A part of the tree's image is never taken for the whole, but where a message
// ends, and then what is missing shows elsewhere.
func TestCutTree(t *testing.T) {
	data := []byte(stock(t)[treeName])
	whole, err := decodeTree(data)
	if err != nil {
		t.Fatal(err)
	}
	ends := 0
	for n := range data {
		list, err := decodeTree(data[:n])
		switch {
		case err == nil && slices.Equal(list, whole[:len(list)]) && len(list) < len(whole):
			ends++
		case err == nil:
			t.Errorf("%d bytes are %v", n, list)
		}
	}
	if ends != len(whole) {
		t.Errorf("%d of %d beginnings are whole", ends, len(data))
	}
}

// Names that CRIU does not use are no images of processes.
func TestOtherCores(t *testing.T) {
	snap := stock(t)
	for _, name := range []string{"core-x.img", "core--1.img", "core-99999999999.img", "core-.img", "core-1.img.img", "xcore-1.img"} {
		snap[name] = "x"
	}
	r, err := Inspect(t.Context(), snap.dir(t), Options{})
	if err != nil || len(r.Processes) != len(tree) {
		t.Errorf("%v, %+v", err, r)
	}
}

// No link is followed in a directory, and no pipe waited for.
func TestProcessesInSpecialFiles(t *testing.T) {
	dir := stock(t).dir(t)
	path := filepath.Join(dir, "core-7.img")
	if err := os.Rename(path, path+".moved"); err != nil {
		t.Fatal(err)
	}
	for what, make := range map[string]func() error{
		"link": func() error { return os.Symlink(path+".moved", path) },
		"pipe": func() error { return unix.Mkfifo(path, 0o600) },
	} {
		if err := make(); err != nil {
			t.Fatal(err)
		}
		r, err := Inspect(t.Context(), dir, Options{})
		if !errors.Is(err, ErrProblems) || !strings.Contains(r.Problems[0], "core-7.img") {
			t.Errorf("%s: %v, %+v", what, err, r)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// Every process of the manifest has to be among CRIU's.
func TestGPUProcessMissing(t *testing.T) {
	snap := gpu(t, func(m *snapshot.Manifest) {
		m.Processes = append(m.Processes, snapshot.Process{NSPIDs: []int{7, 9}, Command: "gone", State: gpuplugin.StateRunning})
	})
	for kind, path := range map[string]string{"directory": snap.dir(t), "tar": write(t, snap.tar(t, ""))} {
		r, err := Inspect(t.Context(), path, Options{})
		if !errors.Is(err, ErrProblems) || len(r.Problems) != 1 || !strings.Contains(r.Problems[0], "[7 9] (gone)") {
			t.Errorf("%s: %v, %+v", kind, err, r)
		}
		if r != nil && (!slices.Equal(r.Processes, tree) || r.Digests != DigestsMatch) {
			t.Errorf("%s: %+v", kind, r)
		}
	}
}

// A file that is damaged is one problem, whatever else follows from it.
func TestDamageIsSaidOnce(t *testing.T) {
	for _, name := range []string{treeName, "core-1.img"} {
		snap := gpu(t, nil)
		snap[name] = "x" + snap[name][1:]
		for kind, path := range map[string]string{"directory": snap.dir(t), "tar": write(t, snap.tar(t, ""))} {
			r, err := Inspect(t.Context(), path, Options{})
			if !errors.Is(err, ErrProblems) || len(r.Problems) != 1 || !strings.Contains(r.Problems[0], "chunk 0") || r.Processes != nil {
				t.Errorf("%s in a %s: %v, %+v", name, kind, err, r)
			}
		}
	}
}

func TestDeepTree(t *testing.T) {
	const deep = 2000
	snap := stock(t)
	var entries []proto.Message
	for pid := range uint32(deep) {
		entries = append(entries, entry(pid+1, pid))
	}
	snap[treeName] = criuImage(t, "PSTREE", entries...)
	var s saved
	s.add(treeName, []byte(snap[treeName]), nil)
	for _, e := range entries {
		pid := int(e.(*pstree.PstreeEntry).GetPid())
		if err := s.addCore(pid, []byte(criuImage(t, "CORE", core("x")))); err != nil {
			t.Fatal(err)
		}
	}
	r := newReport(KindTar, "x")
	r.setProcesses(&s)
	var text bytes.Buffer
	if err := r.Print(&text); err != nil || len(r.Problems) > 0 || len(r.Processes) != deep {
		t.Fatalf("%v, %v", err, r.Problems)
	}
	for line := range strings.Lines(text.String()) {
		if len(line) > 80 {
			t.Fatalf("a line of %d bytes: %s", len(line), line)
		}
	}
}

// A tar may not have trees without end, in folders without end.
func TestManyTrees(t *testing.T) {
	var more []tar.Header
	for i := range maxTrees/maxImage + 1 {
		more = append(more, tar.Header{Name: strings.Repeat("x/", i+1) + treeName, Typeflag: tar.TypeReg, Size: maxImage})
	}
	_, err := Inspect(t.Context(), write(t, stock(t).tar(t, "", more...)), Options{})
	if err == nil || errors.Is(err, ErrProblems) || !strings.Contains(err.Error(), "process trees") {
		t.Error(err)
	}
}

// Whatever is decoded is a tree, and nothing panics.
func FuzzProcesses(f *testing.F) {
	images, err := filepath.Glob("testdata/criu/*.img")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range images {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(criuImage(f, "PSTREE", entry(1, 0), entry(7, 8), entry(8, 7))))
	f.Fuzz(func(t *testing.T, data []byte) {
		var s saved
		s.add("core-1.img", data, nil)
		s.add(treeName, data, nil)
		list, err := decodeTree(data)
		if err != nil {
			return
		}
		depths := map[int]int{}
		for i, p := range list {
			above, known := depths[p.PPID]
			if p.PID < 1 || known != (i > 0) || known && p.depth != above+1 || !known && p.depth != 0 {
				t.Fatalf("process %d of %+v", i, list)
			}
			depths[p.PID] = p.depth
		}
	})
}
