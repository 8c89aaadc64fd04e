// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// configuration is what is read of containerd's.
type configuration struct {
	file string
	// version is that of a drop-in file for it.
	version int
	// imports are the patterns of files that it imports, absolute.
	imports []string
	// systemdCgroup is what the handler runc has: all have to have the same.
	systemdCgroup bool
}

// tables are the parts of a file that are read.
type tables struct {
	Version int            `toml:"version"`
	Imports []string       `toml:"imports"`
	Plugins map[string]any `toml:"plugins"`
}

// newest is the newest version of the format that is written.
const newest = 3

// The tables of the CRI's runtime: since version 3, and in version 2.
const (
	criPlugin  = "io.containerd.cri.v1.runtime"
	criPlugin2 = "io.containerd.grpc.v1.cri"
)

// plugin is the table for the version.
func (c *configuration) plugin() string {
	if c.version < newest {
		return criPlugin2
	}
	return criPlugin
}

// read reads a configuration, and what it imports, as containerd does: what comes
// later wins (cmd/containerd/server/config, LoadConfigWithPlugins).
func read(file string) (*configuration, error) {
	c := &configuration{file: file}
	pending, loaded := []string{file}, []string{}
	for len(pending) > 0 {
		name := pending[0]
		pending = pending[1:]
		if slices.Contains(loaded, name) {
			continue
		}
		loaded = append(loaded, name)
		t, err := parse(name)
		if err != nil {
			return nil, err
		}
		patterns := absolute(name, t.Imports)
		if name == file {
			c.imports = patterns
			// Version 1 has names that no drop-in of another can be merged with.
			if t.Version < 2 {
				return nil, fmt.Errorf("%s has version %d: `containerd config migrate` makes a newer one of it", name, t.Version)
			}
			c.version = min(t.Version, newest)
		}
		if filepath.Base(name) != dropInName {
			c.see(t)
		}
		more, err := expand(patterns)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		pending = append(pending, more...)
	}
	return c, nil
}

func parse(name string) (tables, error) {
	var t tables
	data, err := os.ReadFile(name)
	if err != nil {
		return t, err
	}
	if err := toml.Unmarshal(data, &t); err != nil {
		return t, fmt.Errorf("%s: containerd could not read it either: %w", name, err)
	}
	return t, nil
}

// absolute resolves patterns against the file that has them.
func absolute(file string, patterns []string) (list []string) {
	for _, p := range patterns {
		if !filepath.IsAbs(p) {
			p = filepath.Join(filepath.Dir(file), p)
		}
		list = append(list, filepath.Clean(p))
	}
	return list
}

// expand lists the files that there are.
func expand(patterns []string) (files []string, err error) {
	for _, p := range patterns {
		if !strings.Contains(p, "*") {
			files = append(files, p)
			continue
		}
		found, err := filepath.Glob(p)
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	return files, nil
}

// see notes what a file says of the handler runc.
func (c *configuration) see(t tables) {
	for _, plugin := range []string{criPlugin2, criPlugin} {
		if v, ok := at(t.Plugins, plugin, "containerd", "runtimes", "runc", "options", "SystemdCgroup").(bool); ok {
			c.systemdCgroup = v
		}
	}
}

// at is the value at a path of tables, nil if there is none.
func at(table map[string]any, path ...string) any {
	var value any = table
	for _, name := range path {
		t, ok := value.(map[string]any)
		if !ok {
			return nil
		}
		value = t[name]
	}
	return value
}

// dirs are the directories of which every *.toml is imported, that beside the
// configuration first.
func (c *configuration) dirs() (dirs []string) {
	usual := filepath.Join(filepath.Dir(c.file), dropInDir)
	for _, p := range c.imports {
		dir := filepath.Dir(p)
		if match, err := filepath.Match(filepath.Base(p), dropInName); err != nil || !match || strings.Contains(dir, "*") || slices.Contains(dirs, dir) {
			continue
		}
		dirs = append(dirs, dir)
	}
	if i := slices.Index(dirs, usual); i > 0 {
		dirs = slices.Insert(slices.Delete(dirs, i, i+1), 0, usual)
	}
	return dirs
}

// dropIn is where a drop-in file is imported from.
func (c *configuration) dropIn() (string, error) {
	dirs := c.dirs()
	if len(dirs) == 0 {
		pattern := filepath.Join(filepath.Dir(c.file), dropInDir, "*.toml")
		line := fmt.Sprintf("imports = [%q]", pattern)
		if len(c.imports) > 0 {
			line = fmt.Sprintf("%q, to the list of imports", pattern)
		}
		return "", fmt.Errorf("%w: %s imports no directory. It is yours, so add this, above its first table, and install again:\n    %s", ErrImports, c.file, line)
	}
	return filepath.Join(dirs[0], dropInName), nil
}

// ErrInUse means that containers run with our shim.
var ErrInUse = errors.New("containers run with our shim")

// InUse fails if a process of our shim runs: containerd could not clean up after
// its container without the configuration and the program. A host without /proc
// has no processes.
func InUse(proc string) error {
	names, err := filepath.Glob(filepath.Join(proc, "[0-9]*", "cmdline"))
	if err != nil {
		return err
	}
	var ids []string
	for _, name := range names {
		line, err := os.ReadFile(name)
		if err != nil {
			continue // it has gone
		}
		args := strings.Split(string(line), "\x00")
		if filepath.Base(args[0]) != "containerd-shim-hetgpu-v2" {
			continue
		}
		id := "?"
		if i := slices.Index(args, "-id"); i >= 0 && i+1 < len(args) {
			id = args[i+1]
		}
		ids = append(ids, id)
	}
	if len(ids) > 0 {
		return fmt.Errorf("%w: %s", ErrInUse, strings.Join(ids, ", "))
	}
	return nil
}
