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
	{name: "auto", what: "a container that chooses no engine gets libhetcuda where the driver is one that it was tested with", engines: []string{engineSplit}, test: auto},
	{name: "four processes", what: "four CUDA processes in one container, restored beside the originals", takes: 8 * time.Second, test: fourProcesses},
	{name: "exit", what: "a checkpoint that ends the container, restored under the same ID", test: exit},
	{name: "ctr", what: "`ctr container checkpoint --task --image --rw`, `ctr container restore --live --rw`", takes: 7 * time.Second, test: ctr},
	{name: "pause", what: "`task pause` stops the GPU's work, resume lets it go on", test: pause},
	{name: "managed memory", what: "refused, and the container goes on", engines: []string{engineDriver}, test: managed},
	{name: "managed memory saved", what: "checkpoint, leave running; then restored beside the original", engines: []string{engineSplit}, test: managedSaved},
	{name: "legacy IPC", what: "refused before anything is changed, and both processes go on", engines: []string{engineDriver}, test: legacyIPC},
	{name: "legacy IPC saved", what: "two processes share memory: checkpoint, leave running; then restored beside the originals, and shared again", engines: []string{engineSplit}, test: legacyIPCSaved},
	{name: "events between processes", what: "the same, and the second process waits for an event of the first", engines: []string{engineSplit}, test: eventsSaved},
	{name: "state during a checkpoint", what: "State answers within 100 ms", test: stateDuring},
	{name: "helper killed during a checkpoint", what: "an error, everything undone, and the next checkpoint works", engines: []string{engineDriver}, timeout: 2 * time.Minute, test: helperKilled},
	{name: "another GPU", what: "saved on one GPU, restored on another of the same model; saved there while it goes on, and restored on the first beside it", takes: 12 * time.Second, timeout: 2 * time.Minute, test: anotherGPU()},
	{name: "managed memory on another GPU", what: "the same", engines: []string{engineSplit}, takes: 12 * time.Second, timeout: 2 * time.Minute, test: anotherGPU("-m")},
	{name: "PyTorch", what: "a training loop, ended and restored: every loss as in an uninterrupted run", takes: 30 * time.Second, timeout: 150 * time.Second, test: pyTorch(0)},
	{name: "PyTorch on another GPU", what: "the same, restored on another one of the same model", engines: []string{engineSplit}, takes: 30 * time.Second, timeout: 150 * time.Second, test: pyTorch(1)},
	{name: "torch.compile", what: "whose kernels Triton makes while the program runs: saved, ended and restored, every step as in an uninterrupted run", engines: []string{engineSplit}, takes: 17 * time.Second, timeout: 2 * time.Minute, test: framework("/gpu/frameworks.py", "compiled")},
	{name: "CUDA graph", what: "captured once, replayed at every step: saved, ended and restored, every step as in an uninterrupted run", engines: []string{engineSplit}, takes: 17 * time.Second, timeout: 2 * time.Minute, test: framework("/gpu/frameworks.py", "graph")},
	{name: "transformer", what: "generates text, the same tokens: saved, ended and restored, every step as in an uninterrupted run", engines: []string{engineSplit}, takes: 17 * time.Second, timeout: 2 * time.Minute, test: framework("/gpu/frameworks.py", "generate")},
	{name: "stream-ordered memory", what: "PyTorch with cudaMallocAsync on two streams: saved, ended and restored, every step as in an uninterrupted run", engines: []string{engineSplit}, takes: 17 * time.Second, timeout: 2 * time.Minute, test: framework("/gpu/frameworks.py", "ordered")},
	{name: "CuPy", what: "kernels of its own and a pool: saved, ended and restored, every step as in an uninterrupted run", engines: []string{engineSplit}, takes: 17 * time.Second, timeout: 2 * time.Minute, test: framework("/gpu/frameworks.py", "cupy")},
	{name: "JAX", what: "XLA's kernels: saved, ended and restored, every step as in an uninterrupted run", engines: []string{engineSplit}, takes: 17 * time.Second, timeout: 2 * time.Minute, test: framework("/gpu/frameworks.py", "jax")},
	{name: "cuBLAS", what: "products in four precisions, batched and not, and a solver: saved, ended and restored, every step as in an uninterrupted run", engines: []string{engineSplit}, takes: 17 * time.Second, timeout: 2 * time.Minute, test: framework("/gpu/frameworks.py", "blas")},
	{name: "cuDNN", what: "convolutions and an LSTM, forward and backward: saved, ended and restored, every step as in an uninterrupted run", engines: []string{engineSplit}, takes: 17 * time.Second, timeout: 2 * time.Minute, test: framework("/gpu/frameworks.py", "cudnn")},
	{name: "torch multiprocessing", what: "a tensor and an event that two processes of PyTorch share: saved, ended and restored, every step as in an uninterrupted run", engines: []string{engineSplit}, takes: 17 * time.Second, timeout: 2 * time.Minute, test: framework("/gpu/share.py")},
	{name: "NCCL", what: "PyTorch on two GPUs, saved three times on the way, ended and restored: every loss as in an uninterrupted run; NCCL's default transport", engines: []string{engineSplit}, takes: 75 * time.Second, timeout: 4 * time.Minute, test: nccl()},
	{name: "NCCL over shared memory", what: "the same", engines: []string{engineSplit}, takes: 75 * time.Second, timeout: 4 * time.Minute, test: nccl("NCCL_P2P_DISABLE=1")},
	{name: "NCCL over sockets", what: "the same", engines: []string{engineSplit}, takes: 80 * time.Second, timeout: 4 * time.Minute, test: nccl("NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1")},
	{name: "driver API", what: "calls, good and bad, return and tell the same through libhetcuda as without it", engines: []string{engineSplit}, takes: 8 * time.Second, test: driverAPI},
	{name: "runtime API", what: "the same with the CUDA runtime, static and shared: memory, textures, streams, graphs, pools, cooperative launches", engines: []string{engineSplit}, takes: 60 * time.Second, timeout: 4 * time.Minute, test: runtimeAPI},
	{name: "launch", what: "what a launch costs with and without libhetcuda", engines: []string{engineSplit}, takes: 15 * time.Second, test: launchCost},
	{name: "managed memory programs", what: "every word checked from both sides, over the driver's managed memory and libhetcuda's; twice the room; saved and restored", engines: []string{engineSplit}, takes: 75 * time.Second, timeout: 4 * time.Minute, test: managedPrograms},
	{name: "managed variables", what: "`__managed__` variables, and `__device__` ones in their pages, every word checked from both sides at every turn of CPU and GPU: saved while it goes on, saved again, ended and restored", engines: []string{engineSplit}, takes: 20 * time.Second, timeout: 3 * time.Minute, test: managedVariables},
	{name: "demo", what: "what `make demo` shows, with the engine asked for (demo-ENGINE.txt)", takes: 12 * time.Second, timeout: 3 * time.Minute, test: demo},
	{name: "ceilings", what: "what the data path can't exceed here: pinned copies and files, with as many lanes as it has; in the table of the targets below", engines: []string{engineSplit}, takes: 40 * time.Second, timeout: 2 * time.Minute, test: ceilings},
	{name: "50 rounds", what: "one program ended and restored 50 times, with a digest of all device memory at every tick", engines: []string{engineSplit}, takes: 160 * time.Second, timeout: 5 * time.Minute, test: fiftyRounds},
	{name: "second checkpoint", what: "`hetgpu checkpoint --parent` after 5% of the device memory changed, restored", engines: []string{engineSplit}, takes: 15 * time.Second, timeout: 2 * time.Minute, test: secondCheckpoint},
	{name: "failures", what: "two processes that share memory; a checkpoint is interrupted in each phase, CRIU fails, a restore fails: the program goes on with all of its memory, and nothing is left", engines: []string{engineSplit}, takes: 25 * time.Second, timeout: 2 * time.Minute, test: failures},
	{name: "encrypted", what: "device memory in files is encrypted: restored with the key, refused without it", engines: []string{engineSplit}, takes: 15 * time.Second, timeout: 2 * time.Minute, test: encrypted},
	{name: "half zeros", what: "memory that is zero is not written", engines: []string{engineSplit}, test: halfZeros},
	{name: "short stop", what: "`hetgpu checkpoint`, the container goes on while its memory is written; `hetgpu restore` beside it", engines: []string{engineSplit}, takes: 35 * time.Second, timeout: 2 * time.Minute, test: shortStop(32 << 10)},
	{name: "short stop of 60 GiB", what: "the same", engines: []string{engineSplit}, takes: 65 * time.Second, timeout: 3 * time.Minute, test: shortStop(60 << 10)},
	{name: "kept on the GPU", what: "ended by `hetgpu checkpoint --exit --keep-on-gpu`, restored without a copy", engines: []string{engineSplit}, takes: 20 * time.Second, timeout: 2 * time.Minute, test: keptOnGPU},
	{name: "PyTorch kept on the GPU", what: "the same with a training that has 30 GiB: every loss as in an uninterrupted run", engines: []string{engineSplit}, takes: 40 * time.Second, timeout: 4 * time.Minute, test: keptTraining},
	{name: "pod", what: "containerd's CRI, a GPU by the CDI file of `hetgpu cdi generate`: checkpoint, the container goes on; pod removed, another one restored by its annotation; a damaged archive starts nothing", takes: 12 * time.Second, timeout: 2 * time.Minute, test: byCRI(ourCDI)},
	{name: "pod with NVIDIA's toolkit", what: "the same with the CDI file of `nvidia-ctk cdi generate` and its hooks", takes: 12 * time.Second, timeout: 2 * time.Minute, test: byCRI(nvidiaCDI)},
	{name: "kubelet", what: "the same with a kubelet's pods and its checkpoint API; a device plugin names the CDI device of `hetgpu cdi generate`", takes: 25 * time.Second, timeout: 3 * time.Minute, test: byKubelet(ourCDI)},
	{name: "kubelet with NVIDIA's toolkit", what: "the same with the CDI device of `nvidia-ctk cdi generate`", takes: 25 * time.Second, timeout: 3 * time.Minute, test: byKubelet(nvidiaCDI)},
	{name: "corpus", what: "the compiler's kernels: their own PTX, ours, stopped and moved, OpenCL (corpus.md)", engines: []string{engineDriver}, takes: corpusBudget, timeout: corpusBudget + 2*time.Minute, test: corpusRow},
	{name: "speed", what: "PyTorch with and without libhetcuda", engines: []string{engineSplit}, takes: 80 * time.Second, timeout: 3 * time.Minute, test: speed},
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

// auto expects the engine that the row runs with of a container that names none.
func auto(ctx context.Context, t *test) (string, error) {
	if t.gpu.machine != nil {
		return "", skipError("the stand-in is no driver that libhetcuda was tested with")
	}
	return saveBeside(ctx, t, 1, map[string]string{hetoci.AnnotationEngine: string(hetoci.EngineAuto)})
}

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

func eventsSaved(ctx context.Context, t *test) (string, error) {
	return saveBeside(ctx, t, 2, nil, "-s", "-e")
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
func anotherGPU(args ...string) func(ctx context.Context, t *test) (string, error) {
	return func(ctx context.Context, t *test) (string, error) {
		devices := t.gpu.Devices
		if len(devices) < 2 || devices[0].Model != devices[1].Model {
			return "", skipError(fmt.Sprintf("this machine has %d GPU(s), and it takes two of the same model", len(devices)))
		}
		l, err := t.start(ctx, 1, append([]string{"-b", t.memory(rowMiB)}, args...)...)
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
		there, took, err := t.restored(ctx, l, dir, 1)
		if err != nil {
			return "", fmt.Errorf("on %s: %w", devices[1].UUID, err)
		}
		t.note("%s to %s", devices[0].UUID, devices[1].UUID)
		if err := there.wentOn(l.last(), true); err != nil {
			return "", err
		}
		before, again := there.last(), t.directory("snapshot")
		if _, err := there.Checkpoint(ctx, again, false); err != nil {
			return "", fmt.Errorf("saved on %s: %w", devices[1].UUID, err)
		}
		if err := errors.Join(there.more(ctx, warmup), there.check()); err != nil {
			return "", fmt.Errorf("after it was saved on %s: %w", devices[1].UUID, err)
		}
		back, tookBack, err := t.restored(ctx, there, again, 0)
		if err != nil {
			return "", fmt.Errorf("back on %s: %w", devices[0].UUID, err)
		}
		if err := errors.Join(back.wentOn(before, false), there.more(ctx, warmup), there.check()); err != nil {
			return "", err
		}
		return times(saved, took) + "; back " + times(saved, tookBack), nil
	}
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
