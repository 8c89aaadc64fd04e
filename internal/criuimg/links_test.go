// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package criuimg

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/checkpoint-restore/go-criu/v8/crit/images/fdinfo"
	"github.com/checkpoint-restore/go-criu/v8/crit/images/fown"
	"github.com/checkpoint-restore/go-criu/v8/crit/images/mnt"
	"github.com/checkpoint-restore/go-criu/v8/crit/images/regfile"
	remap "github.com/checkpoint-restore/go-criu/v8/crit/images/remap-file-path"
	"google.golang.org/protobuf/proto"
)

func file(id uint32, name string, mount int32) *fdinfo.FileEntry {
	return &fdinfo.FileEntry{Type: fdinfo.FdTypes_REG.Enum(), Id: &id, Reg: &regfile.RegFileEntry{
		Id: &id, Flags: new(uint32), Pos: new(uint64), Name: &name, MntId: &mount,
		Fown: &fown.FownEntry{Uid: new(uint32), Euid: new(uint32), Signum: new(uint32), PidType: new(uint32), Pid: new(uint32)},
	}}
}

func mountOf(id uint32, kind mnt.Fstype, key string) *mnt.MntEntry {
	m := mounted("/", key)
	m.MntId, m.Fstype = &id, new(uint32(kind))
	return m
}

func remapped(id uint32, kind *remap.RemapType) *remap.RemapFilePathEntry {
	return &remap.RemapFilePathEntry{OrigId: &id, RemapId: new(id + 100), RemapType: kind}
}

func TestLostLinks(t *testing.T) {
	const root, shm, bound = 10, 11, 12
	mounts := []proto.Message{
		mountOf(root, mnt.Fstype_UNSUPPORTED, "/"), mountOf(shm, mnt.Fstype_TMPFS, ""), mountOf(bound, mnt.Fstype_TMPFS, "/bound"),
	}
	files := []proto.Message{file(1, "data", root), file(2, "dev/shm/data", shm), file(3, "bound/data", bound), file(4, "other", root)}
	for name, tc := range map[string]struct {
		remaps []proto.Message
		want   []string
	}{
		"none":                         {nil, nil},
		"in a tmpfs":                   {[]proto.Message{remapped(2, remap.RemapType_LINKED.Enum())}, nil},
		"in a tmpfs that somebody has": {[]proto.Message{remapped(3, remap.RemapType_LINKED.Enum())}, []string{"/bound/data"}},
		"on a disk":                    {[]proto.Message{remapped(1, remap.RemapType_LINKED.Enum())}, []string{"/data"}},
		"the kind is left out":         {[]proto.Message{remapped(1, nil)}, []string{"/data"}},
		"in the images":                {[]proto.Message{remapped(1, remap.RemapType_GHOST.Enum()), remapped(4, remap.RemapType_PROCFS.Enum())}, nil},
		"several":                      {[]proto.Message{remapped(1, nil), remapped(2, nil), remapped(3, nil)}, []string{"/data", "/bound/data"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			images := map[string][]byte{"mountpoints-13.img": image(t, "MNTS", mounts...), "files.img": image(t, "FILES", files...)}
			if tc.remaps != nil {
				images["remap-fpath.img"] = image(t, "REMAP_FPATH", tc.remaps...)
			}
			for name, data := range images {
				if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got, err := LostLinks(dir); err != nil || !slices.Equal(got, tc.want) {
				t.Errorf("%q, %v, not %q", got, err, tc.want)
			}
			if tc.remaps == nil {
				return
			}
			for name := range images {
				if err := os.Truncate(filepath.Join(dir, name), 9); err != nil {
					t.Fatal(err)
				}
				if len(tc.want) > 0 || name == "remap-fpath.img" {
					if _, err := LostLinks(dir); err == nil {
						t.Errorf("%s is cut: no error", name)
					}
				}
				if err := os.WriteFile(filepath.Join(dir, name), images[name], 0o600); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
