// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/rig"
	hetoci "github.com/hetgpu/containerd-shim-hetgpu/oci"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/checkpoint"
)

// interruptedIn are the phases in which a checkpoint is interrupted: all of them up
// to the one after which there is nothing to go back to.
var interruptedIn = []string{
	checkpoint.PhasePreflight, checkpoint.PhaseLock, checkpoint.PhasePark, checkpoint.PhaseSuspend, checkpoint.PhaseDump, checkpoint.PhaseCopy,
}

// failScript is CRIU's action script that lets it fail, once, where it is told to.
const failScript = `#!/bin/sh
# CRIU says in CRTOOLS_SCRIPT_ACTION where it is.
[ "$CRTOOLS_SCRIPT_ACTION" = "$(cat %[1]s)" ] || exit 0
echo >%[1]s
exit 1
`

// failures lets a checkpoint fail in each phase, and a restore. The program goes on
// each time with all that it had, and nothing is left.
func failures(ctx context.Context, t *test) (string, error) {
	l := newLoad(2, "-s", "-d", "-i", "10", "-b", t.memory(rowMiB))
	where, script, conf := filepath.Join(t.work, t.id("where")), filepath.Join(t.work, t.id("fail")), filepath.Join(t.work, t.id("criu"))
	err := errors.Join(
		os.WriteFile(where, nil, 0o600),
		os.WriteFile(script, fmt.Appendf(nil, failScript, where), 0o700),
		os.WriteFile(conf, []byte("action-script "+script+"\n"), 0o600))
	if err != nil {
		return "", err
	}
	l.annotations = map[string]string{hetoci.AnnotationCRIUConfig: conf}
	if err := t.launch(ctx, l); err != nil {
		return "", err
	}
	goesOn := func(what, dir string) error {
		if err := errors.Join(l.more(ctx, warmup), leftNothing(dir)); err != nil {
			return fmt.Errorf("after %s: %w", what, err)
		}
		return nil
	}
	for _, phase := range interruptedIn {
		dir := t.directory("interrupted")
		said, done, err := t.interrupt(ctx, l.Container, phase, dir)
		if err != nil {
			return "", err
		}
		if done {
			// It was too late; that is no error, and no row about the way back.
			t.note("interrupted in %s: complete before that", phase)
			if err := errors.Join(os.RemoveAll(dir), l.more(ctx, warmup)); err != nil {
				return "", err
			}
			continue
		}
		if err := goesOn("an interruption in the phase "+phase, dir); err != nil {
			return "", err
		}
		t.note("interrupted in %s: %s", phase, said)
	}
	failAt := func(action string) error { return os.WriteFile(where, []byte(action), 0o600) }
	dir := t.directory("failed")
	if err := failAt("post-dump"); err != nil {
		return "", err
	}
	if _, err := l.Checkpoint(ctx, dir, false); err == nil {
		return "", errors.New("CRIU's dump was to fail, and did not")
	}
	if err := goesOn("CRIU's failure", dir); err != nil {
		return "", err
	}
	t.note("CRIU failed at the end of its dump")
	before := l.last()
	dir = t.directory("snapshot")
	if _, err := l.Checkpoint(ctx, dir, false); err != nil {
		return "", fmt.Errorf("the checkpoint after that: %w", err)
	}
	for _, action := range []string{"post-restore", ""} {
		if err := failAt(action); err != nil {
			return "", err
		}
		copied, _, err := t.restored(ctx, l, dir, 0)
		if action != "" {
			if err == nil {
				return "", fmt.Errorf("CRIU's restore was to fail at %s, and did not", action)
			}
			t.note("CRIU failed at the end of its restore")
			continue
		}
		if err := errors.Join(err, l.more(ctx, warmup)); err != nil {
			return "", err
		}
		if err := copied.wentOn(before, false); err != nil {
			return "", err
		}
	}
	return "and then saved and restored", nil
}

// mayBeDone are the phases at which a checkpoint is almost complete, so that it can
// be so before it is interrupted.
var mayBeDone = []string{checkpoint.PhaseDump, checkpoint.PhaseCopy}

// interrupt begins a checkpoint and interrupts it as soon as it is in a phase. It
// returns what it said last, and whether it was complete by then.
func (t *test) interrupt(ctx context.Context, c *rig.Container, phase, dir string) (said string, done bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd, err := t.d.Command(ctx, "hetgpu", "checkpoint", c.ID, "--dir", dir, "--address", t.d.Address(), "--namespace", t.d.Namespace)
	if err != nil {
		return "", false, err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return "", false, err
	}
	defer read.Close()
	cmd.Stdout, cmd.Stderr = write, write
	err = cmd.Start()
	_ = write.Close() // the program has its own
	if err != nil {
		return "", false, err
	}
	var lines []string
	reached := false
	for scanner := bufio.NewScanner(read); scanner.Scan(); {
		lines = append(lines, scanner.Text())
		if words := strings.Fields(scanner.Text()); !reached && len(words) > 0 && words[len(words)-1] == phase {
			reached = true
			if err := cmd.Process.Signal(unix.SIGINT); err != nil {
				return "", false, err
			}
		}
	}
	err = cmd.Wait()
	last := lines[max(0, len(lines)-1):]
	switch {
	case !reached:
		return "", false, fmt.Errorf("the checkpoint did not come to %s: %w: %s", phase, err, strings.Join(lines, "; "))
	case err == nil && !slices.Contains(mayBeDone, phase):
		return "", false, fmt.Errorf("the checkpoint was interrupted in %s, and succeeded", phase)
	}
	return strings.Join(last, ""), err == nil, nil
}
