// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/lazyregexp"
)

// The values of the manifest's "engine".
const (
	// EngineNone: the container held no GPU state.
	EngineNone = "none"
	// EngineDriver: the vendor's driver put the GPU state into host memory.
	EngineDriver = "driver"
	// EngineSplit: device memory went to files of its own, and what is left of
	// the GPU state, and all of it of processes that can't be split, went where
	// the driver puts it.
	EngineSplit = "split"
)

// Limits on what a manifest may hold. They are far above what a host can make
// and keep a hostile one small in memory.
const (
	maxText      = 4096
	maxNameLen   = 255
	maxDevices   = 1024
	maxProcesses = 1 << 16
	maxFiles     = 1 << 17
	maxPhases    = 1024
	// The kernel nests PID namespaces 32 deep (MAX_PID_NS_LEVEL).
	maxNSDepth = 32
)

var engineName = lazyregexp.New(`^[a-z][a-z0-9-]{0,31}$`)

// normalized returns a copy that is spelled as the format wants it.
func (m *Manifest) normalized() *Manifest {
	c := *m
	c.Version = m.version()
	c.Created = m.Created.UTC().Round(0)
	c.Devices = append([]gpuplugin.Device{}, m.Devices...)
	c.Processes = append([]Process{}, m.Processes...)
	for i := range c.Processes {
		c.Processes[i].Command = printable(c.Processes[i].Command)
		c.Processes[i].NSPIDs = append([]int{}, c.Processes[i].NSPIDs...)
	}
	c.Files = append([]File{}, m.Files...)
	slices.SortFunc(c.Files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	for i := range c.Files {
		c.Files[i].Digests = append([]string{}, c.Files[i].Digests...)
	}
	c.Phases = append([]Phase{}, m.Phases...)
	return &c
}

// printable replaces what a terminal would act on. A process can give itself
// any name.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// validate checks everything that can be told from the manifest alone.
func (m *Manifest) validate() error {
	if m.Version < 1 || m.Version > Version {
		return fmt.Errorf("version %d", m.Version)
	}
	if !engineName.MatchString(m.Engine) {
		return fmt.Errorf("engine %q", m.Engine)
	}
	if m.StopSeconds < 0 {
		return fmt.Errorf("stopped for %v s", m.StopSeconds)
	}
	if m.Engine == EngineNone && len(m.Processes) > 0 {
		return fmt.Errorf("engine %q, and %d processes with GPU state", m.Engine, len(m.Processes))
	}
	if m.Created.IsZero() || m.Created.Location() != time.UTC {
		return fmt.Errorf("created %v is no UTC time", m.Created)
	}
	if err := m.validateTexts(); err != nil {
		return err
	}
	for _, check := range []func() error{m.validateDevices, m.validateProcesses, m.validateFiles, m.validatePhases, m.validateSplit} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (m *Manifest) validateTexts() error {
	for _, t := range []struct {
		what, text string
		required   bool
	}{
		{"container id", m.Container.ID, true},
		{"container namespace", m.Container.Namespace, false},
		{"hostname", m.Container.Hostname, false},
		{"cgroups path", m.Container.CgroupsPath, false},
		{"kernel", m.Host.Kernel, false},
		{"arch", m.Host.Arch, false},
		{"runc version", m.Host.Runc, false},
		{"CRIU version", m.Host.CRIU, false},
		{"driver version", m.Host.Driver, false},
		{"engine reason", m.EngineReason, false},
	} {
		if err := checkText(t.what, t.text); err != nil {
			return err
		}
		if t.required && t.text == "" {
			return fmt.Errorf("no %s", t.what)
		}
	}
	if m.Host.API < 0 {
		return fmt.Errorf("driver API %d", m.Host.API)
	}
	return nil
}

func (m *Manifest) validateDevices() error {
	if len(m.Devices) > maxDevices {
		return fmt.Errorf("%d devices", len(m.Devices))
	}
	seen := make(map[string]bool, len(m.Devices))
	for i, d := range m.Devices {
		for what, text := range map[string]string{"UUID": d.UUID, "vendor": d.Vendor, "model": d.Model, "PCI address": d.PCI} {
			if err := checkText(what, text); err != nil {
				return fmt.Errorf("device %d: %w", i, err)
			}
		}
		switch {
		case d.UUID == "" || d.Vendor == "":
			return fmt.Errorf("device %d: no UUID or no vendor", i)
		case seen[d.UUID]:
			return fmt.Errorf("device %s twice", d.UUID)
		case d.Minor < 0:
			return fmt.Errorf("device %s: minor %d", d.UUID, d.Minor)
		}
		seen[d.UUID] = true
	}
	return nil
}

func (m *Manifest) validateProcesses() error {
	if len(m.Processes) > maxProcesses {
		return fmt.Errorf("%d processes", len(m.Processes))
	}
	for i, p := range m.Processes {
		if err := checkText("command", p.Command); err != nil {
			return fmt.Errorf("process %d: %w", i, err)
		}
		if len(p.NSPIDs) == 0 || len(p.NSPIDs) > maxNSDepth+1 {
			return fmt.Errorf("process %d: PIDs in %d namespaces", i, len(p.NSPIDs))
		}
		for _, pid := range p.NSPIDs {
			if pid < 1 {
				return fmt.Errorf("process %d: PID %d", i, pid)
			}
		}
		switch p.State {
		case gpuplugin.StateRunning, gpuplugin.StateLocked, gpuplugin.StateCheckpointed:
		default:
			return fmt.Errorf("process %d: state %q", i, p.State)
		}
	}
	return nil
}

func (m *Manifest) validateFiles() error {
	if len(m.Files) > maxFiles {
		return fmt.Errorf("%d files", len(m.Files))
	}
	seen := make(map[string]bool, len(m.Files))
	for _, f := range m.Files {
		if err := checkName(f.Name); err != nil {
			return err
		}
		if seen[f.Name] {
			return fmt.Errorf("file %q twice", f.Name)
		}
		seen[f.Name] = true
		if err := f.validate(); err != nil {
			return fmt.Errorf("file %q: %w", f.Name, err)
		}
	}
	return nil
}

func (f File) validate() error {
	if f.Size < 0 {
		return fmt.Errorf("size %d", f.Size)
	}
	want := chunks(f.Size)
	if f.CoveredBy != "" {
		want = 0
	}
	if int64(len(f.Digests)) != want {
		return fmt.Errorf("%d digests for %d bytes, which need %d", len(f.Digests), f.Size, want)
	}
	for i, d := range f.Digests {
		if !isDigest(d) {
			return fmt.Errorf("digest %d is %q", i, d)
		}
	}
	return nil
}

func (m *Manifest) validatePhases() error {
	if len(m.Phases) > maxPhases {
		return fmt.Errorf("%d phases", len(m.Phases))
	}
	for i, p := range m.Phases {
		if err := checkText("name", p.Name); err != nil {
			return fmt.Errorf("phase %d: %w", i, err)
		}
		if p.Name == "" || p.Seconds < 0 {
			return fmt.Errorf("phase %d: %q took %v s", i, p.Name, p.Seconds)
		}
	}
	return nil
}

// chunks is the number of digests that a file of that size has.
func chunks(size int64) int64 {
	n := size / ChunkSize
	if size%ChunkSize != 0 {
		n++
	}
	return n
}

// isDigest accepts one spelling only, so that no changed bit goes unseen.
func isDigest(s string) bool {
	hexes, ok := strings.CutPrefix(s, digestPrefix)
	if !ok || len(s) != digestLen || strings.ToLower(hexes) != hexes {
		return false
	}
	_, err := hex.DecodeString(hexes)
	return err == nil
}

// checkText bounds a text. What it may hold besides is up to its reader: a
// hostname or a path may have any character.
func checkText(what, s string) error {
	if len(s) > maxText {
		return fmt.Errorf("%s of %d bytes", what, len(s))
	}
	if !utf8.ValidString(s) {
		return fmt.Errorf("%s %q is not UTF-8", what, s)
	}
	return nil
}

// checkName accepts the plain name of a file that belongs to a snapshot.
func checkName(name string) error {
	switch {
	case name == "", name == ".", name == "..", len(name) > maxNameLen,
		path.Base(name) != name, strings.ContainsFunc(name, unicode.IsControl), !utf8.ValidString(name):
		return fmt.Errorf("%q is no plain file name", name[:min(len(name), maxNameLen)])
	case name == ManifestName:
		return errors.New("the manifest lists itself")
	case !belongs(name):
		return fmt.Errorf("%q is no name of an image", name)
	}
	return nil
}
