// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package rootfs

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// The prefixes of overlay's own attributes; the second is that of a mount
// without privileges (userxattr).
const (
	overlayTrusted = "trusted.overlay."
	overlayUser    = "user.overlay."
)

func isOverlay(key string) bool {
	return strings.HasPrefix(key, overlayTrusted) || strings.HasPrefix(key, overlayUser)
}

// overlay is what overlay says of one file.
type overlay struct{ gone, opaque bool }

// overlayOf reads overlay's attributes. Two of them, for mount options that
// containerd does not set, say that a file's contents are elsewhere.
func overlayOf(name string, attrs map[string]string) (o overlay, err error) {
	for key, value := range attrs {
		if !isOverlay(key) {
			continue
		}
		switch word := key[strings.LastIndexByte(key, '.')+1:]; word {
		case "whiteout":
			o.gone = true
		case "opaque":
			o.opaque = value == "y"
		case "redirect", "metacopy":
			return o, fmt.Errorf("%s: overlay keeps a part of it elsewhere (attribute %s): mount without redirect_dir and metacopy", name, key)
		}
	}
	return o, nil
}

// xattrs reads the attributes of a file, not of what a link points to.
func xattrs(file string) (map[string]string, error) {
	list, err := grown(func(buf []byte) (int, error) { return unix.Llistxattr(file, buf) })
	if errors.Is(err, unix.ENOTSUP) || len(list) == 0 && err == nil {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the attributes of %s: %w", file, err)
	}
	attrs := make(map[string]string)
	for key := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		value, err := grown(func(buf []byte) (int, error) { return unix.Lgetxattr(file, key, buf) })
		if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) {
			continue // the file system lists some that have no value
		}
		if err != nil {
			return nil, fmt.Errorf("attribute %s of %s: %w", key, file, err)
		}
		attrs[key] = string(value)
	}
	return attrs, nil
}

// grown calls get with a buffer that is large enough.
func grown(get func([]byte) (int, error)) ([]byte, error) {
	buf := make([]byte, 512)
	for {
		n, err := get(buf)
		if errors.Is(err, unix.ERANGE) {
			if n, err = get(nil); err == nil {
				buf = make([]byte, n+64)
				continue
			}
		}
		return buf[:max(n, 0)], err
	}
}
