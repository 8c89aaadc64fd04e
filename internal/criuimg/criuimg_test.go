// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package criuimg

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/checkpoint-restore/go-criu/v8/crit/images/mnt"
	"github.com/checkpoint-restore/go-criu/v8/magic"
	"google.golang.org/protobuf/proto"
)

// image frames messages as CRIU does.
func image(tb testing.TB, kind string, messages ...proto.Message) []byte {
	tb.Helper()
	data := binary.LittleEndian.AppendUint32(nil, uint32(magic.LoadMagic().ByName["IMG_COMMON"]))
	data = binary.LittleEndian.AppendUint32(data, uint32(magic.LoadMagic().ByName[kind]))
	for _, m := range messages {
		body, err := proto.Marshal(m)
		if err != nil {
			tb.Fatal(err)
		}
		data = binary.LittleEndian.AppendUint32(data, uint32(len(body)))
		data = append(data, body...)
	}
	return data
}

func mounted(at, key string) *mnt.MntEntry {
	e := &mnt.MntEntry{
		Fstype: new(uint32), MntId: new(uint32), RootDev: new(uint32), ParentMntId: new(uint32), Flags: new(uint32),
		Root: new("/"), Mountpoint: &at, Source: new(""), Options: new(""),
	}
	if key != "" {
		e.ExtKey = &key
	}
	return e
}

func TestExternalMounts(t *testing.T) {
	dir := t.TempDir()
	if keys, err := ExternalMounts(dir); err != nil || keys != nil {
		t.Errorf("of none: %v, %v", keys, err)
	}
	data := image(t, "MNTS", mounted("/", ""), mounted("/a", "/a"), mounted("/b", "/dev/null"))
	if err := os.WriteFile(filepath.Join(dir, "mountpoints-11.img"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	if keys, err := ExternalMounts(dir); err != nil || !slices.Equal(keys, []string{"/a", "/dev/null"}) {
		t.Errorf("%v, %v", keys, err)
	}
	for name, data := range map[string][]byte{
		"another kind": image(t, "PSTREE"), "cut": data[:len(data)-1], "a long length": append(slices.Clone(data), 255, 255, 255, 255, 1), "empty": {}, "no message": append(image(t, "MNTS"), 1, 0, 0, 0, 255),
	} {
		if err := os.WriteFile(filepath.Join(dir, "mountpoints-12.img"), data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ExternalMounts(dir); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := os.Truncate(filepath.Join(dir, "mountpoints-12.img"), maxImage+1); err != nil {
		t.Fatal(err)
	}
	if _, err := ExternalMounts(dir); err == nil {
		t.Error("too large: no error")
	}
}

func FuzzEachMessage(f *testing.F) {
	f.Add(image(f, "MNTS", mounted("/a", "/a")))
	f.Fuzz(func(t *testing.T, data []byte) {
		_ = EachMessage(data, "MNTS", func(message []byte) error {
			key, err := stringField(message, extKey)
			var e mnt.MntEntry
			if wanted := proto.Unmarshal(message, &e); wanted == nil && (err != nil || key != e.GetExtKey()) {
				t.Errorf("%q, %v; want %q", key, err, e.GetExtKey())
			}
			return err
		})
	})
}
