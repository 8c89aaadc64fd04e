// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// edit is a value that a document is to have at a path of names.
type edit struct {
	path  []string
	value any
}

// apply returns the document with the value in it. What the path lacks is made;
// all else stays as it is, byte for byte.
func (e edit) apply(document []byte) ([]byte, error) {
	value, err := json.Marshal(e.value)
	if err == nil {
		document, err = set(document, value, e.path)
	}
	if err != nil {
		return nil, fmt.Errorf("set %s: %w", strings.Join(e.path, "."), err)
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
	if value, err = set(m.value, value, path[1:]); err != nil {
		return nil, err
	}
	return slices.Concat(m.before, value, m.after), nil
}

// member is one value of an object.
type member struct {
	// value is "null" where the object has none of the name.
	value []byte
	// before and after are the object around the value, with the name.
	before, after []byte
}

// findMember finds the value that counts where an object has several of one
// name: the last. A null is taken for an empty object.
func findMember(object []byte, name string) (member, error) {
	dec := json.NewDecoder(bytes.NewReader(object))
	switch start, err := dec.Token(); {
	case err != nil:
		return member{}, err
	case start == nil:
		return findMember([]byte("{}"), name)
	case start != json.Delim('{'):
		return member{}, errors.New("not an object")
	}
	var m member
	comma := ""
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return member{}, err
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return member{}, err
		}
		if end := int(dec.InputOffset()); key == name {
			m = member{value: value, before: object[:end-len(value)], after: object[end:]}
		}
		comma = ","
	}
	if _, err := dec.Token(); err != nil || m.value != nil {
		return m, err
	}
	quoted, err := json.Marshal(name)
	brace := dec.InputOffset() - 1
	return member{value: []byte("null"), before: slices.Concat(object[:brace], []byte(comma), quoted, []byte(":")), after: object[brace:]}, err
}
