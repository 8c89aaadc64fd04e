// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package datapath_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/datapath"
)

// Turns on one device are had in their order, those alone one by one, and those on
// others beside them. One that isn't waited for any longer is in nobody's way.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns datapath.Turns
		var had []string
		take := func(ctx context.Context, name string, alone bool, devices ...string) (done func()) {
			over := make(chan struct{})
			go func() {
				done, err := turns.Take(ctx, devices, alone)
				if err != nil {
					had = append(had, name+": "+err.Error())
					return
				}
				had = append(had, name)
				<-over
				done()
			}()
			synctest.Wait()
			return func() { close(over); synctest.Wait() }
		}
		want := func(names ...string) {
			t.Helper()
			if !slices.Equal(had, names) {
				t.Errorf("turns %q, want %q", had, names)
			}
			had = nil
		}
		ctx := t.Context()
		a, b := take(ctx, "a", false, "0"), take(ctx, "b", false, "0", "1")
		want("a", "b")
		c := take(ctx, "c", true, "0", "1")
		other := take(ctx, "other", true, "2")
		want("other")
		late, cancel := context.WithCancelCause(ctx)
		take(late, "late", true, "1")
		d, e := take(ctx, "d", false, "1"), take(ctx, "e", true, "2")
		a()
		want()
		b()
		want("c")
		cancel(errors.New("not any more"))
		synctest.Wait()
		want("late: not any more")
		other()
		want("e")
		c()
		want("d")
		last := take(ctx, "last", true, "1", "2")
		d()
		want()
		e()
		want("last")
		last()
		// Nobody waits for ever.
		f := take(ctx, "f", true, "0")
		take(ctx, "g", true, "0")
		<-time.After(time.Hour) // of the bubble's time
		synctest.Wait()
		if had[0] != "f" || !strings.Contains(had[1], "g: others on its devices were not done within") {
			t.Errorf("turns %q", had)
		}
		f()
	})
}
