// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/standin"
	hetoci "github.com/hetgpu/containerd-shim-hetgpu/oci"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// maxRefusal is how much of a refusal the report has, in bytes.
const maxRefusal = 400

// cdiMaker writes a CDI specification of the host's GPUs.
type cdiMaker struct {
	// device is all of them, and program what makes the specification.
	device, program string
	// more are arguments besides the driver's and the nodes' place and the output.
	more func(n *node) ([]string, error)
}

var (
	ourCDI = cdiMaker{device: "hetgpu.io/gpu=all", program: "hetgpu", more: func(*node) ([]string, error) { return nil, nil }}
	// NVIDIA's names a program of the toolkit for its hooks.
	nvidiaCDI = cdiMaker{device: "nvidia.com/gpu=all", program: "nvidia-ctk", more: func(n *node) ([]string, error) {
		hook, err := n.d.Lookup("nvidia-cdi-hook")
		return []string{"--nvidia-cdi-hook-path", hook}, err
	}}
)

// generate has the specification written, and a copy of it beside the report.
func (n *node) generate(ctx context.Context, m cdiMaker) error {
	if _, err := n.d.Lookup(m.program); err != nil {
		return skipError(fmt.Sprintf("there is no %s: %v", m.program, err))
	}
	driver, dev, err := n.t.driverRoots()
	if err != nil {
		return err
	}
	more, err := m.more(n)
	if err != nil {
		return err
	}
	file := filepath.Join(n.cdi, m.program+".yaml")
	args := append([]string{"cdi", "generate", "--driver-root", driver, "--dev-root", dev, "--output", file}, more...)
	if _, err := n.d.Exec(ctx, m.program, args...); err != nil {
		found, _ := exec.CommandContext(ctx, "ls", "-l", n.t.gpu.libraries).CombinedOutput()
		return fmt.Errorf("%w\n%s has:\n%s", err, n.t.gpu.libraries, found)
	}
	n.device = m.device
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(n.t.out, "cdi-"+filepath.Base(file)), text, 0o644)
}

// driverRoots are where the driver's files and its device nodes are, as CDI
// generators ask for them.
func (t *test) driverRoots() (driver, dev string, err error) {
	if t.gpu.machine != nil {
		dir := filepath.Join(t.disk, t.id("driver"))
		driver, dev = filepath.Join(dir, "driver"), filepath.Join(dir, "root")
		t.cleanup(func(context.Context) error { return os.RemoveAll(dir) })
		return driver, dev, t.driverTree(driver, dev)
	}
	file, err := filepath.EvalSymlinks(filepath.Join(t.gpu.libraries, libcuda))
	if err != nil || strings.HasPrefix(file, "/usr/lib") || strings.HasPrefix(file, "/lib") {
		return "/", "/", err
	}
	// It was brought from somewhere else, as in /usr/local/nvidia/lib64.
	return filepath.Dir(filepath.Dir(file)), "/", nil
}

// driverTree makes the files of a driver that was brought from somewhere else, and
// its nodes, of the stand-in.
func (t *test) driverTree(driver, dev string) error {
	if err := standin.InstallDriver(filepath.Join(driver, "lib64"), t.gpu.libraries, t.gpu.Driver); err != nil {
		return err
	}
	names := []string{"nvidiactl", "nvidia-uvm"}
	for _, gpu := range t.gpu.Devices {
		names = append(names, "nvidia"+strconv.Itoa(gpu.Minor))
	}
	dev = filepath.Join(dev, "dev")
	return errors.Join(os.MkdirAll(dev, 0o755), t.gpu.machine.Nodes(dev, names...))
}

// byCRI is a row with pods by the CRI's calls, byKubelet one with a kubelet's.
func byCRI(m cdiMaker) func(ctx context.Context, t *test) (string, error) {
	return func(ctx context.Context, t *test) (string, error) {
		n, err := t.startNode(ctx)
		if err != nil {
			return "", err
		}
		n.pods = criPods{n}
		if err := n.generate(ctx, m); err != nil {
			return "", err
		}
		return n.thereAndBack(ctx)
	}
}

func byKubelet(m cdiMaker) func(ctx context.Context, t *test) (string, error) {
	return func(ctx context.Context, t *test) (string, error) {
		n, err := t.startNode(ctx)
		if err != nil {
			return "", err
		}
		if err := n.generate(ctx, m); err != nil {
			return "", err
		}
		if n.pods, err = n.startKubelet(ctx); err != nil {
			return "", err
		}
		return n.thereAndBack(ctx)
	}
}

// thereAndBack checkpoints a container of a pod, which goes on, removes the pod,
// and has another pod restored from the archive; then one from the archive with a
// damage, which must not start.
func (n *node) thereAndBack(ctx context.Context) (string, error) {
	of := newLoad(1, "-b", n.t.memory(rowMiB))
	first, err := n.run(ctx, "first", of, nil)
	if err != nil {
		return "", err
	}
	before := first.last()
	start := time.Now()
	archive, err := first.checkpoint(ctx)
	if err != nil {
		return "", fmt.Errorf("checkpoint: %w", err)
	}
	saved := time.Since(start)
	if err := first.ticks(ctx); err != nil {
		return "", fmt.Errorf("the original after the checkpoint: %w", err)
	}
	about, err := n.expectArchive(ctx, archive)
	if err != nil {
		return "", err
	}
	if err := first.remove(ctx); err != nil {
		return "", err
	}
	start = time.Now()
	second, err := n.run(ctx, "second", of, restoreFrom(archive))
	if err != nil {
		return "", err
	}
	restored := time.Since(start)
	if err := second.wentOn(before, false); err != nil {
		return "", err
	}
	whose, err := n.identity(ctx, second)
	if err != nil {
		return "", err
	}
	if err := second.remove(ctx); err != nil {
		return "", err
	}
	refusal, err := n.expectNotStarted(ctx, of, archive)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("checkpoint %s, %s; another pod %s at work after %s, %s; of a damaged archive: %s", seconds(saved), about, second.ID, seconds(restored), whose, refusal), nil
}

// restoreFrom is the annotation of a pod that is to be restored.
func restoreFrom(archive string) map[string]string {
	return map[string]string{hetoci.AnnotationRestore + "/" + inPod: filepath.Base(archive)}
}

// expectArchive looks at an archive, and says what is in it.
func (n *node) expectArchive(ctx context.Context, archive string) (about string, err error) {
	files, err := archived(archive)
	if err != nil {
		return "", err
	}
	for _, want := range []string{"spec.dump", "config.dump", "checkpoint/inventory.img", "checkpoint/" + snapshot.ManifestName} {
		if _, ok := files[want]; !ok {
			return "", fmt.Errorf("the archive has no %s", want)
		}
	}
	out, err := n.d.Exec(ctx, "hetgpu", "inspect", "--json", archive)
	if err != nil {
		return "", err
	}
	var report struct {
		Digests  string
		Manifest snapshot.Manifest
		Problems []string
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		return "", fmt.Errorf("%w in %q", err, out)
	}
	m := report.Manifest
	if len(report.Problems) > 0 || m.Engine != n.t.engine || len(m.Processes) != 1 {
		return "", fmt.Errorf("hetgpu inspect says of the archive: %s", out)
	}
	info, err := os.Stat(archive)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("archive of %d files and %d MiB, digests %s", len(files), info.Size()>>20, report.Digests), nil
}

// entry is a file in an archive.
type entry struct{ offset, size int64 }

// archived are the files of an archive, which has no directories below its own
// checkpoint.
func archived(archive string) (map[string]entry, error) {
	f, err := os.Open(archive)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	files := map[string]entry{}
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", archive, err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		name := filepath.Clean(h.Name)
		if dir := filepath.Dir(name); dir != "." && dir != "checkpoint" {
			return nil, fmt.Errorf("the archive is not flat: it has %s", name)
		}
		offset, err := f.Seek(0, io.SeekCurrent)
		if err != nil {
			return nil, err
		}
		files[name] = entry{offset, h.Size}
	}
}

// identity fails unless a restored pod is what its own sandbox says.
func (n *node) identity(ctx context.Context, p *pod) (string, error) {
	if n.onHost != nil {
		return fmt.Sprintf("on the host's network, for want of one of its own (%v)", n.onHost), nil
	}
	address, err := p.address(ctx)
	if err != nil {
		return "", err
	}
	for command, want := range map[string]string{"hostname": p.ID, "ip address show eth0": "inet " + address + "/"} {
		out, err := p.exec(ctx, strings.Fields(command)...)
		if err != nil {
			return "", err
		}
		if !strings.Contains(out, want) {
			return "", fmt.Errorf("%s says %q in pod %s, not %q", command, out, p.ID, want)
		}
	}
	return "with " + address, nil
}

// expectNotStarted damages the archive and fails unless nothing comes of it.
func (n *node) expectNotStarted(ctx context.Context, of *load, archive string) (refusal string, err error) {
	name, err := damage(archive)
	if err != nil {
		return "", err
	}
	r, err := n.start(ctx, "third", of, restoreFrom(archive))
	if err == nil {
		return "", fmt.Errorf("a pod was started from an archive with a damaged %s", name)
	}
	if r == nil {
		return "", fmt.Errorf("with a damaged %s: %w", name, err)
	}
	state, stateErr := r.state(ctx)
	log, logErr := r.log(ctx)
	if err := errors.Join(stateErr, logErr); err != nil {
		return "", err
	}
	if !strings.Contains(state, "StartError") || !strings.Contains(state, "damaged") || log != "" {
		return "", fmt.Errorf("with a damaged %s the container is %s; it wrote %q", name, state, log)
	}
	_, why, _ := strings.Cut(state, filepath.Base(archive)+": ")
	return "StartError, " + why[:min(len(why), maxRefusal)], nil
}

// damage changes one bit in the middle of an archive's largest file.
func damage(archive string) (name string, err error) {
	files, err := archived(archive)
	if err != nil {
		return "", err
	}
	for file, e := range files {
		if e.size > files[name].size {
			name = file
		}
	}
	f, err := os.OpenFile(archive, os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	b, at := make([]byte, 1), files[name].offset+files[name].size/2
	if _, err = f.ReadAt(b, at); err == nil {
		b[0] ^= 1
		_, err = f.WriteAt(b, at)
	}
	return name, errors.Join(err, f.Close())
}
