// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
)

var zeros = digestOf(make([]byte, 10))

// example is a manifest with something in every field.
func example() *Manifest {
	return &Manifest{
		Version: 1,
		Engine:  EngineDriver,
		Created: time.Date(2026, 11, 20, 8, 30, 0, 5, time.UTC),
		Container: Container{
			ID: "train", Namespace: "k8s.io", Hostname: "train", CgroupsPath: "/k8s.io/train",
		},
		Host:    Host{Kernel: "6.18.0", Arch: "amd64", Runc: "1.5.2", CRIU: "4.2.1", Driver: "580.159.04", API: 13000},
		Options: Options{TCPEstablished: true, FileLocks: true},
		Devices: []gpuplugin.Device{{
			UUID: "GPU-1", Vendor: "nvidia", Model: "NVIDIA H200", MemoryBytes: 150754820096, UsedBytes: 2 << 30, PCI: "0000:81:00.0",
		}},
		Processes: []Process{{NSPIDs: []int{7, 1}, Command: "python3", State: gpuplugin.StateRunning}},
		Files:     []File{{Name: "core-1.img", Size: 10, Digests: []string{zeros}}, {Name: "empty.img", Digests: []string{}}},
		Phases:    []Phase{{Name: "dump", Seconds: 1.25}},
	}
}

func encode(t *testing.T, m *Manifest) []byte {
	t.Helper()
	data, err := Encode(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// envelope is what Encode puts around a manifest, for manifests that it would
// not write.
func envelope(body string) []byte {
	return []byte(head + digestOf([]byte(body)) + middle + body + tail)
}

func TestRoundTrip(t *testing.T) {
	got, err := Decode(encode(t, example()))
	if err != nil {
		t.Fatal(err)
	}
	if want := example(); !reflect.DeepEqual(got, want) {
		t.Fatalf("got %+v\nwant %+v", got, want)
	}
}

func TestEncodeNormalizes(t *testing.T) {
	m := example()
	m.Created = m.Created.In(time.FixedZone("", 3600))
	m.Processes[0].Command = "a\x1b[31m\xff\nb"
	m.Devices, m.Phases = nil, nil
	m.Files[0], m.Files[1] = m.Files[1], m.Files[0]
	m.Files[0].Digests = nil
	data := encode(t, m)
	if strings.Contains(string(data), "null") {
		t.Errorf("a list is null in %s", data)
	}
	got, err := Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	if got.Processes[0].Command != "a?[31m??b" {
		t.Errorf("command %q", got.Processes[0].Command)
	}
	if !got.Created.Equal(m.Created) || got.Files[0].Name != "core-1.img" {
		t.Errorf("created %v, files %v", got.Created, got.Files)
	}
	if m.Processes[0].Command != "a\x1b[31m\xff\nb" || m.Files[0].Name != "empty.img" {
		t.Errorf("Encode changed its argument: %+v", m)
	}
}

// Any one bit that changes is found, wherever it is.
func TestEveryBit(t *testing.T) {
	data := encode(t, example())
	for i := range data {
		for bit := range 8 {
			data[i] ^= 1 << bit
			if _, err := Decode(data); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("bit %d of byte %d (%q): %v", bit, i, data[max(0, i-10):i+1], err)
			}
			data[i] ^= 1 << bit
		}
	}
	for i := range data {
		if _, err := Decode(data[:i]); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("cut to %d bytes: %v", i, err)
		}
	}
	if _, err := Decode(append(data, '\n')); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("one byte more: %v", err)
	}
}

func TestDecodeRefuses(t *testing.T) {
	body := func(edit func(*Manifest)) string {
		m := example()
		edit(m)
		data, err := jsonOf(m)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	plain := body(func(*Manifest) {})
	for _, tc := range []struct {
		name, body string
		want       error
		text       string
	}{
		{"newer", strings.Replace(plain, `"version":1`, `"version":7`, 1), ErrNewerVersion, "version 7"},
		{"newer, with unknown fields", `{"version":8,"engine":[1],"later":true}`, ErrNewerVersion, "up to 6"},
		{"unknown field", strings.Replace(plain, `"version":1`, `"version":1,"later":true`, 1), ErrCorrupt, "later"},
		{"unknown field below", strings.Replace(plain, `"arch"`, `"x":1,"arch"`, 1), ErrCorrupt, "x"},
		{"no version", strings.Replace(plain, `"version":1,`, ``, 1), ErrCorrupt, "no version"},
		{"version 0", strings.Replace(plain, `"version":1`, `"version":0`, 1), ErrCorrupt, "no version"},
		{"version is text", strings.Replace(plain, `"version":1`, `"version":"1"`, 1), ErrCorrupt, "version"},
		{"version is huge", strings.Replace(plain, `"version":1`, `"version":1e400`, 1), ErrCorrupt, "version"},
		{"not an object", `[]`, ErrCorrupt, ""},
		{"empty", ``, ErrCorrupt, ""},
		{"two manifests", plain + plain, ErrCorrupt, ""},
		{"not UTF-8", strings.Replace(plain, "train", "tr\xffin", 1), ErrCorrupt, "UTF-8"},
		{"engine", body(func(m *Manifest) { m.Engine = "../driver" }), ErrCorrupt, "engine"},
		{"no GPU and GPU processes", body(func(m *Manifest) { m.Engine = EngineNone }), ErrCorrupt, "1 processes"},
		{"time zone", strings.Replace(plain, "05Z", "05+01:00", 1), ErrCorrupt, "UTC"},
		{"no time", body(func(m *Manifest) { m.Created = time.Time{} }), ErrCorrupt, "UTC"},
		{"no id", body(func(m *Manifest) { m.Container.ID = "" }), ErrCorrupt, "container id"},
		{"long text", body(func(m *Manifest) { m.Host.Kernel = strings.Repeat("x", maxText+1) }), ErrCorrupt, "kernel"},
		{"device without UUID", body(func(m *Manifest) { m.Devices[0].UUID = "" }), ErrCorrupt, "UUID"},
		{"device twice", body(func(m *Manifest) { m.Devices = append(m.Devices, m.Devices[0]) }), ErrCorrupt, "twice"},
		{"negative minor", body(func(m *Manifest) { m.Devices[0].Minor = -1 }), ErrCorrupt, "minor"},
		{"process without PID", body(func(m *Manifest) { m.Processes[0].NSPIDs = nil }), ErrCorrupt, "namespaces"},
		{"PID 0", body(func(m *Manifest) { m.Processes[0].NSPIDs = []int{0} }), ErrCorrupt, "PID 0"},
		{"failed process", body(func(m *Manifest) { m.Processes[0].State = gpuplugin.StateFailed }), ErrCorrupt, "failed"},
		{"phase without name", body(func(m *Manifest) { m.Phases[0].Name = "" }), ErrCorrupt, "phase"},
		{"negative stop", body(func(m *Manifest) { m.Version, m.StopSeconds = 2, -1 }), ErrCorrupt, "stopped for"},
		{"negative time", body(func(m *Manifest) { m.Phases[0].Seconds = -1 }), ErrCorrupt, "phase"},
		{"file twice", body(func(m *Manifest) { m.Files[1] = m.Files[0] }), ErrCorrupt, "twice"},
		{"negative size", body(func(m *Manifest) { m.Files[0].Size = -1 }), ErrCorrupt, "size -1"},
		{"no digest", body(func(m *Manifest) { m.Files[0].Digests = nil }), ErrCorrupt, "digests"},
		{"size without digests", body(func(m *Manifest) { m.Files[0].Size = math.MaxInt64 }), ErrCorrupt, "digests"},
		{"a digest too many", body(func(m *Manifest) { m.Files[1].Digests = []string{zeros} }), ErrCorrupt, "digests"},
		{"digest in capitals", body(func(m *Manifest) { m.Files[0].Digests[0] = "sha256:" + strings.ToUpper(zeros[7:]) }), ErrCorrupt, "digest"},
		{"another digest", body(func(m *Manifest) { m.Files[0].Digests[0] = "sha512:" + zeros[7:] }), ErrCorrupt, "digest"},
		{"short digest", body(func(m *Manifest) { m.Files[0].Digests[0] = zeros[:20] }), ErrCorrupt, "digest"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, err := Decode(envelope(tc.body))
			if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.text) || m != nil {
				t.Fatalf("Decode = %v, %v; want %v with %q", m, err, tc.want, tc.text)
			}
			if errors.Is(tc.want, ErrCorrupt) && errors.Is(err, ErrNewerVersion) {
				t.Fatalf("%v is both", err)
			}
		})
	}
}

func TestFileNames(t *testing.T) {
	for name, ok := range map[string]bool{
		"core-1.img": true, "pages-1.img": true, "hetgpu-gpu0.img": true, "hetgpu-x": true, "descriptors.json": true, "ü.img": true,
		"": false, ".": false, "..": false, "../core-1.img": false, "a/b.img": false, "/a.img": false, "a\n.img": false, "a\x00.img": false,
		"\xff.img": false, "hetgpu.json": false, "dump.log": false, "parent": false, strings.Repeat("x", 252) + ".img": false,
	} {
		if err := checkName(name); (err == nil) != ok {
			t.Errorf("checkName(%q) = %v", name, err)
		}
	}
}

func TestLimits(t *testing.T) {
	m := example()
	for range maxPhases {
		m.Phases = append(m.Phases, Phase{Name: "x"})
	}
	if _, err := Encode(m); err == nil || !strings.Contains(err.Error(), "phases") {
		t.Errorf("Encode with too many phases: %v", err)
	}
	if _, err := Decode(make([]byte, MaxManifestSize+1)); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "more than") {
		t.Errorf("Decode of a large file: %v", err)
	}
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Write(canceled, dir, example()); !errors.Is(err, context.Canceled) {
		t.Fatalf("Write with a canceled context: %v", err)
	}
	bad := example()
	bad.Files[0].Name = "../x.img"
	if err := Write(t.Context(), dir, bad); err == nil {
		t.Fatal("Write wrote what Open would refuse")
	}
	if names := namesIn(t, dir); len(names) > 0 {
		t.Fatalf("failed writes left %v", names)
	}
	for range 2 { // the second replaces the first
		if err := Write(t.Context(), dir, example()); err != nil {
			t.Fatal(err)
		}
		if names := namesIn(t, dir); !reflect.DeepEqual(names, []string{ManifestName}) {
			t.Fatalf("Write left %v", names)
		}
	}
	info, err := os.Stat(filepath.Join(dir, ManifestName))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, %v", info.Mode(), err)
	}
	err = Write(t.Context(), filepath.Join(dir, "missing"), example())
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), ManifestName) {
		t.Fatalf("Write into a missing directory: %v", err)
	}
}

// What is in testdata/fuzz was found by running the fuzzer
// (go test -fuzz FuzzDecode), and is tried by every run of the tests.
func FuzzDecode(f *testing.F) {
	data, err := Encode(example())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(data[len(head)+digestLen+len(middle) : len(data)-len(tail)])
	f.Add([]byte(`{"version":6}`))
	split, err := Encode(splitExample())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(split)
	f.Add(split[len(head)+digestLen+len(middle) : len(split)-len(tail)])
	f.Add([]byte(head + zeros + middle + tail))
	f.Fuzz(func(t *testing.T, data []byte) {
		checkDecode(t, data)
		// The digest hides the decoder behind it from the fuzzer.
		checkDecode(t, envelope(string(data)))
	})
}

// checkDecode asserts that what is accepted is valid and is written back, and
// that everything else has one of the two errors.
func checkDecode(t *testing.T, data []byte) {
	t.Helper()
	m, err := Decode(data)
	if err != nil {
		if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNewerVersion) {
			t.Fatalf("%v is neither of the errors", err)
		}
		return
	}
	for _, file := range m.Files {
		if filepath.Base(file.Name) != file.Name || file.Size < 0 {
			t.Fatalf("accepted the file %+v", file)
		}
	}
	again, err := Encode(m)
	if err != nil {
		t.Fatalf("accepted %q and can't write it: %v", data, err)
	}
	if _, err := Decode(again); err != nil {
		t.Fatalf("wrote %q and can't read it: %v", again, err)
	}
}
