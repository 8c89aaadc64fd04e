// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package oci_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/hetgpu/containerd-shim-hetgpu/oci"
)

// bundle makes a bundle with a spec.
func bundle(t *testing.T, document string) (dir, name string) {
	t.Helper()
	dir = t.TempDir()
	name = filepath.Join(dir, "config.json")
	if err := os.WriteFile(name, []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, name
}

func load(t *testing.T, dir string) *oci.Spec {
	t.Helper()
	spec, err := oci.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// What is set is written, and nothing else changes: neither what a newer spec
// has, nor how things are written.
func TestSave(t *testing.T) {
	annotate := func(s *oci.Spec) { s.SetAnnotation("k", "v") }
	all := func(s *oci.Spec) {
		s.SetHostname("h")
		s.SetCgroupsPath("/a/<b>")
		s.SetAnnotation("k", "v")
		s.SetAnnotation("k", "w")
	}
	for name, tc := range map[string]struct {
		document string
		set      func(*oci.Spec)
		want     string
	}{
		"nothing":            {`{ "new": 1 }`, func(*oci.Spec) {}, `{ "new": 1 }`},
		"what it has":        {`{ "hostname": "h", "annotations": {"k": ""} }`, func(s *oci.Spec) { s.SetHostname("h"); s.SetAnnotation("k", "") }, `{ "hostname": "h", "annotations": {"k": ""} }`},
		"an empty value":     {`{}`, func(s *oci.Spec) { s.SetAnnotation("k", "") }, `{"annotations":{"k":""}}`},
		"into nothing":       {`{}`, all, `{"hostname":"h","linux":{"cgroupsPath":"/a/\u003cb\u003e"},"annotations":{"k":"w"}}`},
		"into null":          {`{"linux":null,"annotations":null,"hostname":null}`, all, `{"linux":{"cgroupsPath":"/a/\u003cb\u003e"},"annotations":{"k":"w"},"hostname":"h"}`},
		"among others":       {`{"annotations":{"a":"b"},"z":[1,{"k":2}]}`, annotate, `{"annotations":{"a":"b","k":"v"},"z":[1,{"k":2}]}`},
		"another value":      {`{"annotations":{"k":"old","z":""}}`, annotate, `{"annotations":{"k":"v","z":""}}`},
		"white space":        {"\n{ \"annotations\" :\t{ \"k\" : \"old\" } , \"new\" : 1e400 }\n", annotate, "\n{ \"annotations\" :\t{ \"k\" : \"v\" } , \"new\" : 1e400 }\n"},
		"white space, empty": {"{ \"annotations\": {\n} }", annotate, "{ \"annotations\": {\n\"k\":\"v\"} }"},
		"escaped names":      {`{"\u0061nnotations":{"\u006b":"old"}}`, annotate, `{"\u0061nnotations":{"\u006b":"v"}}`},
		"twice":              {`{"annotations":{"k":"1","k":"2"},"annotations":{"k":"3","k":"4"}}`, annotate, `{"annotations":{"k":"1","k":"2"},"annotations":{"k":"3","k":"v"}}`},
		"the same elsewhere": {`{"process":{"annotations":{"k":"no"}},"s":"\"annotations\":{}"}`, annotate, `{"process":{"annotations":{"k":"no"}},"s":"\"annotations\":{}","annotations":{"k":"v"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			dir, file := bundle(t, tc.document)
			spec := load(t, dir)
			tc.set(spec)
			if err := spec.Save(); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(file)
			if err != nil || string(got) != tc.want {
				t.Fatalf("got  %s, %v\nwant %s", got, err, tc.want)
			}
			again := load(t, dir)
			if !reflect.DeepEqual(again.Annotations, spec.Annotations) || again.Hostname != spec.Hostname || again.Linux.CgroupsPath != spec.Linux.CgroupsPath {
				t.Errorf("loaded again it is %+v, want %+v", again, spec)
			}
		})
	}
}

func TestSaveKeepsTheMode(t *testing.T) {
	dir, name := bundle(t, "{}")
	if err := os.Chmod(name, 0o666); err != nil {
		t.Fatal(err)
	}
	spec := load(t, dir)
	spec.SetHostname("h")
	if err := spec.Save(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o666 {
		t.Errorf("its mode is %v, %v", info, err)
	}
	// A second time there is nothing to write.
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if err := spec.Save(); err != nil {
		t.Error(err)
	}
	spec.SetHostname("i")
	if err := spec.Save(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a bundle without a spec: %v", err)
	}
}

func TestLoad(t *testing.T) {
	dir, _ := bundle(t, `{
		"ociVersion": "9.0.0", "hostname": "h", "annotations": {"a": "b"},
		"process": {"env": ["A=B"], "newer": true}, "hooks": {"prestart": [{"path": "/hook"}]},
		"mounts": [{"destination": "/m", "type": "bind", "source": "/s", "options": ["ro"]}],
		"linux": {"cgroupsPath": "/c", "namespaces": [{"type": "uts"}], "devices": [{"path": "/dev/d", "type": "c", "major": 1, "minor": 2}]}
	}`)
	got := load(t, dir)
	want := map[string]any{
		"hostname": "h", "annotations": map[string]string{"a": "b"}, "env": []string{"A=B"},
		"mounts":      []specs.Mount{{Destination: "/m", Type: "bind", Source: "/s", Options: []string{"ro"}}},
		"hooks":       []specs.Hook{{Path: "/hook"}},
		"cgroupsPath": "/c", "namespaces": []specs.LinuxNamespace{{Type: specs.UTSNamespace}},
		"devices": []specs.LinuxDevice{{Path: "/dev/d", Type: "c", Major: 1, Minor: 2}},
	}
	if is := map[string]any{
		"hostname": got.Hostname, "annotations": got.Annotations, "env": got.Process.Env, "mounts": got.Mounts, "hooks": got.Hooks.Prestart,
		"cgroupsPath": got.Linux.CgroupsPath, "namespaces": got.Linux.Namespaces, "devices": got.Linux.Devices,
	}; !reflect.DeepEqual(is, want) {
		t.Errorf("got  %v\nwant %v", is, want)
	}
	if _, err := oci.Load(t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an empty bundle: %v", err)
	}
	for _, wrong := range []string{"", "{", "[]", "{} {}", `{"linux": 1}`, `{"annotations": {"a": 1}}`} {
		dir, name := bundle(t, wrong)
		if _, err := oci.Load(dir); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}

// Whatever a document has, an edit leaves the rest of it as it was.
func FuzzSave(f *testing.F) {
	for _, document := range []string{
		`{}`, `null`, " { } ", `{"annotations":null,"linux":{}}`, `{"annotations":{"k":"v"},"annotations":{}}`,
		`{"ociVersion":"1.3.0","new":{"x":[1,2.50,1e400,null,true,"\u00e9\ud800<"]},"linux":{"newer":[{}],"cgroupsPath":"/c"},"vm":{}}`,
		"{\"a\":1\n,\"annotations\":\t{\"\xff\":\"\xff\"}}", `{"Annotations":{"k":"v"},"LINUX":{}}`,
	} {
		f.Add(document, "k", "/b/<&>\u2028.conf")
	}
	f.Fuzz(func(t *testing.T, document, key, value string) {
		dir, name := bundle(t, document)
		spec, err := oci.Load(dir)
		if err != nil || !utf8.ValidString(key) || !utf8.ValidString(value) {
			return
		}
		want := decode(t, document)
		if had, ok := spec.Annotations[key]; !ok || had != value {
			spec.SetAnnotation(key, value)
			want = with(want, value, "annotations", key)
		}
		if spec.Linux.CgroupsPath != value {
			spec.SetCgroupsPath(value)
			want = with(want, value, "linux", "cgroupsPath")
		}
		if err := spec.Save(); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := decode(t, string(data)); !reflect.DeepEqual(got, want) {
			t.Fatalf("%s\nbecame %s", document, data)
		}
	})
}

func decode(t *testing.T, document string) (v map[string]any) {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(document))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%s: %v", document, err)
	}
	return v
}

// with returns an object with a value in it.
func with(object any, value string, path ...string) map[string]any {
	m, _ := object.(map[string]any)
	if m == nil {
		m = make(map[string]any)
	}
	if len(path) == 1 {
		m[path[0]] = value
	} else {
		m[path[0]] = with(m[path[0]], value, path[1:]...)
	}
	return m
}
