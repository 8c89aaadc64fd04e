// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Installed knows where "make setup" and "make build" put programs.
type Installed struct {
	root     string
	cache    string
	versions map[string]string
}

// FindInstalled reads hack/versions.env of the tree with the given root.
func FindInstalled(root string) (*Installed, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	file, err := os.Open(filepath.Join(root, "hack", "versions.env"))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	in := &Installed{root: root, versions: map[string]string{}}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		key, value, ok := strings.Cut(lines.Text(), "=")
		if ok && !strings.HasPrefix(key, "#") {
			in.versions[key] = strings.Trim(value, `"`)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	in.cache, err = cacheDir()
	return in, err
}

// cacheDir follows hack/lib.sh.
func cacheDir() (string, error) {
	if dir := os.Getenv("HETGPU_CACHE"); dir != "" {
		return dir, nil
	}
	dir, err := os.UserCacheDir()
	return filepath.Join(dir, "hetgpu"), err
}

// Containerds are the versions of the daemon to test with, the main one first.
func (in *Installed) Containerds() []string {
	return []string{in.versions["CONTAINERD_VERSION"], in.versions["CONTAINERD_OLD_VERSION"]}
}

// Path is a Config.Path for the given version of containerd.
func (in *Installed) Path(containerd string) ([]string, error) {
	return in.path(map[string]string{
		"containerd": containerd,
		"runc":       in.versions["RUNC_VERSION"],
		"nerdctl":    in.versions["NERDCTL_VERSION"],
	})
}

// KubePath is Path with what a kubelet, a cluster, and pods with a GPU need besides.
func (in *Installed) KubePath(containerd string) ([]string, error) {
	return in.path(map[string]string{
		"containerd":    containerd,
		"runc":          in.versions["RUNC_VERSION"],
		"kubelet":       in.versions["KUBELET_VERSION"],
		"controlplane":  in.versions["KUBELET_VERSION"],
		"cni":           in.versions["CNI_VERSION"],
		"toolkit":       in.versions["NVIDIA_TOOLKIT_VERSION"],
		"checkpointctl": in.versions["CHECKPOINTCTL_VERSION"],
	})
}

// path has our own programs, those that "make setup" built, and CRIU.
func (in *Installed) path(programs map[string]string) ([]string, error) {
	path := []string{filepath.Join(in.root, "bin")}
	for name, version := range programs {
		dir := filepath.Join(in.cache, name+"-"+version, "bin")
		if _, err := os.Stat(dir); err != nil {
			return nil, fmt.Errorf("%s %s is missing, run 'make setup': %w", name, version, err)
		}
		path = append(path, dir)
	}
	return append(path, filepath.Join(criuPrefix(), "bin")), nil
}

// criuPrefix follows hack/lib.sh. Where the distribution's CRIU works, nothing
// is there and PATH finds that one.
func criuPrefix() string {
	if dir := os.Getenv("HETGPU_CRIU_PREFIX"); dir != "" {
		return dir
	}
	return "/opt/hetgpu/criu"
}
