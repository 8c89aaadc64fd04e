// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package criuimg

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// The fields and values of CRIU's messages that tell of links (CRIU 4.2,
// images/remap-file-path.proto, fdinfo.proto, regfile.proto, mnt.proto).
const (
	remapOriginal, remapType protowire.Number = 1, 3 // remap_file_path_entry
	remapLinked              uint64           = 0
	fileID, fileRegular      protowire.Number = 2, 3 // file_entry
	regularName, regularMnt  protowire.Number = 6, 7 // reg_file_entry
	mountType, mountID       protowire.Number = 1, 2 // mnt_entry
	mountTmpfs               uint64           = 5
)

// LostLinks are the files, by their paths in the container, to which CRIU made a link
// for a dump (its option link-remap), in mounts whose files are not in the images
// themselves: once the link is gone, a restore can't open them. CRIU takes its links
// away when it leaves the processes running.
func LostLinks(dir string) (names []string, err error) {
	linked, err := links(dir)
	if err != nil || len(linked) == 0 {
		return nil, err
	}
	saved, err := savedMounts(dir)
	if err != nil {
		return nil, err
	}
	err = eachOf(filepath.Join(dir, "files.img"), "FILES", func(message []byte) error {
		id, err := numberField(message, fileID)
		if err != nil || !slices.Contains(linked, id) {
			return err
		}
		regular, err := stringField(message, fileRegular)
		if err != nil {
			return err
		}
		name, err := stringField([]byte(regular), regularName)
		if err != nil {
			return err
		}
		mnt, err := numberField([]byte(regular), regularMnt)
		if err == nil && !slices.Contains(saved, uint64(protowire.DecodeZigZag(mnt))) {
			names = append(names, path.Join("/", name))
		}
		return err
	})
	return names, err
}

// links are the files that have a link of CRIU's.
func links(dir string) (ids []uint64, err error) {
	err = eachOf(filepath.Join(dir, "remap-fpath.img"), "REMAP_FPATH", func(message []byte) error {
		kind, err := numberField(message, remapType)
		if err != nil || kind != remapLinked {
			return err
		}
		id, err := numberField(message, remapOriginal)
		ids = append(ids, id)
		return err
	})
	return ids, err
}

// savedMounts are the mounts whose files are in CRIU's images.
func savedMounts(dir string) (ids []uint64, err error) {
	err = eachMount(dir, func(message []byte) error {
		kind, err := numberField(message, mountType)
		if err != nil || kind != mountTmpfs {
			return err
		}
		external, err := stringField(message, extKey)
		if err != nil || external != "" {
			return err
		}
		id, err := numberField(message, mountID)
		ids = append(ids, id)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("find the mounts that are in CRIU's images: %w", err)
	}
	return ids, nil
}
