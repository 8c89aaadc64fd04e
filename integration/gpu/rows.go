// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/rig"
	hetoci "github.com/hetgpu/containerd-shim-hetgpu/oci"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// rows are the lines of the report, in the order in which they run.
var rows = []row{
	{name: "single process", what: "checkpoint, leave running; then restored under another ID, beside the original", test: single},
	{name: "four processes", what: "four CUDA processes in one container, restored beside the originals", test: fourProcesses},
	{name: "exit", what: "a checkpoint that ends the container, restored under the same ID", test: exit},
	{name: "ctr", what: "`ctr container checkpoint --task --image --rw`, `ctr container restore --live --rw`", test: ctr},
	{name: "pause", what: "`task pause` stops the GPU's work, resume lets it go on", test: pause},
	{name: "managed memory", what: "refused, and the container goes on", engines: []string{engineDriver}, test: managed},
	{name: "managed memory saved", what: "checkpoint, leave running; then restored beside the original", engines: []string{engineSplit}, test: managedSaved},
	{name: "legacy IPC", what: "refused before anything is changed, and both processes go on", engines: []string{engineDriver}, test: legacyIPC},
	{name: "legacy IPC saved", what: "two processes share memory: checkpoint, leave running; then restored beside the originals, and shared again", engines: []string{engineSplit}, test: legacyIPCSaved},
	{name: "state during a checkpoint", what: "State answers within 100 ms", test: stateDuring},
	{name: "helper killed during a checkpoint", what: "an error, everything undone, and the next checkpoint works", engines: []string{engineDriver}, timeout: 2 * time.Minute, test: helperKilled},
	{name: "another GPU", what: "saved on one GPU, restored on another of the same model", test: anotherGPU},
	{name: "PyTorch", what: "a training loop, ended and restored: every loss as in an uninterrupted run", timeout: 150 * time.Second, test: pyTorch},
	{name: "frameworks", what: "torch.compile and Triton, a CUDA graph, a transformer, stream-ordered memory, CuPy, JAX: ended and restored, every step as in an uninterrupted run", engines: []string{engineSplit}, timeout: 4 * time.Minute, test: frameworks},
	{name: "NCCL", what: "PyTorch on two GPUs, saved three times on the way, ended and restored: every loss as in an uninterrupted run; NCCL's default transport", engines: []string{engineSplit}, timeout: 4 * time.Minute, test: nccl()},
	{name: "NCCL over shared memory", what: "the same", engines: []string{engineSplit}, timeout: 4 * time.Minute, test: nccl("NCCL_P2P_DISABLE=1")},
	{name: "NCCL over sockets", what: "the same", engines: []string{engineSplit}, timeout: 4 * time.Minute, test: nccl("NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1")},
	{name: "half zeros", what: "memory that is zero is not written", engines: []string{engineSplit}, test: halfZeros},
	{name: "short stop", what: "`hetgpu checkpoint`, the container goes on while its memory is written; `hetgpu restore` beside it", engines: []string{engineSplit}, timeout: 2 * time.Minute, test: shortStop(32 << 10)},
	{name: "short stop of 60 GiB", what: "the same", engines: []string{engineSplit}, timeout: 3 * time.Minute, test: shortStop(60 << 10)},
	{name: "kept on the GPU", what: "ended by `hetgpu checkpoint --exit --keep-on-gpu`, restored without a copy", engines: []string{engineSplit}, timeout: 2 * time.Minute, test: keptOnGPU},
	{name: "kept on the GPU, PyTorch", what: "the same with a training that has 30 GiB: every loss as in an uninterrupted run", engines: []string{engineSplit}, timeout: 4 * time.Minute, test: keptTraining},
	{name: "pod", what: "containerd's CRI, a GPU by the CDI file of `hetgpu cdi generate`: checkpoint, the container goes on; pod removed, another one restored by its annotation; a damaged archive starts nothing", timeout: 2 * time.Minute, test: byCRI(ourCDI)},
	{name: "pod with NVIDIA's toolkit", what: "the same with the CDI file of `nvidia-ctk cdi generate` and its hooks", timeout: 2 * time.Minute, test: byCRI(nvidiaCDI)},
	{name: "kubelet", what: "the same with a kubelet's pods and its checkpoint API; a device plugin names the CDI device of `hetgpu cdi generate`", timeout: 3 * time.Minute, test: byKubelet(ourCDI)},
	{name: "kubelet with NVIDIA's toolkit", what: "the same with the CDI device of `nvidia-ctk cdi generate`", timeout: 3 * time.Minute, test: byKubelet(nvidiaCDI)},
	{name: "corpus", what: "the compiler's kernels: their own PTX, ours, stopped and moved, OpenCL (corpus.md)", engines: []string{engineDriver}, timeout: corpusBudget + 2*time.Minute, test: corpusRow},
	{name: "speed", what: "PyTorch with and without libhetcuda", engines: []string{engineSplit}, timeout: 3 * time.Minute, test: speed},
}

// The engines.
const (
	engineDriver = string(hetoci.EngineDriver)
	engineSplit  = "split"
)

// rowMiB is the device memory of each process in a row.
const rowMiB = 256

// memory is a size for gpuload, smaller where the GPU's memory is a file.
func (t *test) memory(mib int) string {
	if t.gpu.machine != nil {
		mib /= 32
	}
	return strconv.Itoa(mib)
}

func single(ctx context.Context, t *test) (string, error) { return saveBeside(ctx, t, 1, nil) }

// fourProcesses is refused on a kernel that can't tell whether the processes
// share device memory, unless the container says that they do not.
func fourProcesses(ctx context.Context, t *test) (string, error) {
	detail, err := saveBeside(ctx, t, 4, nil)
	if err == nil || !strings.Contains(err.Error(), hetoci.AnnotationNVIDIAIPC) {
		return detail, err
	}
	detail, again := saveBeside(ctx, t, 4, map[string]string{hetoci.AnnotationNVIDIAIPC: "none"})
	return fmt.Sprintf("%s; with the annotation %s=none, without which it is refused here: %v", detail, hetoci.AnnotationNVIDIAIPC, err), again
}

// saveBeside saves a container, which goes on, and restores it beside itself.
func saveBeside(ctx context.Context, t *test, ranks int, annotations map[string]string, args ...string) (string, error) {
	l := newLoad(ranks, append(args, "-b", t.memory(rowMiB))...)
	l.annotations = annotations
	if err := t.launch(ctx, l); err != nil {
		return "", err
	}
	before, dir := l.last(), t.directory("snapshot")
	saved, err := l.Checkpoint(ctx, dir, false)
	if err != nil {
		return "", err
	}
	if err := l.more(ctx, warmup); err != nil {
		return "", fmt.Errorf("the original after the checkpoint: %w", err)
	}
	if err := t.inspect(ctx, dir, ranks); err != nil {
		return "", err
	}
	copied, took, err := t.restored(ctx, l, dir, 0)
	if err != nil {
		return "", err
	}
	if err := errors.Join(copied.wentOn(before, false), l.more(ctx, warmup), copied.more(ctx, warmup)); err != nil {
		return "", err
	}
	return times(saved, took), nil
}

func times(saved rig.Saved, took rig.Restored) string {
	return fmt.Sprintf("checkpoint %s, restore %s", seconds(saved.Total()), seconds(took.Create+took.Start))
}

// inspect has our own program verify a snapshot.
func (t *test) inspect(ctx context.Context, dir string, ranks int) error {
	out, err := t.d.Exec(ctx, "hetgpu", "inspect", "--json", dir)
	if err != nil {
		return err
	}
	m, err := snapshot.ReadManifest(dir)
	if err != nil {
		return err
	}
	if m.Engine != t.engine || len(m.Processes) != ranks {
		return fmt.Errorf("the manifest has engine %q and %d processes, not %q and %d\n%s", m.Engine, len(m.Processes), t.engine, ranks, out)
	}
	return nil
}

// exit ends a container with its checkpoint; what runs then under its ID goes
// on with the very next tick.
func exit(ctx context.Context, t *test) (string, error) {
	l, err := t.start(ctx, 1, "-b", t.memory(rowMiB))
	if err != nil {
		return "", err
	}
	dir := t.directory("snapshot")
	saved, err := l.Checkpoint(ctx, dir, true)
	if err != nil {
		return "", err
	}
	if _, err := l.WaitExit(ctx); err != nil {
		return "", err
	}
	if err := l.DeleteTask(ctx); err != nil {
		return "", err
	}
	if err := l.check(); err != nil {
		return "", err
	}
	last := l.last()
	took, err := l.Restore(ctx, dir)
	if err != nil {
		return "", err
	}
	if err := errors.Join(l.more(ctx, warmup), l.wentOn(last, true)); err != nil {
		return "", err
	}
	return times(saved, took), nil
}

// managed and legacyIPC: what the driver can't save.
func managed(ctx context.Context, t *test) (string, error) {
	return refused(ctx, t, 1, "-m", "-b", "64")
}

func managedSaved(ctx context.Context, t *test) (string, error) {
	return saveBeside(ctx, t, 1, nil, "-m")
}

func legacyIPC(ctx context.Context, t *test) (string, error) {
	return refused(ctx, t, 2, "-s", "-b", "64")
}

func legacyIPCSaved(ctx context.Context, t *test) (string, error) {
	return saveBeside(ctx, t, 2, nil, "-s")
}

// refused expects a checkpoint to be refused, and nothing to have happened.
func refused(ctx context.Context, t *test, ranks int, args ...string) (string, error) {
	l, err := t.start(ctx, ranks, args...)
	if err != nil {
		return "", err
	}
	dir := t.directory("snapshot")
	start := time.Now()
	_, refusal := l.Checkpoint(ctx, dir, false)
	took := time.Since(start)
	if refusal == nil {
		return "", errors.New("the checkpoint succeeded; a restore would fail or lose data")
	}
	if err := errors.Join(l.more(ctx, warmup), leftNothing(dir)); err != nil {
		return "", fmt.Errorf("after the refusal (%w): %w", refusal, err)
	}
	return fmt.Sprintf("after %s: %v", seconds(took), refusal), nil
}

// leftNothing tells whether a checkpoint that failed left files.
func leftNothing(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		err = errors.Join(err, fmt.Errorf("%s is left in the snapshot's directory", e.Name()))
	}
	return err
}

// anotherGPU needs two of the same model.
func anotherGPU(ctx context.Context, t *test) (string, error) {
	devices := t.gpu.Devices
	if len(devices) < 2 || devices[0].Model != devices[1].Model {
		return "", skipError(fmt.Sprintf("this machine has %d GPU(s), and it takes two of the same model", len(devices)))
	}
	l, err := t.start(ctx, 1, "-b", t.memory(rowMiB))
	if err != nil {
		return "", err
	}
	dir := t.directory("snapshot")
	saved, err := l.Checkpoint(ctx, dir, true)
	if err != nil {
		return "", err
	}
	if _, err := l.WaitExit(ctx); err != nil {
		return "", err
	}
	if err := l.check(); err != nil {
		return "", err
	}
	other, took, err := t.restored(ctx, l, dir, 1)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s to %s, %s", devices[0].UUID, devices[1].UUID, times(saved, took)), other.wentOn(l.last(), true)
}

// ctr does what a person does.
func ctr(ctx context.Context, t *test) (string, error) {
	l, err := t.start(ctx, 1, "-b", t.memory(rowMiB))
	if err != nil {
		return "", err
	}
	before, ref, id := l.last(), "hetgpu.test/snapshot:1", t.id("ctr")
	start := time.Now()
	if _, err := t.d.Ctr(ctx, "container", "checkpoint", "--task", "--image", "--rw", l.ID, ref); err != nil {
		return "", err
	}
	saved := time.Since(start)
	if err := l.more(ctx, warmup); err != nil {
		return "", fmt.Errorf("the original after the checkpoint: %w", err)
	}
	t.cleanup(func(ctx context.Context) error { return t.removeContainer(ctx, id) })
	start = time.Now()
	if _, err := t.d.Ctr(ctx, "container", "restore", "--live", "--rw", id, ref); err != nil {
		return "", err
	}
	restored := time.Since(start)
	copied, err := t.attach(ctx, id, l)
	if err != nil {
		return "", err
	}
	if err := errors.Join(copied.more(ctx, warmup), copied.wentOn(before, false)); err != nil {
		return "", err
	}
	return fmt.Sprintf("checkpoint with its archive %s, restore %s", seconds(saved), seconds(restored)), nil
}

// attach reads what a container writes that ctr restored and left.
func (t *test) attach(ctx context.Context, id string, of *load) (*load, error) {
	cmd, err := t.d.Command(ctx, "ctr", t.d.CtrArgs("task", "attach", id)...)
	if err != nil {
		return nil, err
	}
	l := &load{Container: &rig.Container{ID: id, Out: rig.NewOutput(), Err: rig.NewOutput()}, ranks: of.ranks, book: of.book, patience: of.patience}
	cmd.Stdout, cmd.Stderr = l.Out, l.Err
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	t.cleanup(func(context.Context) error {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		return nil
	})
	return l, nil
}

// removeContainer removes a container that ctr made.
func (t *test) removeContainer(ctx context.Context, id string) error {
	ctx = t.d.Context(ctx)
	c, err := t.d.Client.LoadContainer(ctx, id)
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if task, taskErr := c.Task(ctx, nil); taskErr == nil {
		_, err = task.Delete(ctx, containerd.WithProcessKill)
	}
	return errors.Join(err, c.Delete(ctx, containerd.WithSnapshotCleanup))
}
