// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// criNamespace is the namespace in which containerd keeps what the kubelet asks
// for (containerd 2.4, internal/cri/constants).
const criNamespace = "k8s.io"

// CRI is how a daemon serves a kubelet.
type CRI struct {
	// SandboxImage is the reference of the image that a pod's sandbox runs.
	SandboxImage string
	// Handler is the only runtime handler, and so that of pods that name none.
	Handler Handler
	// Subnet is the third byte of the pods' addresses, 10.203.N.0/24.
	Subnet byte
	// More is added to the configuration of the runtime service.
	More string
}

// Handler is a runtime handler of containerd's CRI.
type Handler struct {
	Name string
	// Table is what the configuration has for it, in TOML, without what only tests
	// need.
	Table string
}

// rootIsOurs tells whether the root of a process is one that the daemon mounted.
// The kubelet's containers are in cgroups that are named by their ids only.
func (d *Daemon) rootIsOurs(proc string) bool {
	if d.cri == nil {
		return false
	}
	mounts, _ := os.ReadFile(filepath.Join(proc, "mountinfo"))
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 4 && fields[4] == "/" {
			return strings.Contains(line, d.Dir+"/")
		}
	}
	return false
}

// criConfig is what the configuration has for the CRI: the plugins that are
// disabled, and the tables.
func (d *Daemon) criConfig() (disabled, tables string) {
	if d.cri == nil {
		return `"io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime", "io.containerd.nri.v1.nri",`, ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, `
[plugins."io.containerd.nri.v1.nri"]
  disable = true
[plugins."io.containerd.cri.v1.images"]
  snapshotter = %q
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = %q
[plugins."io.containerd.cri.v1.runtime"]
  # Machines for tests may lack CAP_SYS_RESOURCE.
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  %s
[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = [%q]
  conf_dir = %q
  use_internal_loopback = true
[plugins."io.containerd.cri.v1.runtime".containerd]
  default_runtime_name = %q
`, d.Snapshotter, d.cri.SandboxImage, d.cri.More, d.cniPlugins(), d.cniConfigDir(), d.cri.Handler.Name)
	// The nodes that stand for GPUs come by mounts.
	handler := fmt.Sprintf("[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.%s]\n", d.cri.Handler.Name)
	b.WriteString(strings.Replace(d.cri.Handler.Table, handler, handler+
		"  privileged_without_host_devices = true\n  privileged_without_host_devices_all_devices_allowed = true\n", 1))
	return "", b.String()
}

func (d *Daemon) cniConfigDir() string { return filepath.Join(d.Dir, "net.d") }

// cniPlugins is the directory of the network's plugins.
func (d *Daemon) cniPlugins() string {
	plugin, err := d.Lookup("ptp")
	if err != nil {
		return ""
	}
	return filepath.Dir(plugin)
}

// writeNetwork makes the pods' network: a cable to the host for each.
func (d *Daemon) writeNetwork() error {
	type object map[string]any
	network, err := json.Marshal(object{
		"cniVersion": "1.0.0",
		"name":       d.marker,
		"plugins": []object{{
			"type": "ptp",
			"ipam": object{
				"type": "host-local", "dataDir": filepath.Join(d.Dir, "ipam"),
				"ranges": [][]object{{{"subnet": fmt.Sprintf("10.203.%d.0/24", d.cri.Subnet)}}},
			},
		}},
	})
	if err != nil {
		return err
	}
	if err := os.Mkdir(d.cniConfigDir(), 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(d.cniConfigDir(), "10-pods.conflist"), network, 0o600)
}
