// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package install tells containerd of our runtime, by a drop-in file that its
// configuration imports, and takes that back. A file that somebody else wrote is
// read, and never written.
package install

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

// header is the first line of a file of ours. What does not begin with it is
// somebody else's.
const header = "# Written by `hetgpu install`. `hetgpu uninstall` removes it, and changes in it are lost.\n"

// dropInName is the file, and dropInDir its directory beside containerd's
// configuration, which containerd's own default imports (containerd 2.2 to 2.4,
// defaults.DefaultConfigIncludePattern).
const (
	dropInName = "hetgpu.toml"
	dropInDir  = "conf.d"
)

// Options say what is to be installed.
type Options struct {
	// Config is containerd's configuration file, which may be missing.
	Config string
	// Handler is the name of the runtime handler, which a RuntimeClass names.
	Handler string
	// Shim is the path of our shim.
	Shim string
	// Binary is the OCI runtime that the shim runs, "" for runc.
	Binary string
}

// Plan is what is to be done. It changes nothing by itself.
type Plan struct {
	// Write are files by their names, in order, and Remove the names of others.
	Write  []File
	Remove []string
}

// File is a file to be written.
type File struct{ Name, Text string }

// Empty tells whether there is nothing to do.
func (p Plan) Empty() bool { return len(p.Write) == 0 && len(p.Remove) == 0 }

// ErrImports means that containerd's configuration imports no directory.
var ErrImports = errors.New("containerd would not read a drop-in file")

// dropIn is the file. It has the table and the version of the configuration that
// imports it: containerd 2.2 brings both to its newest together, and loses what an
// older one says if the drop-in is newer (cmd/containerd/server/config,
// LoadConfigWithPlugins). Version 3 is the newest that it writes: 4 differs
// elsewhere, and 2.4 brings each file to that by itself.
//
// The annotations are those of docs/formats.md; in Kubernetes one may name a
// container behind a slash, which containerd's patterns take for a path.
var dropIn = template.Must(template.New("").Parse(header + `version = {{.Version}}

[plugins."{{.Plugin}}".containerd.runtimes.{{.Handler}}]
  runtime_type = "io.hetgpu.v2"
  runtime_path = {{printf "%q" .Shim}}
  pod_annotations = ["io.hetgpu.*", "io.hetgpu.*/*"]
  container_annotations = ["io.hetgpu.*", "io.hetgpu.*/*"]
  [plugins."{{.Plugin}}".containerd.runtimes.{{.Handler}}.options]
    SystemdCgroup = {{.SystemdCgroup}}
{{- if .Binary}}
    BinaryName = {{printf "%q" .Binary}}
{{- end}}
`))

// Install plans the drop-in file. Where containerd has no configuration at all, it
// plans one that imports the file and says nothing else.
func Install(o Options) (Plan, error) {
	if !validHandler(o.Handler) {
		return Plan{}, fmt.Errorf("a handler's name has small letters, digits and -, and %q has not", o.Handler)
	}
	var p Plan
	c, err := read(o.Config)
	if errors.Is(err, fs.ErrNotExist) {
		pattern := filepath.Join(filepath.Dir(o.Config), dropInDir, "*.toml")
		p.Write = append(p.Write, File{o.Config, onlyImports(pattern)})
		c, err = &configuration{file: o.Config, version: newest, imports: []string{pattern}}, nil
	}
	if err != nil {
		return Plan{}, err
	}
	name, err := c.dropIn()
	if err != nil {
		return Plan{}, err
	}
	var text bytes.Buffer
	err = dropIn.Execute(&text, struct {
		Options
		Version       int
		Plugin        string
		SystemdCgroup bool
	}{o, c.version, c.plugin(), c.systemdCgroup})
	if err != nil {
		return Plan{}, err
	}
	switch old, err := os.ReadFile(name); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return Plan{}, err
	case bytes.Equal(old, text.Bytes()):
		return p, nil
	case !bytes.HasPrefix(old, []byte(header)):
		return Plan{}, fmt.Errorf("%s is there, and was not written by us: move it away, or put what it says into it", name)
	}
	p.Write = append(p.Write, File{name, text.String()})
	return p, nil
}

func validHandler(name string) bool {
	return name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == "" && name[0] != '-'
}

// onlyImports is a configuration for a host that has none.
func onlyImports(pattern string) string {
	return header + fmt.Sprintf("version = %d\nimports = [%q]\n", newest, pattern)
}

// Uninstall plans the end of what Install wrote: of the configuration of
// containerd too, if it is as we wrote it and imports nobody else's file.
func Uninstall(config string) (Plan, error) {
	var p Plan
	c, err := read(config)
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	if err != nil {
		return p, err
	}
	others := 0
	for _, dir := range c.dirs() {
		files, err := filepath.Glob(filepath.Join(dir, "*.toml"))
		if err != nil {
			return p, err
		}
		for _, file := range files {
			ours, err := isOurs(file, func(text string) bool { return strings.HasPrefix(text, header) })
			if err != nil {
				return p, err
			}
			if ours && filepath.Base(file) == dropInName {
				p.Remove = append(p.Remove, file)
			} else {
				others++
			}
		}
	}
	ours, err := isOurs(config, func(text string) bool { return len(c.imports) == 1 && text == onlyImports(c.imports[0]) })
	if err != nil {
		return p, err
	}
	if ours && others == 0 {
		p.Remove = append(p.Remove, config)
	}
	return p, nil
}

func isOurs(file string, is func(text string) bool) (bool, error) {
	text, err := os.ReadFile(file)
	return err == nil && is(string(text)), err
}

// Apply does what is planned. Each file appears and goes at once.
func (p Plan) Apply() error {
	for _, f := range p.Write {
		if err := write(f); err != nil {
			return fmt.Errorf("write %s: %w", f.Name, err)
		}
	}
	for _, name := range p.Remove {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func write(f File) error {
	dir := filepath.Dir(f.Name)
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // as containerd's own
		return err
	}
	temporary, err := os.CreateTemp(dir, "."+filepath.Base(f.Name)) // no *.toml
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name())
	_, err = temporary.WriteString(f.Text)
	err = errors.Join(err, temporary.Chmod(0o644), temporary.Sync(), temporary.Close())
	if err != nil {
		return err
	}
	return os.Rename(temporary.Name(), f.Name)
}
