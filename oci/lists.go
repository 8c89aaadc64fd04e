// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// Where the lists are in a spec.
var (
	mountsPath      = []string{"mounts"}
	devicesPath     = []string{"linux", "devices"}
	deviceRulesPath = []string{"linux", "resources", "devices"}
)

// SetEnv sets the environment of the container's first process.
func (s *Spec) SetEnv(env []string) {
	if !slices.Equal(s.Process.Env, env) {
		s.Process.Env = env
		s.set(env, "process", "env")
	}
}

// SetMount adds a mount after all others, or puts it in the place of the one
// with its destination. The others stay as they are, with what our types lack.
func (s *Spec) SetMount(m specs.Mount) error {
	i := slices.IndexFunc(s.Mounts, func(old specs.Mount) bool { return path.Clean(old.Destination) == m.Destination })
	if i >= 0 && sameMount(s.Mounts[i], m) {
		return nil
	}
	if err := s.put(mountsPath, len(s.Mounts), i, m); err != nil {
		return fmt.Errorf("mount %s: %w", m.Destination, err)
	}
	if i < 0 {
		s.Mounts = append(s.Mounts, m)
	} else {
		s.Mounts[i] = m
	}
	return nil
}

func sameMount(a, b specs.Mount) bool {
	return a.Destination == b.Destination && a.Type == b.Type && a.Source == b.Source && slices.Equal(a.Options, b.Options)
}

// AddDevice adds a device, or puts it in the place of the one with its path, and
// lets the container access it ("r", "w", "m"), whatever the rules before say.
func (s *Spec) AddDevice(d specs.LinuxDevice, access string) error {
	i := slices.IndexFunc(s.Linux.Devices, func(old specs.LinuxDevice) bool { return path.Clean(old.Path) == d.Path })
	if i < 0 || s.Linux.Devices[i].Type != d.Type || s.Linux.Devices[i].Major != d.Major || s.Linux.Devices[i].Minor != d.Minor {
		if err := s.put(devicesPath, len(s.Linux.Devices), i, d); err != nil {
			return fmt.Errorf("device %s: %w", d.Path, err)
		}
		if i < 0 {
			s.Linux.Devices = append(s.Linux.Devices, d)
		} else {
			s.Linux.Devices[i] = d
		}
	}
	rule := specs.LinuxDeviceCgroup{Allow: true, Type: d.Type, Major: &d.Major, Minor: &d.Minor, Access: access}
	rules := s.Linux.Resources.Devices
	if n := len(rules); n > 0 && sameRule(rules[n-1], rule) {
		return nil
	}
	if err := s.put(deviceRulesPath, len(rules), -1, rule); err != nil {
		return fmt.Errorf("rule for device %s: %w", d.Path, err)
	}
	s.Linux.Resources.Devices = append(rules, rule)
	return nil
}

func sameRule(a, b specs.LinuxDeviceCgroup) bool {
	same := func(a, b *int64) bool { return a != nil && b != nil && *a == *b }
	return a.Allow == b.Allow && a.Type == b.Type && a.Access == b.Access && same(a.Major, b.Major) && same(a.Minor, b.Minor)
}

// put puts a value into a list: in the place of its ith, or after all, if i is
// negative. The others stay as they are written; there are to be so many.
func (s *Spec) put(path []string, count, i int, value any) error {
	list, err := s.rawList(path)
	if err != nil {
		return err
	}
	if len(list) != count {
		return fmt.Errorf("%d are written, and %d were read", len(list), count)
	}
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if i < 0 {
		list = append(list, data)
	} else {
		list[i] = data
	}
	s.set(list, path...)
	return nil
}

// remove takes out of a list that was read what drop says. The others stay as
// they are written.
func remove[T any](s *Spec, path []string, read *[]T, drop func(T) bool) error {
	if !slices.ContainsFunc(*read, drop) {
		return nil
	}
	list, err := s.rawList(path)
	if err == nil && len(list) != len(*read) {
		err = fmt.Errorf("%d are written, and %d were read", len(list), len(*read))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", strings.Join(path, "."), err)
	}
	var kept []T
	raw := []json.RawMessage{}
	for i, entry := range *read {
		if !drop(entry) {
			kept, raw = append(kept, entry), append(raw, list[i])
		}
	}
	*read = kept
	s.set(raw, path...)
	return nil
}

// rawList is a list as it is written, or as it was set.
func (s *Spec) rawList(path []string) ([]json.RawMessage, error) {
	for _, e := range slices.Backward(s.edits) {
		if list, ok := e.value.([]json.RawMessage); ok && slices.Equal(e.path, path) {
			return slices.Clone(list), nil
		}
	}
	value := s.document
	for _, name := range path {
		m, err := findMember(value, name)
		if err != nil {
			return nil, err
		}
		value = m.value
	}
	var list []json.RawMessage
	err := json.Unmarshal(value, &list)
	return list, err
}
