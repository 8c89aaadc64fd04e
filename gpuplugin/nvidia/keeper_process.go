// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	runc "github.com/containerd/go-runc"
	"github.com/containerd/log"
	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/keeper"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/logfields"
)

// Keepers starts processes that keep device memory, and says where they are.
// [KeeperProcesses] is the one.
type Keepers interface {
	// Start starts a keeper that has nothing yet.
	Start(ctx context.Context, label keeper.Label) (Keeper, error)
	// Home is the directory in which keepers listen.
	Home() string
}

// Keeper is one that was started here. It ends with Close unless it was
// confirmed.
type Keeper interface {
	ID() string
	Confirm(ctx context.Context) error
	Drop(ctx context.Context, by string) error
	Close() error
}

var _ Keeper = (*keeper.Conn)(nil)

// KeeperProcesses are processes of the device helper's program.
type KeeperProcesses struct {
	HelperConfig
	// Dir is the directory in which they listen.
	Dir keeper.Home
}

var _ Keepers = KeeperProcesses{}

// Home implements [Keepers].
func (k KeeperProcesses) Home() string { return string(k.Dir) }

// Start implements [Keepers]. Other than a helper the process lives on when this
// one ends, if it was confirmed by then.
func (k KeeperProcesses) Start(ctx context.Context, label keeper.Label) (_ Keeper, err error) {
	program, err := findHelper(cmp.Or(k.Binary, helperProgram))
	if err != nil {
		return nil, err
	}
	ours, theirs, err := socketPair(unix.SOCK_SEQPACKET)
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	id := keeper.NewID()
	cmd := exec.Command(program, "keep", "-dir", string(k.Dir), "-id", id, "-container", label.Container, "-snapshot", label.Dir, "-owner-fd", "3")
	cmd.Env = k.Env
	if cmd.Env == nil {
		cmd.Env = helperEnv(os.Environ())
	}
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{theirs}
	// A session of its own: no signal of a terminal or of a group is for it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	exits, err := runc.Monitor.Start(cmd)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start a keeper: %w", err), ours.Close())
	}
	ctx = log.WithLogger(ctx, log.G(ctx).WithField(logfields.PID, cmd.Process.Pid))
	go func() {
		if status, err := runc.Monitor.Wait(cmd, exits); err != nil || status != 0 {
			log.G(ctx).WithError(err).WithField("status", status).Info("keeper exited")
		}
	}()
	_ = theirs.Close() // so that its end shows
	conn, err := keeper.Started(ctx, ours, id)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start a keeper: %w", err), ours.Close(), cmd.Process.Kill())
	}
	log.G(ctx).WithField(logfields.ID, label.Container).Info("keeper of device memory started")
	return conn, nil
}
