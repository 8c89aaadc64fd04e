// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"slices"
	"testing"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

func TestExecEnvironment(t *testing.T) {
	const added = `{"env":["A=B","LD_LIBRARY_PATH=/run/hetgpu/lib","HETCUDA_CONTROL=/run/hetgpu/control"]}`
	for name, tc := range map[string]struct {
		injected *injected
		process  string // "" for none
		want     []string
		fails    bool
	}{
		"in front of a driver": {&injected{}, `{"env":["A=B"]}`, []string{"exec " + added}, false},
		"in front of nothing":  {nil, `{"env":["A=B"]}`, []string{`exec {"env":["A=B"]}`}, false},
		"without a spec":       {&injected{}, "", []string{"exec "}, false},
		"not understood":       {&injected{}, `{"env":`, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := &container{id: "c", injected: tc.injected}
			s, inner := newService(c)
			r := &taskapi.ExecProcessRequest{ID: "c", ExecID: "e"}
			if tc.process != "" {
				r.Spec = &anypb.Any{TypeUrl: "of/a/process", Value: []byte(tc.process)}
			}
			_, err := s.Exec(t.Context(), r)
			if (err != nil) != tc.fails || !slices.Equal(inner.calls, tc.want) {
				t.Errorf("error %v, calls %q, want %q", err, inner.calls, tc.want)
			}
			if r.Spec != nil && r.Spec.TypeUrl != "of/a/process" {
				t.Errorf("its type is %s", r.Spec.TypeUrl)
			}
		})
	}
}
