// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package runc

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	// mostErrorLines of CRIU's log go into an error.
	mostErrorLines = 8
	// mostLogs are kept in a log directory.
	mostLogs = 50
)

// CRIUErrors returns the lines of a CRIU log that tell of errors, the last
// ones if there are many. CRIU marks them with "Error (FILE:LINE): ".
func CRIUErrors(log io.Reader) []string {
	var lines []string
	s := bufio.NewScanner(log)
	// A line that is longer ends the reading, which loses nothing: what there
	// is by then is still shown, with the path of the log.
	s.Buffer(make([]byte, 0, 4096), 1<<20)
	for s.Scan() {
		if _, text, ok := strings.Cut(s.Text(), "Error ("); ok {
			lines = append(lines, strings.ToValidUTF8("Error ("+text[:min(len(text), 300)], "?"))
		}
		if len(lines) > 4*mostErrorLines {
			lines = slices.Delete(lines, 0, len(lines)-mostErrorLines)
		}
	}
	return lines[max(0, len(lines)-mostErrorLines):]
}

// KeepLog copies a log out of a directory that will not last into dir, where
// the oldest logs make room. It returns the copy's path.
func KeepLog(dir, name, from string) (string, error) {
	in, err := os.Open(from)
	if err != nil {
		return "", err
	}
	defer in.Close()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	kept := filepath.Join(dir, fmt.Sprintf("%s-%s.log", time.Now().UTC().Format("20060102T150405.000"), name))
	out, err := os.OpenFile(kept, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	_, err = io.Copy(out, in)
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return "", err
	}
	return kept, dropOldLogs(dir)
}

// dropOldLogs relies on names that begin with the time.
func dropOldLogs(dir string) error {
	names, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(names) <= mostLogs {
		return err
	}
	slices.Sort(names)
	for _, name := range names[:len(names)-mostLogs] {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
