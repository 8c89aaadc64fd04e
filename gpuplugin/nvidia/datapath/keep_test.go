// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package datapath_test

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/datapath"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/hetcuda/hetcudatest"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/keeper"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/keeper/keepertest"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
)

// leave leaves parcels to a keeper, and forgets them: the helper has ended.
func leave(t *testing.T, b *bench, names ...string) (*keepertest.Keeper, nvidia.FetchRequest) {
	t.Helper()
	k := keepertest.Start(t)
	req := nvidia.KeepRequest{Home: string(k.Home), Keeper: k.ID, Parcels: names}
	kept, err := b.Keep(t.Context(), req)
	check(t, err)
	check(t, k.Owner.Confirm(t.Context()))
	check(t, k.Owner.Close())
	check(t, b.Drop(t.Context(), names))
	b.Mover = datapath.New(b.machine, datapath.DefaultConfig())
	return k, nvidia.FetchRequest{KeepRequest: req, Digest: kept.Digest, By: "job-2"}
}

// by is who has taken the memory of a keeper.
func by(t *testing.T, k *keepertest.Keeper) string {
	t.Helper()
	s, err := k.Home.Status(t.Context(), k.ID)
	check(t, err)
	return s.By
}

// untilBack waits until a keeper has seen the end of the connection by which its memory
// was taken.
func untilBack(t *testing.T, k *keepertest.Keeper) {
	t.Helper()
	for by(t, k) != "" {
	}
}

// Memory goes to a keeper and back, and no device is opened.
func TestKeepAndFetch(t *testing.T) {
	b := newBench(t)
	b.park(t)
	k, req := leave(t, b, "p")
	got, err := b.Fetch(t.Context(), req)
	check(t, err)
	if got.Bytes[uuid0.String()] != 13*mib+8192+4096 || got.Bytes[uuid1.String()] != 8*mib || by(t, k) != "job-2" {
		t.Errorf("%+v, taken by %q", got, by(t, k))
	}
	other := datapath.New(b.machine, datapath.DefaultConfig())
	if _, err := other.Fetch(t.Context(), req); !errors.Is(err, keeper.ErrLent) {
		t.Errorf("fetched by another: %v", err)
	}
	a := b.whenAsked()
	check(t, b.Unpark(t.Context(), b.control, os.Getpid(), "p"))
	if b.process.State() != hetcudatest.Held {
		t.Fatalf("state %d", b.process.State())
	}
	// It is the process's own as soon as it is not the keeper's any more.
	if a.times != 0 || len(b.process.Borrowed()) != 4 {
		t.Errorf("asked %d times, as they were: %v", a.times, b.process.Borrowed())
	}
	check(t, b.Spend(t.Context(), k.ID, "job-2 has it"))
	if len(b.process.Borrowed()) > 0 || a.times != 1 {
		t.Errorf("asked %d times, as they were: %v", a.times, b.process.Borrowed())
	}
	<-k.Over
	check(t, b.Release(t.Context(), b.control, os.Getpid()))
	for id, want := range b.data {
		if string(b.process.Read(id)) != string(want) {
			t.Errorf("chunk %d has changed", id)
		}
	}
	if _, err := other.Fetch(t.Context(), req); !errors.Is(err, gpuplugin.ErrNotKept) || !strings.Contains(err.Error(), "job-2 has it") {
		t.Errorf("fetched again: %v", err)
	}
	if err := b.Spend(t.Context(), k.ID, "x"); !errors.Is(err, helperapi.ErrNoState) {
		t.Errorf("spent again: %v", err)
	}
	b.clean(t, false)
}

// What goes wrong before a process may have changed the memory leaves it with the
// keeper, and what goes wrong then ends it.
func TestFetchInVain(t *testing.T) {
	for name, tc := range map[string]struct {
		do func(t *testing.T, b *bench)
		// lost says that nobody may have it again.
		lost bool
	}{
		"dropped": {do: func(*testing.T, *bench) {}},
		"refused by the process": {do: func(t *testing.T, b *bench) {
			t.Helper()
			b.process.Before(hetcudatest.Unpark, func(c *net.UnixConn) bool {
				hetcudatest.Reply(c, hetcudatest.Unpark, 2, 0, "no", nil)
				return false
			})
			if err := b.Unpark(t.Context(), b.control, os.Getpid(), "p"); err == nil {
				t.Error("it was taken")
			}
		}},
		"taken, and the process lives": {lost: true, do: func(t *testing.T, b *bench) {
			t.Helper()
			check(t, b.Unpark(t.Context(), b.control, os.Getpid(), "p"))
		}},
		"taken, and let go": {lost: true, do: func(t *testing.T, b *bench) {
			t.Helper()
			check(t, b.Unpark(t.Context(), b.control, os.Getpid(), "p"))
			check(t, b.Release(t.Context(), b.control, os.Getpid()))
		}},
		"no answer, perhaps taken": {lost: true, do: func(t *testing.T, b *bench) {
			t.Helper()
			b.process.Before(hetcudatest.Unpark, func(*net.UnixConn) bool {
				go b.process.SetState(hetcudatest.Running)
				return false
			})
			_ = b.Unpark(t.Context(), b.control, os.Getpid(), "p")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.park(t)
			k, req := leave(t, b, "p")
			if _, err := b.Fetch(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			tc.do(t, b)
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			err := b.Drop(ctx, []string{"p"})
			if tc.lost {
				check(t, b.Release(t.Context(), b.control, os.Getpid()))
				<-k.Over
				if _, err := k.Home.Status(t.Context(), k.ID); !errors.Is(err, gpuplugin.ErrNotKept) || !strings.Contains(err.Error(), "may have changed it") {
					t.Errorf("error is %v", err)
				}
				return
			}
			check(t, err)
			untilBack(t, k)
			b.process.Before(hetcudatest.Unpark, nil)
			_, err = b.Fetch(t.Context(), req)
			check(t, err)
			b.runs(t, "p")
		})
	}
}

// What is kept can be saved to files, also what processes share.
func TestFetchAndSave(t *testing.T) {
	s := newSharing(t)
	s.park(t, 0, 1, 2)
	k, req := leave(t, s.bench, s.names...)
	_, err := s.Fetch(t.Context(), req)
	check(t, err)
	saved, err := s.Save(t.Context(), nvidia.SaveRequest{Dir: s.dir, Parcels: s.names})
	check(t, err)
	if _, err := memfile.Verify(t.Context(), s.dir, nil); err != nil || saved.Bytes != (3+2+3)*mib {
		t.Errorf("saved %+v, %v", saved, err)
	}
	// A helper that dies now leaves what it was.
	check(t, s.Drop(t.Context(), s.names))
	untilBack(t, k)
	_, err = s.Fetch(t.Context(), req)
	check(t, err)
	s.run(t, 0, 1, 2)
	check(t, s.Spend(t.Context(), k.ID, "done"))
	<-k.Over
}

func TestKeepErrors(t *testing.T) {
	b := newBench(t)
	b.park(t)
	k := keepertest.Start(t)
	req := nvidia.KeepRequest{Home: string(k.Home), Keeper: keeper.NewID(), Parcels: []string{"p"}}
	if _, err := b.Keep(t.Context(), req); !errors.Is(err, gpuplugin.ErrNotKept) {
		t.Errorf("no keeper: %v", err)
	}
	req.Keeper, req.Parcels = k.ID, []string{"q"}
	if _, err := b.Keep(t.Context(), req); !errors.Is(err, helperapi.ErrNoState) {
		t.Errorf("no parcel: %v", err)
	}
	req.Parcels = []string{"p"}
	kept, err := b.Keep(t.Context(), req)
	check(t, err)
	check(t, k.Owner.Confirm(t.Context()))
	fetch := nvidia.FetchRequest{KeepRequest: req, Digest: kept.Digest}
	fetch.Parcels = []string{"x", "y"}
	if _, err := b.Fetch(t.Context(), fetch); err == nil || !strings.Contains(err.Error(), "of 1 processes, and 2 are") {
		t.Errorf("other processes: %v", err)
	}
	fetch.Parcels = []string{"p"}
	if _, err := b.Fetch(t.Context(), fetch); !errors.Is(err, helperapi.ErrIllegalState) {
		t.Errorf("a parcel that there is: %v", err)
	}
	b.runs(t, "p")
	b.clean(t, false)
}
