// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"context"
	"time"

	"github.com/containerd/log"

	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// drain takes device memory that is out of its processes into files, or leaves it
// where it is, beside whatever else is done. Without such memory it is over when it begins.
type drain struct {
	phases
	cancel context.CancelCauseFunc
	// copied is closed when the processes can have their memory back, or the
	// drain is over; over when it is.
	copied, over chan struct{}
	// suspended is closed when the processes' state is out of the devices, and back
	// when the container is back, or can't be brought back.
	suspended, back chan struct{}
	memory          *snapshot.Memory
	err             error
}

// drain begins one. A context that ends does not end it, but those that wait
// for it do with theirs: until the container is back it is its only copy. It has
// to be stopped.
func (s *saving) drain(ctx context.Context) *drain {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	d := &drain{phases: phases{progress: s.progress}, cancel: cancel, copied: make(chan struct{}), over: make(chan struct{}), suspended: make(chan struct{}), back: make(chan struct{})}
	if !s.stream.Bound() {
		close(d.suspended)
	}
	go func() {
		copied := false
		if s.split() {
			copied, d.err = d.flow(ctx, s)
		}
		close(d.over)
		if !copied {
			close(d.copied)
		}
	}()
	return d
}

// keep leaves it where it is.
func (d *drain) keep(ctx context.Context, s *saving) error {
	k, err := keeper(s.GPU)
	if err != nil {
		return err
	}
	return d.run(ctx, PhaseKeep, func(ctx context.Context) error {
		kept, err := k.Keep(ctx, s.Dir, s.procs)
		d.memory = &snapshot.Memory{
			Bytes: kept.Bytes, KeptBytes: kept.Bytes, Keeper: &snapshot.Keeper{BootID: kept.Boot, ID: kept.Keeper, Digest: kept.Digest},
		}
		return err
	})
}

// flow copies on the device, if the container is to go on and there is room,
// and then to files. It closes copied if it says so.
func (d *drain) flow(ctx context.Context, s *saving) (copied bool, err error) {
	if s.Keep {
		return false, d.keep(ctx, s)
	}
	if !s.Exit {
		err = d.run(ctx, PhaseCopy, func(ctx context.Context) (err error) {
			copied, err = s.stream.Copy(ctx, s.procs)
			return err
		})
		if err != nil {
			return false, err
		}
	}
	if copied {
		close(d.copied)
	}
	// What a container waits for comes first: files would only be in CRIU's way.
	// One that its client had frozen waits for all of it anyhow, but its state is
	// taken first.
	if copied {
		first := d.back
		if s.frozen {
			first = d.suspended
		}
		select {
		case <-first:
		case <-ctx.Done():
			return copied, context.Cause(ctx)
		}
	}
	return copied, d.run(ctx, PhaseDrain, func(ctx context.Context) error {
		// runc would do it, some time later.
		if err := s.before.Make(); err != nil {
			return err
		}
		stored, err := s.stream.Save(ctx, s.Dir, s.parent(), s.procs)
		d.memory = &snapshot.Memory{Bytes: stored.Bytes, ZeroBytes: stored.Zero, StoredBytes: stored.Written, ReusedBytes: stored.Reused, KeyID: stored.KeyID}
		if err == nil {
			err = s.encrypted(stored)
		}
		return err
	})
}

// free returns when the processes can have their memory back; on error they
// have to, and there is no snapshot.
func (d *drain) free(ctx context.Context) error {
	select {
	case <-d.copied:
	case <-ctx.Done():
		d.cancel(context.Cause(ctx))
		<-d.over
		return context.Cause(ctx)
	}
	select {
	case <-d.over:
		return d.err
	default:
		return nil
	}
}

// wait returns when all is in files, or ends it with the context.
func (d *drain) wait(ctx context.Context) (*snapshot.Memory, error) {
	defer context.AfterFunc(ctx, func() { d.cancel(context.Cause(ctx)) })()
	<-d.over
	return d.memory, d.err
}

// stop ends it, whatever it has done.
func (d *drain) stop() {
	d.cancel(context.Canceled)
	<-d.over
}

// dropTimeout bounds the freeing of device memory.
const dropTimeout = 30 * time.Second

func drop(ctx context.Context, stream Streamer) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropTimeout)
	defer cancel()
	if err := stream.Drop(ctx); err != nil {
		log.G(ctx).WithError(err).Warn("device memory may stay in use until the shim ends")
	}
}
