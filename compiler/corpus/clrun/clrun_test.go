// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package clrun

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/corpus/child"
)

const (
	base = 0x2000_0000_0000
	size = 1 << 20
)

// start opens PoCL, without what other runs left in its cache.
func start(t *testing.T) *Device {
	t.Helper()
	dir := t.TempDir()
	program, err := Build(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	// The test's context ends before its clean-up.
	d, err := Start(context.WithoutCancel(t.Context()), Options{
		Program: program, Platform: "Portable Computing Language", Base: base, Size: size, Timeout: time.Minute,
		Env: []string{"POCL_CACHE_DIR=" + dir},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestRun(t *testing.T) {
	d := start(t)
	if d.Base != base {
		t.Errorf("device memory is at %#x, not at %#x", d.Base, uint64(base))
	}
	_, err := d.Build("-cl-std=CL1.2", `
__kernel void add(__global const ulong *args, __local uchar *shared) {
	__global uint *data = (__global uint *)args[0];
	shared[get_local_id(0)] = get_local_id(0);
	barrier(CLK_LOCAL_MEM_FENCE);
	data[get_global_id(0)] += shared[get_local_size(0) - 1 - get_local_id(0)];
	if (get_global_id(0) == 5) printf("five\n");
}`)
	must(t, err)
	const args, data, n = base + 64, base + 4096, 16
	must(t, d.Write(args, child.U64s(data)))
	for i := range n {
		must(t, d.Write(data+uint64(4*i), binary.LittleEndian.AppendUint32(nil, uint32(100*i))))
	}
	for range 2 {
		out, err := d.Run(Run{Entry: "add", Launch: args, LocalBytes: 8, Global: [3]uint64{n, 1, 1}, Local: [3]uint64{8, 1, 1}})
		must(t, err)
		if out != "five\n" {
			t.Errorf("printed %q", out)
		}
	}
	got, err := d.Read(data, 4*n)
	must(t, err)
	for i := range n {
		if v, want := binary.LittleEndian.Uint32(got[4*i:]), uint32(100*i+2*(7-i%8)); v != want {
			t.Errorf("element %d is %d, want %d", i, v, want)
		}
	}
}

func TestFlag(t *testing.T) {
	d := start(t)
	_, err := d.Build("", `
__kernel void wait(__global const ulong *args, __local uchar *shared) {
	volatile __global uint *flag = (volatile __global uint *)args[0];
	while (!*flag) ;
}`)
	must(t, err)
	must(t, d.Write(base, child.U64s(base+128)))
	one := [3]uint64{1, 1, 1}
	_, err = d.Run(Run{Entry: "wait", Launch: base, Global: one, Local: one, Flag: base + 128, FlagAfter: time.Millisecond})
	must(t, err)
}

// TestRefuses: a request that can't be done is an error, and the device goes on.
func TestRefuses(t *testing.T) {
	d := start(t)
	one := [3]uint64{1, 1, 1}
	tests := map[string]func() error{
		"BUILD: a syntax error":       func() error { _, err := d.Build("", "__kernel void k( {"); return err },
		"WRITE: before the window":    func() error { return d.Write(base-1, []byte{1, 2}) },
		"WRITE: behind the window":    func() error { return d.Write(base+size-1, []byte{1, 2}) },
		"READ: more than there is":    func() error { _, err := d.Read(base+1, size); return err },
		"READ: a length that wraps":   func() error { _, err := d.Read(base+1, 1<<63); return err },
		"RUN: no such entry":          func() error { _, err := d.Run(Run{Entry: "x", Launch: base, Global: one, Local: one}); return err },
		"RUN: a launch outside":       func() error { _, err := d.Run(Run{Entry: "x", Launch: 8, Global: one, Local: one}); return err },
		"RUN: no entry":               func() error { _, err := d.Run(Run{Launch: base, Global: one, Local: one}); return err },
		"OPEN: a second time":         func() error { _, err := d.process.Do(reqOpen, child.U64s(base, size)); return err },
		"a request that there is not": func() error { _, err := d.process.Do(77); return err },
	}
	for name, try := range tests {
		if err := try(); err == nil || errors.Is(err, child.ErrCrashed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	must(t, d.Write(base, []byte{1}))
}

// TestBuffer: memory in a buffer, which the driver places.
func TestBuffer(t *testing.T) {
	dir := t.TempDir()
	program, err := Build(t.Context(), dir)
	must(t, err)
	d, err := Start(context.WithoutCancel(t.Context()), Options{
		Program: program, Platform: "Portable Computing Language", Base: base, Size: size, Timeout: time.Minute, Buffer: true,
		Env: []string{"POCL_CACHE_DIR=" + dir},
	})
	must(t, err)
	defer d.Close() //nolint:errcheck // a test that failed has said so
	_, err = d.Build("", `__kernel void k(__global const ulong *args, __local uchar *shared) { *(__global ulong *)args[0] += 5; }`)
	must(t, err)
	at := d.Base + 4096
	must(t, d.Write(d.Base, child.U64s(at)))
	must(t, d.Write(at, child.U64s(7)))
	one := [3]uint64{1, 1, 1}
	_, err = d.Run(Run{Entry: "k", Launch: d.Base, Global: one, Local: one})
	must(t, err)
	got, err := d.Read(at, 8)
	must(t, err)
	if v := binary.NativeEndian.Uint64(got); v != 12 {
		t.Errorf("it is %d", v)
	}
	if _, err := d.Run(Run{Entry: "k", Launch: at, Global: one, Local: one}); err == nil {
		t.Error("a launch that is described elsewhere")
	}
}

func TestNoPlatform(t *testing.T) {
	program, err := Build(t.Context(), t.TempDir())
	must(t, err)
	_, err = Start(t.Context(), Options{Program: program, Platform: "no such platform", Base: base, Size: size, Timeout: time.Minute})
	if err == nil || !strings.Contains(err.Error(), "no such platform") {
		t.Errorf("%v", err)
	}
}

// TestCrash: the end of the child is an error, and so is every request after it.
func TestCrash(t *testing.T) {
	endless := `__kernel void k(__global const ulong *args, __local uchar *shared) {
	volatile __global uint *p = (volatile __global uint *)args;
	while (!*p) ;
}`
	wild := `__kernel void k(__global const ulong *args, __local uchar *shared) { *(volatile __global uint *)8 = 1; }`
	for name, tt := range map[string]struct {
		source  string
		timeout time.Duration
	}{"killed after its time": {endless, 100 * time.Millisecond}, "segmentation fault": {wild, time.Minute}} {
		t.Run(name, func(t *testing.T) {
			d := start(t)
			_, err := d.Build("", tt.source)
			must(t, err)
			d.process.Timeout = tt.timeout
			one := [3]uint64{1, 1, 1}
			_, err = d.Run(Run{Entry: "k", Launch: base, Global: one, Local: one})
			if !errors.Is(err, child.ErrCrashed) {
				t.Errorf("the run: %v", err)
			}
			if err := d.Write(base, []byte{1}); !errors.Is(err, child.ErrCrashed) {
				t.Errorf("after it: %v", err)
			}
		})
	}
}
