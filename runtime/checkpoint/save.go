// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/containerd/log"
	"golang.org/x/sync/errgroup"

	"github.com/hetgpu/containerd-shim-hetgpu/internal/criuimg"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/runc"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// save dumps the container, which stands still, moves its device memory
// meanwhile, and lets it go on or ends it.
func (s *saving) save(ctx context.Context) (*snapshot.Manifest, error) {
	follower, err := snapshot.Follow(ctx, s.Dir)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", PhaseDump, err)
	}
	defer follower.Stop()
	if s.memory == nil {
		s.memory = s.drain(ctx)
	}
	memory := s.memory
	defer memory.stop()
	beside := s.capture(ctx)
	defer beside.stop()
	dump := s.Dump
	// CRIU ends the processes only where their connections have to be kept:
	// else they end after the manifest is on disk, so that no failure costs
	// both the container and the snapshot.
	dump.Exit = s.Exit && s.TCPEstablished
	if dump.Exit {
		// There is no way back afterwards: what can fail comes before.
		if err := beside.wait(&s.phases); err != nil {
			return nil, err
		}
		if _, err := memory.wait(ctx); err != nil {
			return nil, err
		}
		if err := s.stillThere(); err != nil {
			return nil, err
		}
	}
	if err := s.run(ctx, PhaseDump, func(ctx context.Context) error { return s.dump(ctx, dump) }); err != nil {
		return nil, err
	}
	if err := beside.wait(&s.phases); err != nil {
		return nil, err
	}
	if dump.Exit {
		// The snapshot is all that is left of it, so it is finished even if
		// nobody waits for it any more, within the time.
		s.undo.steps = nil
		limited, end := context.WithTimeoutCause(context.WithoutCancel(ctx), s.Timeout, errTimeout)
		defer end()
		ctx = limited
	}
	m := &s.Manifest
	m.Engine, m.Created = s.engine(), time.Now()
	if m.Engine == snapshot.EngineNone {
		m.EngineReason = ""
	}
	// The rest of the files, when no more are written.
	seal := func(ctx context.Context) (p phases, err error) {
		if m.Memory, err = memory.wait(ctx); err != nil {
			return p, err
		}
		p.done, p.progress = memory.done, s.progress
		if err := s.linkParent(); err != nil {
			return p, err
		}
		if s.Companion != Companion(nothing{}) {
			err = p.run(ctx, PhasePack, func(ctx context.Context) error { return s.Companion.Write(ctx, s.Dir) })
			if err != nil {
				return p, err
			}
		}
		return p, p.run(ctx, PhaseSeal, func(ctx context.Context) (err error) {
			m.Files, err = follower.Seal(ctx)
			return err
		})
	}
	if s.Exit {
		err = s.end(ctx, seal, dump.Exit)
	} else {
		err = s.goOn(ctx, memory, seal)
	}
	m.Phases = s.done
	return m, err
}

// dump runs CRIU to its end, also if nobody wants the dump any more or the time
// is up (dumpGrace has the reason). It is killed when the grace is over too, and
// when the container is being ended.
func (s *saving) dump(ctx context.Context, d runc.Dump) error {
	d.Config.Timeout = time.Until(s.until)
	grace := cmp.Or(s.grace, dumpGrace)
	dctx, cancel := context.WithDeadlineCause(context.WithoutCancel(ctx), s.until.Add(grace),
		fmt.Errorf("%w; CRIU was killed when it had not ended %s later: a process in which it was at work may not survive", s.late(), grace))
	defer cancel()
	dctx, kill := context.WithCancelCause(dctx)
	defer kill(nil)
	defer s.onEnding(func() { kill(ErrEnding) })()
	defer context.AfterFunc(ctx, func() {
		log.G(ctx).WithError(context.Cause(ctx)).Warn("the dump will be thrown away: CRIU is let come to its end")
	})()
	err := s.Runtime.Checkpoint(dctx, d)
	why := context.Cause(ctx)
	switch {
	case err == nil && d.Exit:
		// Nothing is left to go on.
		return nil
	case err == nil && why == nil:
		return nameless(d.Dir)
	case err == nil:
		return why
	case why == nil || dctx.Err() != nil:
		return err
	}
	return fmt.Errorf("%w: %w", why, err)
}

// nameless fails if a file of the container would be missed at the restore: CRIU
// gave it a name for as long as the dump took, and it is in no mount whose files
// are in CRIU's images, as those of /dev/shm are.
func nameless(dir string) error {
	lost, err := criuimg.LostLinks(dir)
	if err != nil || len(lost) == 0 {
		return err
	}
	return fmt.Errorf("%s %w (it was deleted or renamed, and is there under another one): only in a tmpfs of the container, such as /dev/shm, can such files be saved",
		strings.Join(lost, ", "), ErrNameless)
}

// engine is the manifest's word for what was done.
func (s *saving) engine() string {
	switch {
	case len(s.procs) == 0:
		return snapshot.EngineNone
	case s.GPU.Engine() == snapshot.EngineSplit && !s.split():
		return snapshot.EngineDriver
	}
	return s.GPU.Engine()
}

// sealer finishes the snapshot's files, and tells how long it took.
type sealer func(context.Context) (phases, error)

// end seals the snapshot and ends the container.
func (s *saving) end(ctx context.Context, seal sealer, ended bool) error {
	sealing, err := seal(ctx)
	s.done = append(s.done, sealing.done...)
	if err == nil {
		err = s.writeManifest(ctx)
	}
	if err == nil && s.Keep {
		err = s.confirm(ctx)
	}
	if err != nil && !ended {
		return err
	}
	// CRIU ends what it dumps: a process that entered by exec is left, frozen.
	kill := s.run(ctx, PhaseKill, s.Cgroup.Kill)
	if kill != nil && !s.procfs().alive(s.Init) {
		// The snapshot is all that is left of it.
		s.undo.steps = nil
	}
	s.apart = s.apart && kill != nil
	return errors.Join(err, kill)
}

// confirm has the device memory stay when this process ends.
func (s *saving) confirm(ctx context.Context) error {
	k, err := keeper(s.GPU)
	if err != nil {
		return err
	}
	s.undo.add(PhaseKeep, k.Forget)
	return s.run(ctx, PhaseKeep, k.Confirm)
}

// goOn brings the GPUs back while the snapshot is finished, and the container
// into the state in which it was found. Device memory goes back when there is a
// copy of it, or when it was saved.
func (s *saving) goOn(ctx context.Context, memory *drain, seal sealer) error {
	if err := memory.free(ctx); err != nil {
		return err
	}
	var sealing phases
	var group errgroup.Group
	// To its end: if the container does not come back, this is its only copy.
	limited, end := context.WithTimeoutCause(context.WithoutCancel(ctx), s.Timeout, errTimeout)
	defer end()
	whole, abandon := context.WithCancelCause(limited)
	defer abandon(nil)
	group.Go(func() (err error) {
		sealing, err = seal(whole)
		return err
	})
	// Once the dump is complete, the way forward and the way back are one and
	// the same; it is gone even if the seal fails.
	resumeErr := s.resume(ctx)
	close(memory.back)
	if resumeErr == nil {
		defer context.AfterFunc(ctx, func() { abandon(context.Cause(ctx)) })()
	}
	// Who ends the container gives up its state, wherever that is.
	defer s.onEnding(func() { abandon(ErrEnding) })()
	sealErr := group.Wait()
	s.done = append(s.done, sealing.done...)
	if sealErr != nil {
		return errors.Join(sealErr, resumeErr)
	}
	if resumeErr == nil && ctx.Err() != nil {
		return errors.Join(context.Cause(ctx), s.trouble)
	}
	if err := s.writeManifest(context.WithoutCancel(ctx)); err != nil {
		return errors.Join(err, resumeErr, s.trouble)
	}
	if resumeErr != nil {
		// The only good copy of the state may be this one.
		s.undo.steps = nil
		return fmt.Errorf("the container could not be brought back; its snapshot in %s is complete and was kept (containerd removes a directory that it chose itself): %w", s.Dir, resumeErr)
	}
	return nil
}

// resume undoes the stop, step by step. What it did is dropped from the way
// back; only the removal of the images stays there.
func (s *saving) resume(ctx context.Context) error {
	images := s.undo.steps[:1:1]
	stopped := rollback{steps: s.undo.steps[1:], timeout: s.undo.timeout}
	s.undo.steps = images
	if len(s.procs) == 0 {
		err := stopped.run(ctx)
		s.ends()
		return err
	}
	err := s.run(ctx, PhaseThaw, s.Cgroup.Thaw)
	if err == nil {
		err = s.run(ctx, PhaseResume, func(ctx context.Context) error { return s.GPU.Resume(ctx, s.procs, nil) })
		s.apart = s.apart && err != nil
	}
	if err == nil && s.frozen {
		err = s.run(ctx, PhaseFreeze, s.refreeze)
	}
	if err == nil {
		s.ends()
		return nil
	}
	if again := stopped.run(ctx); again != nil {
		return errors.Join(err, again)
	}
	s.ends()
	s.trouble = err
	log.G(ctx).WithError(err).Warn("the container is back, at the second try")
	return nil
}

func (s *saving) writeManifest(ctx context.Context) error {
	s.Manifest.Phases = s.done
	return s.run(ctx, PhaseManifest, func(ctx context.Context) error { return snapshot.Write(ctx, s.Dir, &s.Manifest) })
}
