// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package memfile_test

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
)

// secret is 00 01 02 ... 1f.
func secret() []byte {
	b := make([]byte, memfile.KeySize)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

func newKey(tb testing.TB, secret []byte) *memfile.Key {
	tb.Helper()
	key, err := memfile.NewKey(secret)
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

// The name was computed by another program: HKDF-SHA256 of the secret, without
// salt, with the text "hetgpu device memory 1: key id", 8 bytes.
const secretID = "48fa68f36b758aa2"

func TestReadKey(t *testing.T) {
	digits := hex.EncodeToString(secret())
	for name, tc := range map[string]struct {
		text string
		mode os.FileMode
		says string // "" for a key
	}{
		"bytes":                {string(secret()), 0o600, ""},
		"bytes, read only":     {string(secret()), 0o400, ""},
		"digits":               {digits, 0o600, ""},
		"digits and a newline": {digits + "\n", 0o600, ""},
		"capitals":             {strings.ToUpper(digits), 0o600, ""},
		"two newlines":         {digits + "\n\n", 0o600, "neither 32 bytes"},
		"empty":                {"", 0o600, "neither 32 bytes"},
		"a byte too few":       {string(secret()[1:]), 0o600, "neither 32 bytes"},
		"a byte too many":      {string(secret()) + "x", 0o600, "neither 32 bytes"},
		"no digits":            {strings.Repeat("xy", memfile.KeySize), 0o600, "no hexadecimal"},
		"zeros":                {string(make([]byte, memfile.KeySize)), 0o600, "not random"},
		"one digit":            {strings.Repeat("7", 2*memfile.KeySize), 0o600, "not random"},
		"the group reads":      {digits, 0o640, "mode 0640"},
		"others read":          {digits, 0o604, "mode 0604"},
		"the group writes":     {digits, 0o620, "chmod 0600"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "key")
			check(t, os.WriteFile(file, []byte(tc.text), 0o600))
			check(t, os.Chmod(file, tc.mode))
			key, err := memfile.ReadKey(file)
			if tc.says == "" {
				if err != nil || key.ID() != secretID {
					t.Fatalf("%v, %v", key, err)
				}
				return
			}
			if key != nil || !errors.Is(err, memfile.ErrKeyFile) || !strings.Contains(err.Error(), tc.says) || !strings.Contains(err.Error(), file) {
				t.Errorf("%v, %v; want one with %q", key, err, tc.says)
			}
			if len(tc.text) > 0 && strings.Contains(err.Error(), tc.text) {
				t.Errorf("the error has the key: %v", err)
			}
		})
	}
}

func TestReadKeyOfOtherFiles(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "key")
	check(t, os.WriteFile(file, secret(), 0o600))
	link := filepath.Join(dir, "link")
	check(t, os.Symlink(file, link))
	tests := map[string]string{link: "is a link", dir: "no regular file", filepath.Join(dir, "none"): "no such file"}
	if os.Geteuid() == 0 {
		foreign := filepath.Join(dir, "foreign")
		check(t, os.WriteFile(foreign, secret(), 0o600))
		check(t, os.Chown(foreign, 1000, 0))
		tests[foreign] = "belongs to user 1000"
	}
	for name, says := range tests {
		if key, err := memfile.ReadKey(name); key != nil || !errors.Is(err, memfile.ErrKeyFile) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, %v", name, key, err)
		}
	}
}

func TestKeyFor(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	check(t, os.WriteFile(file, secret(), 0o600))
	if key, err := memfile.KeyFor(secretID, file); err != nil || key.ID() != secretID {
		t.Errorf("%v, %v", key, err)
	}
	for _, tc := range []struct {
		id, file string
		is       error
		says     string
	}{
		{secretID, "", memfile.ErrKey, "encryption.key_file"},
		{"0123456789abcdef", file, memfile.ErrKey, "with the key 0123456789abcdef, and " + file + " has the key " + secretID},
		{secretID, file + "x", memfile.ErrKeyFile, "no such file"},
	} {
		if key, err := memfile.KeyFor(tc.id, tc.file); key != nil || !errors.Is(err, tc.is) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s in %q: %v, %v", tc.id, tc.file, key, err)
		}
	}
}

// However a key is printed, it is its name.
func TestKeyIsNotPrinted(t *testing.T) {
	key := newKey(t, secret())
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if text := fmt.Sprintf(format, key); text != "key "+secretID {
			t.Errorf("%s: %s", format, text)
		}
	}
}
