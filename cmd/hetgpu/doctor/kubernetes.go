// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os/exec"
	"path"
	"slices"

	"github.com/pelletier/go-toml/v2"

	"github.com/hetgpu/containerd-shim-hetgpu/internal/execx"
	"github.com/hetgpu/containerd-shim-hetgpu/oci"
)

// criPlugin is the table of containerd's CRI, since version 3 of the configuration:
// containerd prints the newest that it knows.
const criPlugin = "io.containerd.cri.v1.runtime"

// logLines is how much of containerd's complaint is shown.
const logLines = 3

// handler is the part of a runtime handler of containerd's CRI that is looked at.
type handler struct {
	Type           string   `toml:"runtime_type"`
	Path           string   `toml:"runtime_path"`
	PodAnnotations []string `toml:"pod_annotations"`
}

// kubernetes looks at the handlers by which pods run with our shim. One that keeps
// annotations back does so silently: a pod that names a snapshot starts anew.
//
// It is what the file says. containerd may not have been restarted since.
func kubernetes(ctx context.Context, h *Host) []Result {
	program, err := exec.LookPath("containerd")
	if err != nil {
		return ok("none (containerd is not in PATH)")
	}
	const advice = "look at containerd's configuration (docs/install.md)"
	text, err := configDump(ctx, program, h.ContainerdConfig)
	if err != nil {
		return warn(advice, "%s config dump: %v", program, err)
	}
	var all struct {
		Plugins map[string]struct {
			Containerd struct {
				Runtimes map[string]handler `toml:"runtimes"`
			} `toml:"containerd"`
		} `toml:"plugins"`
	}
	if err := toml.Unmarshal(text, &all); err != nil {
		return warn(advice, "%s config dump: %v", program, err)
	}
	var results []Result
	handlers := all.Plugins[criPlugin].Containerd.Runtimes
	for _, name := range slices.Sorted(maps.Keys(handlers)) {
		if r := handlers[name]; r.ours() {
			results = append(results, r.judge(name)...)
		}
	}
	if len(results) == 0 {
		return ok("none (no handler of containerd's CRI runs our shim; `hetgpu install` makes one)")
	}
	return results
}

// configDump is what containerd makes of a configuration, imports and all. What it logs
// meanwhile is no part of that.
func configDump(ctx context.Context, program, file string) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, programTimeout, fmt.Errorf("no answer within %s", programTimeout))
	defer cancel()
	var out, log bytes.Buffer
	cmd := execx.Command(ctx, program, "--config", file, "config", "dump")
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := execx.Run(ctx, cmd); err != nil {
		return nil, fmt.Errorf("%w: %s", err, execx.LastLines(log.String(), logLines))
	}
	return out.Bytes(), nil
}

// ours tells whether pods with the handler run with our shim.
func (r handler) ours() bool { return r.Type == "io.hetgpu.v2" || path.Base(r.Path) == shimName }

// passes tells whether containers get an annotation of their pod (containerd 2.4,
// internal/cri/util, GetPassthroughAnnotations).
func (r handler) passes(annotation string) bool {
	return slices.ContainsFunc(r.PodAnnotations, func(pattern string) bool {
		match, err := path.Match(pattern, annotation)
		return err == nil && match
	})
}

func (r handler) judge(name string) []Result {
	for _, annotation := range []string{oci.AnnotationRestore, oci.AnnotationRestore + "/NAME"} {
		if !r.passes(annotation) {
			return warn("give it pod_annotations = [\"io.hetgpu.*\", \"io.hetgpu.*/*\"], as `hetgpu install` does, and restart containerd",
				"handler %s keeps back the annotation %s: a pod that names a snapshot starts from its begin", name, annotation)
		}
	}
	if r.passes(oci.AnnotationCRIUConfig) {
		return warn("take that pattern out of its pod_annotations, and restart containerd",
			"handler %s passes on %s: who makes pods may run programs as root", name, oci.AnnotationCRIUConfig)
	}
	return ok("handler %s", name)
}
