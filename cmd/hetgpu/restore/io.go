// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package restore

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"syscall"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/defaults"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/log"
)

// IO says where the standard streams of a restored container lead.
type IO struct {
	// Attach makes them this program's.
	Attach bool
	// LogURI is containerd's name of a log: file:///path, binary:///path.
	LogURI string

	exit    <-chan containerd.ExitStatus
	signals chan os.Signal
}

// creator makes the streams. Detached ones without a log are pipes, as those of
// `ctr run --detach`, for `ctr task attach`.
func (s *IO) creator(ctx context.Context, terminal bool) (cio.Creator, error) {
	if terminal && s.Attach {
		return nil, errors.New("the container has a terminal, which can't be attached to: restore it detached, and then ctr task attach")
	}
	if s.LogURI != "" {
		uri, err := url.Parse(s.LogURI)
		if err != nil {
			return nil, fmt.Errorf("--log-uri: %w", err)
		}
		if terminal {
			return cio.TerminalLogURI(uri), nil
		}
		return cio.LogURI(uri), nil
	}
	if s.Attach {
		return cio.NewCreator(cio.WithStdio), nil
	}
	return func(id string) (cio.IO, error) {
		fifos, err := cio.NewFIFOSetInDir(defaults.DefaultFIFODir, id, terminal)
		if err != nil {
			return nil, err
		}
		fifos.Stdin = "" // nobody would ever close it
		// Opened, and not read: what it writes before somebody attaches is kept.
		pipes, err := cio.NewDirectIO(context.WithoutCancel(ctx), fifos)
		if err != nil {
			return nil, errors.Join(err, fifos.Close())
		}
		return pipes, nil
	}, nil
}

// prepare begins to wait for the end of a task that is to be attached to.
func (s *IO) prepare(ctx context.Context, task containerd.Task) (err error) {
	if s.Attach {
		s.signals = make(chan os.Signal, len(signals))
		s.exit, err = task.Wait(context.WithoutCancel(ctx))
	}
	return err
}

// attach returns the exit status of the task, which it deletes. Signals are the
// task's meanwhile.
func (s *IO) attach(ctx context.Context, task containerd.Task) (uint32, error) {
	ctx = context.WithoutCancel(ctx)
	signal.Notify(s.signals, signals...)
	defer signal.Stop(s.signals)
	for {
		select {
		case got := <-s.signals:
			if err := task.Kill(ctx, got.(syscall.Signal)); err != nil {
				log.G(ctx).WithError(err).Warn("the signal could not be passed on")
			}
		case status := <-s.exit:
			code, _, err := status.Result()
			if err != nil {
				return code, err
			}
			if pipes := task.IO(); pipes != nil {
				pipes.Wait()
			}
			_, err = task.Delete(ctx)
			return code, err
		}
	}
}
