// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	runc "github.com/containerd/go-runc"
	"github.com/containerd/log"
	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/logfields"
)

// helperProgram is the name of the device helper's program.
const helperProgram = "hetgpu-gpu"

// helperProcess is one run of the helper.
type helperProcess struct {
	cmd    *exec.Cmd
	client *ttrpc.Client
	gpu    helperapi.GPUService
	// dead is closed when it gets no more calls: it was killed, or has ended.
	dead chan struct{}
	bury sync.Once
	// exited is closed when the process has been reaped; code is set then.
	exited chan struct{}
	code   int

	// calls is how many are under way, and retired that there will be no more.
	calls   int  // guarded by Helper.mu
	retired bool // guarded by Helper.mu
}

// startHelper starts a helper on one end of a pair of sockets that nobody else
// can open. It dies with this process: by the signal, and by the end of the
// connection.
func startHelper(ctx context.Context, cfg HelperConfig) (*helperProcess, error) {
	program, err := findHelper(cmp.Or(cfg.Binary, helperProgram))
	if err != nil {
		return nil, err
	}
	ours, theirs, err := socketPair(unix.SOCK_STREAM)
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	args := []string{"-socket-fd", "3"}
	if cfg.KeyFile != "" {
		args = append(args, "-key-file", cfg.KeyFile)
	}
	cmd := exec.Command(program, args...)
	cmd.Env = cfg.Env
	if cmd.Env == nil {
		cmd.Env = helperEnv(os.Environ())
	}
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	stderr, logEnd := io.Pipe()
	cmd.Stderr = logEnd
	// What the driver starts may keep stderr.
	cmd.WaitDelay = time.Second
	client := ttrpc.NewClient(ours)
	p := &helperProcess{
		cmd: cmd, client: client, gpu: helperapi.NewGPUClient(client),
		dead: make(chan struct{}), exited: make(chan struct{}),
	}
	ctx = context.WithoutCancel(ctx)
	started := make(chan error)
	go p.run(ctx, logEnd, started)
	if err := <-started; err != nil {
		return nil, errors.Join(err, client.Close())
	}
	go logLines(log.WithLogger(ctx, log.G(ctx).WithField(logfields.PID, cmd.Process.Pid)), stderr)
	return p, nil
}

// run starts the process and waits for its end, on a thread that is kept for it
// all the while: the signal is for the death of the thread.
func (p *helperProcess) run(ctx context.Context, logEnd io.Closer, started chan<- error) {
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	// The monitor, since in a shim containerd's reaper takes the exits of all
	// children.
	exits, err := runc.Monitor.StartLocked(p.cmd)
	started <- err
	if err == nil {
		p.reap(log.WithLogger(ctx, log.G(ctx).WithField(logfields.PID, p.cmd.Process.Pid)), exits, logEnd)
	}
}

// reap waits for the end of the process.
func (p *helperProcess) reap(ctx context.Context, exits chan runc.Exit, logEnd io.Closer) {
	code, err := runc.Monitor.Wait(p.cmd, exits)
	if err != nil {
		log.G(ctx).WithError(err).Warn("exit of the device helper not seen")
		code = -1
	}
	p.code = code
	p.end()
	_ = logEnd.Close()
	log.G(ctx).WithField("status", p.code).Debug("device helper exited")
	close(p.exited)
}

func (p *helperProcess) alive() bool {
	select {
	case <-p.dead:
		return false
	default:
		return true
	}
}

// kill ends the process. At once, it gets no more calls, and those under way
// fail; when it ends is for the driver to say, see ended.
func (p *helperProcess) kill() {
	// Through its pidfd: whatever has reaped it, no other process is hit.
	_ = p.cmd.Process.Kill()
	p.end()
}

// end ends the connection.
func (p *helperProcess) end() {
	p.bury.Do(func() {
		close(p.dead)
		_ = p.client.Close()
	})
}

// ended waits for the end of a process that was killed, within reason, and tells
// whether it came.
func (p *helperProcess) ended() bool {
	select {
	case <-p.exited:
		return true
	case <-time.After(endTimeout):
		return false
	}
}

// status says how it ended. What a signal ended has the status 128 plus its
// number with containerd's reaper, and -1 without.
func (p *helperProcess) status() string {
	if !p.ended() {
		return "killed, and stuck in the driver"
	}
	if p.code < 0 {
		return "killed by a signal"
	}
	return fmt.Sprintf("exit status %d", p.code)
}

// answers says whether the process still serves, whatever the driver does.
func (p *helperProcess) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pingTimeout)
	defer cancel()
	_, err := p.gpu.Ping(ctx, &helperapi.PingRequest{})
	return err == nil
}

// findHelper prefers the helper that was installed together with this program.
func findHelper(name string) (string, error) {
	if filepath.IsAbs(name) {
		return name, nil
	}
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), name)
		if _, err := os.Stat(beside); err == nil {
			return beside, nil
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%w; install it beside the shim", err)
	}
	return path, nil
}

// helperEnv drops what would have CUDA see fewer devices than there are, or in
// another order.
func helperEnv(env []string) []string {
	kept := []string{}
	for _, kv := range env {
		if !strings.HasPrefix(kv, "CUDA_") {
			kept = append(kept, kv)
		}
	}
	return kept
}

func socketPair(kind int) (ours net.Conn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	own := os.NewFile(uintptr(fds[0]), "helper")
	theirs = os.NewFile(uintptr(fds[1]), "shim")
	defer own.Close()
	ours, err = net.FileConn(own)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("socketpair: %w", err), theirs.Close())
	}
	return ours, theirs, nil
}

// logLines passes on what the helper, or the driver in it, prints.
func logLines(ctx context.Context, r io.ReadCloser) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		log.G(ctx).Infof("device helper: %s", lines.Text())
	}
	// A line too long ends the scan: let the helper write on nevertheless.
	_, _ = io.Copy(io.Discard, r)
}
