// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
)

// edit is one value that a document is to have at a path of names.
type edit struct {
	path  []string
	value any
}

// apply returns the document with the value in it. Objects on the way that it
// lacks are made; all else stays as it is, byte for byte.
func (e edit) apply(document []byte) ([]byte, error) {
	value, err := json.Marshal(e.value)
	if err == nil {
		document, err = set(document, value, e.path)
	}
	if err != nil {
		return nil, fmt.Errorf("set %q: %w", e.path, err)
	}
	return document, nil
}

func set(object, value []byte, path []string) ([]byte, error) {
	if len(path) == 0 {
		return value, nil
	}
	m, err := findMember(object, path[0])
	if err != nil {
		return nil, err
	}
	if value, err = set(m.value(object), value, path[1:]); err != nil {
		return nil, err
	}
	return slices.Concat(object[:m.start], m.before, value, m.after, object[m.end:]), nil
}

// member is where an object has a value, or where there is room for it.
type member struct {
	start, end int
	// before and after are what a new member needs around its value.
	before, after []byte
}
