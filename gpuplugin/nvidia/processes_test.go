// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package nvidia_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/gputest"
	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia"
)

func TestProcesses(t *testing.T) {
	memory := gputest.Memory{gpu0.UUID: 1 << 30}
	tests := map[string]struct {
		setup func(*gputest.Machine)
		want  []gpuplugin.Process
		// unknown is what the error says, if it can't be told.
		unknown []string
	}{
		"no CUDA, no files": {
			setup: func(m *gputest.Machine) { m.RunPlain(7, "/dev/null", "socket:[1]") },
		},
		"no such process": {
			setup: func(*gputest.Machine) {},
		},
		"only mode setting and capability files": {
			setup: func(m *gputest.Machine) {
				m.RunPlain(7, "/dev/nvidia-modeset", "/dev/nvidia-caps/nvidia-cap2")
			},
		},
		"running": {
			setup: func(m *gputest.Machine) { m.Run(7, memory) },
			want:  []gpuplugin.Process{{PID: 7, State: running}},
		},
		"checkpointed, so without files": {
			setup: func(m *gputest.Machine) {
				m.Run(7, memory)
				m.SetState(7, checkpointed)
			},
			want: []gpuplugin.Process{{PID: 7, State: checkpointed}},
		},
		"failed is an answer": {
			setup: func(m *gputest.Machine) {
				m.Run(7, memory)
				m.SetState(7, gpuplugin.StateFailed)
			},
			want: []gpuplugin.Process{{PID: 7, State: gpuplugin.StateFailed}},
		},
		"files that the driver knows nothing of": {
			setup:   func(m *gputest.Machine) { m.RunPlain(7, "/dev/nvidia0", "/dev/nvidiactl") },
			unknown: []string{"process 7 (toy7)", "/dev/nvidia0, /dev/nvidiactl", "forked child"},
		},
		"a mapping that the driver knows nothing of": {
			setup: func(m *gputest.Machine) {
				m.RunPlain(7)
				m.Map(7, "7f00-7f01 rw-s 0 00:05 90 /dev/nvidia-uvm")
			},
			unknown: []string{"process 7", "/dev/nvidia-uvm"},
		},
		"deleted device file": {
			setup:   func(m *gputest.Machine) { m.RunPlain(7, "/dev/nvidia0 (deleted)") },
			unknown: []string{"process 7"},
		},
		"no driver": {
			setup: func(m *gputest.Machine) {
				m.RunPlain(7)
				m.Fail(gputest.Fault{Op: gputest.OpState, Err: gputest.ErrHelperDied})
			},
			unknown: []string{"process 7", "helper died"},
		},
		"driver says something else": {
			setup: func(m *gputest.Machine) {
				m.RunPlain(7)
				m.Fail(gputest.Fault{Op: gputest.OpState, Err: gputest.ErrInvalidValue})
			},
			unknown: []string{"process 7", "CUDA_ERROR_INVALID_VALUE"},
		},
		"half a procfs": {
			setup: func(m *gputest.Machine) {
				m.RunPlain(7)
				if err := os.RemoveAll(filepath.Join(m.ProcRoot(), "7", "fd")); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(m.ProcRoot(), "7", "fd"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			},
			unknown: []string{"process 7", "not a directory"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := gputest.New(t, gpu0)
			m.Run(3, memory)
			test.setup(m)
			e := nvidia.NewEngine(m, nvidia.WithProcRoot(m.ProcRoot()))
			got, err := e.Processes(t.Context(), []int{7})
			if test.unknown == nil {
				if err != nil || len(got) != len(test.want) || len(got) > 0 && got[0] != test.want[0] {
					t.Errorf("got %v, %v; want %v", got, err, test.want)
				}
				return
			}
			if !errors.Is(err, gpuplugin.ErrUnknownState) || got != nil {
				t.Fatalf("got %v, %v; want ErrUnknownState", got, err)
			}
			for _, part := range test.unknown {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("err = %v, want %q in it", err, part)
				}
			}
		})
	}
}

func TestProcessesNamesEveryUnknownOne(t *testing.T) {
	m := gputest.New(t, gpu0)
	m.RunPlain(1, "/dev/nvidia0")
	m.Run(2, nil)
	m.RunPlain(3, "/dev/nvidiactl")
	e := nvidia.NewEngine(m, nvidia.WithProcRoot(m.ProcRoot()))
	_, err := e.Processes(t.Context(), []int{1, 2, 3})
	if err == nil || !strings.Contains(err.Error(), "process 1") || !strings.Contains(err.Error(), "process 3") ||
		strings.Contains(err.Error(), "process 2") {
		t.Errorf("err = %v", err)
	}
}

func TestPrepare(t *testing.T) {
	mig := gpu1
	mig.MIG = true
	sharing := errors.New("2 handles are open")
	tests := map[string]struct {
		setup func(*gputest.Machine)
		is    error
		text  []string
	}{
		"fine":           {setup: func(*gputest.Machine) {}},
		"locked is fine": {setup: func(m *gputest.Machine) { m.SetState(1, locked) }},
		"suspended is fine": {setup: func(m *gputest.Machine) {
			m.SetState(1, checkpointed)
		}},
		"every reason": {
			setup: func(m *gputest.Machine) {
				m.SetDriver("550.54.14")
				m.SetState(1, gpuplugin.StateFailed)
				m.Run(2, gputest.Memory{mig.UUID: 1})
			},
			is:   gpuplugin.ErrUnsupported,
			text: []string{"driver 550.54.14", "570", "process 1", "failed", "process 2", mig.UUID, "MIG"},
		},
		"no driver": {
			setup: func(m *gputest.Machine) {
				m.Fail(gputest.Fault{Op: gputest.OpInventory, Err: gputest.ErrHelperDied})
			},
			is:   gpuplugin.ErrUnavailable,
			text: []string{"list GPUs"},
		},
		"shared memory": {
			setup: func(*gputest.Machine) {},
			is:    sharing,
			text:  []string{"2 handles"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := gputest.New(t, gpu0, mig)
			m.Run(1, gputest.Memory{gpu0.UUID: 1 << 30})
			m.Run(2, gputest.Memory{gpu0.UUID: 1 << 30})
			test.setup(m)
			opts := []nvidia.Option{nvidia.WithProcRoot(m.ProcRoot())}
			if errors.Is(test.is, sharing) {
				opts = append(opts, nvidia.WithSharing(&watch{check: sharing}))
			}
			e := nvidia.NewEngine(m, opts...)
			err := e.Prepare(t.Context(), []gpuplugin.Process{{PID: 1, State: m.StateOf(1)}, {PID: 2, State: running}})
			if !errors.Is(err, test.is) {
				t.Fatalf("err = %v, want %v", err, test.is)
			}
			for _, part := range test.text {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("err = %v, want %q in it", err, part)
				}
			}
			if calls := m.Calls(); len(calls) > 0 {
				t.Errorf("Prepare changed something: %v", calls)
			}
		})
	}
}
