// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestLoad(t *testing.T) {
	for name, tc := range map[string]struct {
		text  string
		want  func(*Config)
		wrong string
	}{
		"empty":              {"", func(*Config) {}, ""},
		"some":               {"timeout = \"90s\"\n[criu]\npath = \"/x\"\n", func(c *Config) { c.Timeout = Duration(90 * time.Second); c.CRIU.Path = "/x" }, ""},
		"unknown key":        {"time_out = \"90s\"\n", nil, "time_out"},
		"negative time":      {"timeout = \"-1s\"\n", nil, "not positive"},
		"split":              {"[split]\nenabled = false\nlibrary_dir = \"/x\"\n", func(c *Config) { c.Split = Split{LibraryDir: "/x", Userfaultfd: true} }, ""},
		"no userfaultfd":     {"split.userfaultfd = false\n", func(c *Config) { c.Split.Userfaultfd = false }, ""},
		"relative directory": {"[split]\npreload_dir = \"x\"\n", nil, "absolute"},
		"restore":            {"[restore]\ndirs = [\"/a\", \"/b\"]\n", func(c *Config) { c.Restore.Dirs = []string{"/a", "/b"} }, ""},
		"relative snapshots": {"[restore]\ndirs = [\"a\"]\n", nil, "absolute"},
		"key file": {
			"[encryption]\nkey_file = \"/k\"\nallow_plain = true\n",
			func(c *Config) { c.Encryption = Encryption{KeyFile: "/k", AllowPlain: true} }, "",
		},
		"relative key file": {"[encryption]\nkey_file = \"k\"\n", nil, "encryption.key_file"},
		"log level":         {"[criu]\nlog_level = 9\n", nil, "log_level"},
		"not TOML":          {"]", nil, "configuration"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "config.toml")
			if err := os.WriteFile(file, []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			t.Setenv(Env, file)
			got, err := Load()
			if tc.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wrong) {
					t.Fatalf("error is %v, want one with %q", err, tc.wrong)
				}
				return
			}
			want := Default()
			tc.want(&want)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("got %+v, %v, want %+v", got, err, want)
			}
		})
	}
}

func TestLoadMissing(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "config.toml")
	if got, err := load(missing, true); err != nil || !reflect.DeepEqual(got, Default()) {
		t.Errorf("got %+v, %v, want the defaults", got, err)
	}
	if _, err := load(missing, false); err == nil {
		t.Error("a file that was asked for is missing, and there is no error")
	}
}
