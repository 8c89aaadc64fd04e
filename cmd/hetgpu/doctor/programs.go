// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	containerd "github.com/containerd/containerd/v2/client"

	"github.com/hetgpu/containerd-shim-hetgpu/internal/execx"
	"github.com/hetgpu/containerd-shim-hetgpu/oci"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/criu"
)

const (
	programTimeout = 10 * time.Second
	shimName       = "containerd-shim-hetgpu-v2"
)

// What the integration tests run; older ones may work.
var (
	minContainerd = version{2, 2, 0}
	minRunc       = version{1, 2, 0}
)

// sbin is where programs are that not every user's PATH has.
var sbin = []string{"/usr/local/sbin", "/usr/sbin", "/sbin"}

// lookup finds one of our own programs: by its path, beside us, or in PATH.
func (h *Host) lookup(name string) (string, error) {
	if !strings.Contains(name, "/") {
		if path, err := exec.LookPath(filepath.Join(h.Bin, name)); err == nil {
			return path, nil
		}
	}
	return exec.LookPath(name)
}

// firstLine asks a program for its version.
func firstLine(ctx context.Context, path string, args ...string) (string, error) {
	out, err := execx.Output(ctx, programTimeout, path, args...)
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", path, strings.Join(args, " "), err)
	}
	line, _, _ := strings.Cut(strings.TrimSpace(out), "\n")
	return line, nil
}

func containerdProgram(ctx context.Context, _ *Host) []Result {
	path, err := exec.LookPath("containerd")
	if err != nil {
		// A daemon started by its full path is fine.
		return warn("if containerd is not installed, install 2.2 or newer", "not in PATH")
	}
	line, err := firstLine(ctx, path, "--version")
	if err != nil {
		return fail("install containerd again", "%v", err)
	}
	// "containerd github.com/containerd/containerd/v2 v2.4.2 <revision>"
	fields := strings.Fields(line)
	return judge(path, fields[min(2, max(0, len(fields)-1)):], minContainerd, "containerd")
}

// judge compares a version with the oldest that is tested.
func judge(path string, words []string, oldest version, name string) []Result {
	v, err := parseVersion(strings.Join(words, " "))
	switch {
	case err != nil:
		return warn("", "%s: %v", path, err)
	case v.less(oldest):
		return warn(fmt.Sprintf("update to %s %s or newer", name, oldest), "%s %s is older than what is tested", path, v)
	}
	return ok("%s %s", path, v)
}

// containerdDaemon asks the daemon at the socket.
func containerdDaemon(ctx context.Context, h *Host) []Result {
	if _, err := os.Stat(h.Address); err != nil {
		return warn("start containerd, or name its socket with --address", "not running: %v", err)
	}
	advice := "look at containerd's own log"
	if h.UID != 0 {
		advice = "run hetgpu doctor as root"
	}
	ctx, cancel := context.WithTimeoutCause(ctx, programTimeout, fmt.Errorf("no answer within %s", programTimeout))
	defer cancel()
	client, err := containerd.New(h.Address, containerd.WithTimeout(programTimeout))
	if err != nil {
		return warn(advice, "%s: %v", h.Address, err)
	}
	defer func() { _ = client.Close() }() // it was only asked
	v, err := client.Version(ctx)
	if err != nil {
		return warn(advice, "%s: %v", h.Address, err)
	}
	return judge(h.Address, []string{v.Version}, minContainerd, "containerd")
}

func runcProgram(ctx context.Context, _ *Host) []Result {
	path, err := exec.LookPath("runc")
	if err != nil {
		return fail("install runc "+minRunc.String()+" or newer", "not in PATH")
	}
	line, err := firstLine(ctx, path, "--version")
	if err != nil {
		return fail("install runc again", "%v", err)
	}
	words := strings.Fields(line)
	if len(words) < 3 || words[0] != "runc" {
		return warn("checkpoints are tested with runc", "%s says it is %q", path, line)
	}
	return judge(path, words[2:], minRunc, "runc")
}

// shimProgram looks where containerd does: in its own PATH, which need not be
// ours.
func shimProgram(ctx context.Context, h *Host) []Result {
	path, err := h.lookup(shimName)
	if err != nil {
		return fail("install it into a directory of containerd's PATH (`make install`)", "%s is neither beside this program nor in PATH", shimName)
	}
	if _, err := firstLine(ctx, path, "-v"); err != nil {
		return fail("install it again (`make install`)", "%v", err)
	}
	if _, err := exec.LookPath(shimName); err != nil {
		return warn("put its directory into containerd's PATH, or name it by its path (ctr run --runtime "+path+")", "%s is not in PATH", path)
	}
	return ok("%s", path)
}

func hookProgram(_ context.Context, h *Host) []Result {
	path, err := h.lookup(oci.HookProgram)
	if err != nil {
		return warn("install it beside the shim (`make install`)", "%v; containers of our CDI device without the shim, and restores of NVIDIA's or with changes of the root, need it", err)
	}
	return ok("%s", path)
}

func helperProgram(_ context.Context, h *Host) []Result {
	path, err := h.lookup(h.Config.Helper)
	if err != nil {
		return fail("install it beside the shim (`make install`)", "%v; containers with a GPU can't be checkpointed", err)
	}
	return ok("%s", path)
}

func criuProgram(ctx context.Context, h *Host) []Result {
	tool, err := criu.Probe(ctx, h.Config.CRIU.Path)
	if err != nil {
		return fail(criu.Advice, "%v", trimAdvice(err))
	}
	if h.UID != 0 {
		return ok("%s %s (criu check needs root)", tool.Path, tool.Version)
	}
	if err := criu.Check(ctx, tool.Path); err != nil {
		return fail(criu.Advice, "%v", trimAdvice(err))
	}
	if tool.Version.Less(criu.FullVersion) {
		return warn("install CRIU "+criu.FullVersion.String()+" (`make setup`)",
			"%s %s, criu check passed, but it can't dump programs that have shared GPU memory, nor TCP connections on Linux 6.16 and newer", tool.Path, tool.Version)
	}
	if _, err := exec.LookPath("criu"); err != nil {
		return warn("for checkpoints by the kubelet make a link to it in containerd's PATH, where containerd itself looks",
			"%s %s, criu check passed, but it is not in PATH", tool.Path, tool.Version)
	}
	return ok("%s %s, criu check passed", tool.Path, tool.Version)
}

// trimAdvice takes the advice out of an error, which is shown apart.
func trimAdvice(err error) error {
	return errors.New(strings.TrimSuffix(err.Error(), "; "+criu.Advice))
}

// networkLock looks for what CRIU holds packets back with while it saves
// connections, as the shim does.
func networkLock(ctx context.Context, h *Host) []Result {
	if path := h.find("iptables-restore"); path != "" {
		return ok("iptables (%s)", path)
	}
	tool, err := criu.Find(h.Config.CRIU.Path)
	if err == nil && h.UID == 0 && criu.CheckFeature(ctx, tool, "network_lock_nftables") == nil {
		return ok("nftables (by CRIU itself)")
	}
	return warn("install iptables", "neither iptables-restore nor a CRIU with nftables: established TCP connections can't be saved, but in containers on the host's network")
}

// find looks for a program in PATH and where system programs are.
func (h *Host) find(name string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	for _, dir := range sbin {
		if path, err := exec.LookPath(h.path(dir, name)); err == nil {
			return path
		}
	}
	return ""
}
