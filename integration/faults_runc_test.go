// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/containerd/containerd/api/types/runc/options"
)

// faultyRunc is a runc that fails in one of its commands, while it is armed.
type faultyRunc struct{ program string }

// newFaultyRunc returns a runc that runs script instead of one command. What
// the script does not end goes on as the real runc.
func (d *daemon) newFaultyRunc(t *testing.T, command, script string) faultyRunc {
	t.Helper()
	runc, err := d.Lookup("runc")
	if err != nil {
		t.Fatal(err)
	}
	return faultyRunc{writeScript(t, "runc", fmt.Sprintf(`
case " $* " in
*" %s "*)
	if [ -e "$0.armed" ]; then
		runc=%s
		%s
	fi ;;
esac
exec %s "$@"
`, command, runc, script, runc))}
}

// arm makes it fail from now on.
func (f faultyRunc) arm(t *testing.T, armed bool) {
	t.Helper()
	err := os.Remove(f.program + ".armed")
	if armed {
		err = os.WriteFile(f.program+".armed", nil, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// What runc can do wrong, whatever the command.
const (
	runcFails       = `echo "the disk is on fire" >&2; exit 1`
	runcHangs       = `exec sleep 1000`
	runcKilled      = `kill -KILL $$`
	runcFailsLater  = `$runc "$@"; echo "too late" >&2; exit 1`
	runcHangsLater  = `$runc "$@"; exec sleep 1000`
	runcKilledLater = `$runc "$@"; kill -KILL $$`
)

func TestFaultsRuncCheckpoint(t *testing.T) {
	for name, tc := range map[string]struct {
		script, timeout string
		says            []string
	}{
		"fails":                 {runcFails, "30s", []string{"dump: runc checkpoint", "the disk is on fire"}},
		"hangs":                 {runcHangs, "4s", []string{"dump: runc checkpoint", "time-out of 4s"}},
		"killed":                {runcKilled, "30s", []string{"dump: runc checkpoint", "exit status 137"}},
		"fails after the dump":  {runcFailsLater, "30s", []string{"dump: runc checkpoint", "too late"}},
		"hangs after the dump":  {runcHangsLater, "4s", []string{"dump: runc checkpoint", "time-out of 4s"}},
		"killed after the dump": {runcKilledLater, "30s", []string{"dump: runc checkpoint", "exit status 137"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := onGPUs(t)
			ctx := d.testContext(t)
			runc := d.newFaultyRunc(t, "checkpoint", tc.script)
			s := d.toy("-n", "2")
			s.options = &options.Options{BinaryName: runc.program}
			s.opts = append(s.opts, annotated("io.hetgpu.checkpoint.timeout", tc.timeout))
			p := d.patient(ctx, t, s, 2)
			runc.arm(t, true)
			start := time.Now()
			expectError(t, p.checkpoint(ctx), tc.says...)
			// CRIU has 10 s to come to its end when the time is up.
			if took := time.Since(start); took > 25*time.Second {
				t.Errorf("it took %s", took)
			}
			runc.arm(t, false)
			p.expectRecovered(ctx)
		})
	}
}

// A restore that fails in CRIU or in runc, at any stage, leaves nothing.
func TestFaultsRuncRestore(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	s := d.toy("-n", "2")
	dir, _ := d.saved(ctx, t, s, 2)
	for name, tc := range map[string]struct {
		script, timeout string
		says            []string
	}{
		"fails":             {runcFails, "30s", []string{"runc restore", "exit status 1"}},
		"hangs":             {runcHangs, "4s", []string{"restore", "not done within 4s"}},
		"killed":            {runcKilled, "30s", []string{"restore"}},
		"fails afterwards":  {runcFailsLater, "30s", []string{"runc restore", "exit status 1"}},
		"hangs afterwards":  {runcHangsLater, "2s", []string{"restore", "not done within 2s"}},
		"killed afterwards": {runcKilledLater, "30s", []string{"restore"}},
	} {
		t.Run(name, func(t *testing.T) {
			d.logIfFailed(t)
			ctx := d.testContext(t)
			runc := d.newFaultyRunc(t, "restore", tc.script)
			runc.arm(t, true)
			s := d.toy("-n", "2")
			s.options = &options.Options{BinaryName: runc.program}
			s.opts = append(s.opts, annotated("io.hetgpu.checkpoint.timeout", tc.timeout))
			d.expectRestoreFails(ctx, t, s, dir, tc.says...)
			runc.arm(t, false)
			r := d.restore(ctx, t, s, dir)
			r.expectGoesOn(ctx, 2)
			r.stop(ctx)
		})
	}
}

func TestFaultsCRIURestore(t *testing.T) {
	d := onGPUs(t)
	ctx := d.testContext(t)
	s := d.toy("-n", "2")
	dir, _ := d.saved(ctx, t, s, 2)
	h, withHook := newHook(t)
	for _, stage := range []string{"pre-restore", "setup-namespaces", "post-restore", "pre-resume"} {
		for name, tc := range map[string]struct {
			commands, timeout string
			says              []string
		}{
			"CRIU fails": {hookFails, "30s", []string{"runc restore", "CRIU says", "the log is " + d.logDir()}},
			"CRIU hangs": {hookHangs, "2s", []string{"runc restore", "not done within 2s"}},
			// What CRIU has forked keeps runc waiting, at some stages.
			"CRIU killed": {hookKillsCRIU, "2s", []string{"runc restore"}},
			"runc killed": {hookKillsRunc, "30s", []string{"runc restore"}},
		} {
			switch {
			case name == "CRIU hangs" && stage != "post-restore":
				continue // each takes its time-out
			case name == "CRIU fails" && stage == "pre-resume":
				continue // CRIU does not heed it
			}
			t.Run(stage+" "+name, func(t *testing.T) {
				d.logIfFailed(t)
				ctx := d.testContext(t)
				s := d.toy("-n", "2")
				s.opts = append(s.opts, withHook, annotated("io.hetgpu.checkpoint.timeout", tc.timeout))
				h.at(t, stage, tc.commands)
				d.expectRestoreFails(ctx, t, s, dir, tc.says...)
			})
		}
	}
	h.at(t, "", "")
	s.opts = append(s.opts, withHook)
	r := d.restore(ctx, t, s, dir)
	r.expectGoesOn(ctx, 2)
	r.stop(ctx)
}
