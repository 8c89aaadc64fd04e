// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Before is the directory of the snapshot before that a link in dir leads to, without
// links of its own: "relative" means what it does to the kernel, to which ".." after a
// link is not what it is in the text of a path. dir need not be there yet.
func Before(dir, relative string) (string, error) {
	if filepath.IsAbs(relative) {
		return "", fmt.Errorf("%s is an absolute path, and has to be relative to the snapshot's directory", relative)
	}
	from, err := whereabouts(dir)
	if err != nil {
		return "", err
	}
	steps := strings.Split(relative, "/")
	for len(steps) > 0 && (steps[0] == ".." || steps[0] == "." || steps[0] == "") {
		if steps[0] == ".." {
			from = filepath.Dir(from)
		}
		steps = steps[1:]
	}
	return filepath.EvalSymlinks(from + "/" + strings.Join(steps, "/"))
}

// whereabouts is the path without links of a directory, the last of which may be missing.
func whereabouts(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	there, err := filepath.EvalSymlinks(dir)
	if _, missing := os.Lstat(dir); !errors.Is(missing, fs.ErrNotExist) || dir == "/" {
		return there, err
	}
	up, err := whereabouts(filepath.Dir(dir))
	return filepath.Join(up, filepath.Base(dir)), err
}
