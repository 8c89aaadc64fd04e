// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package ipcwatch

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestParseMapping(t *testing.T) {
	tests := map[string]struct {
		line string
		want mapping
		ok   bool
		fail bool
	}{
		"code": {
			line: "7f1e86dd5000-7f1e86dfb000 r-xp 00002000 103:02 12597422                  /usr/lib/libcuda.so.580.159.04",
			want: mapping{start: 0x7f1e86dd5000, end: 0x7f1e86dfb000, offset: 0x2000, path: "/usr/lib/libcuda.so.580.159.04", code: true},
			ok:   true,
		},
		"data": {
			line: "7f1e86e07000-7f1e86e09000 rw-p 00035000 103:02 12597422                  /lib/libcuda.so.1",
			want: mapping{start: 0x7f1e86e07000, end: 0x7f1e86e09000, offset: 0x35000, path: "/lib/libcuda.so.1"},
			ok:   true,
		},
		"removed": {
			line: "1000-2000 r-xp 00000000 00:2a 7                  /tmp/libcuda.so.1 (deleted)",
			want: mapping{start: 0x1000, end: 0x2000, path: "/tmp/libcuda.so.1 (deleted)", code: true},
			ok:   true,
		},
		"a name with spaces": {
			line: "1000-2000 r-xp 00000000 00:2a 7                  /my  apps/libcuda.so.1",
			want: mapping{start: 0x1000, end: 0x2000, path: "/my  apps/libcuda.so.1", code: true},
			ok:   true,
		},
		"another library":  {line: "1000-2000 r-xp 00000000 00:2a 7                  /lib/libcudart.so.12"},
		"in its directory": {line: "1000-2000 r-xp 00000000 00:2a 7                  /libcuda.so.1/other"},
		"anonymous":        {line: "1000-2000 rw-p 00000000 00:00 0 "},
		"heap":             {line: "1000-2000 rw-p 00000000 00:00 0                  [heap]"},
		"malformed":        {line: "1000+2000 r-xp 00000000 00:2a 7                  /lib/libcuda.so.1", fail: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m, ok, err := parseMapping(test.line)
			if ok != test.ok || (err != nil) != test.fail || ok && m != test.want {
				t.Errorf("got %+v, %v, %v", m, ok, err)
			}
		})
	}
}

func TestMappingAt(t *testing.T) {
	code := mapping{start: 0x10000, end: 0x12000, offset: 0x4000, code: true}
	tests := map[string]struct {
		m      mapping
		offset uint64
		want   int64
		ok     bool
	}{
		"first":  {code, 0x4000, 0x10000, true},
		"last":   {code, 0x5fff, 0x11fff, true},
		"before": {code, 0x3fff, 0, false},
		"after":  {code, 0x6000, 0, false},
		"data":   {mapping{start: 0x10000, end: 0x12000, offset: 0x4000}, 0x4000, 0, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if at, ok := test.m.at(test.offset); at != test.want || ok != test.ok {
				t.Errorf("got %#x, %v", at, ok)
			}
		})
	}
}

func TestStartTime(t *testing.T) {
	procfs := t.TempDir()
	write := func(pid, text string) {
		if err := os.Mkdir(filepath.Join(procfs, pid), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(procfs, pid, "stat"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("7", "7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 1000 10 18446744073709551615 0 0")
	write("8", "8 (short) S 1 2")
	if at, err := startTime(procfs, 7); err != nil || at != 47_110_000_000 {
		t.Errorf("got %d, %v", at, err)
	}
	if _, err := startTime(procfs, 8); err == nil {
		t.Error("half a line is accepted")
	}
}

// A process that has the PID of an earlier one is younger than its calls.
func TestCallsOf(t *testing.T) {
	tests := map[string]struct {
		since, start uint64
		want         bool
	}{
		"its own":                   {since: 5_003_000_000, start: 5_000_000_000, want: true},
		"at the start, rounded":     {since: 5_000_000_000, start: 5_000_000_000, want: true},
		"an earlier process's":      {since: 4_999_999_999, start: 5_000_000_000},
		"nothing was lost, or ever": {since: 0, start: 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := (calls{Since: test.since}).of(test.start); got != test.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestMalformedLibrary(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"empty": nil, "text": []byte("INPUT(libcuda.so.1)"), "cut": whole[:4096]} {
		t.Run(name, func(t *testing.T) {
			if got, err := symbolsOf(bytes.NewReader(text)); err == nil {
				t.Errorf("no error, %v", got)
			}
		})
	}
}

func TestShown(t *testing.T) {
	for in, want := range map[string]string{"/usr/lib/libcuda.so.1": "/usr/lib/libcuda.so.1", "/a b\x1b[2J\n": `/a b\x1b[2J\n`} {
		if got := shown(in); got != want {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
	}
}
