// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package runcopts_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/hetgpu/containerd-shim-hetgpu/shim/runcopts"
)

func TestDecode(t *testing.T) {
	file := filepath.Join(t.TempDir(), "options.toml")
	if err := os.WriteFile(file, []byte("Root = \"/r\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		in    proto.Message
		want  *options.Options
		wrong string
	}{
		"none":         {nil, &options.Options{}, ""},
		"runc's":       {&options.Options{BinaryName: "b", SystemdCgroup: true}, &options.Options{BinaryName: "b", SystemdCgroup: true}, ""},
		"body":         {&runtimeoptions.Options{ConfigBody: []byte("BinaryName = \"b\"\nSystemdCgroup = true\nIoUid = 7\n")}, &options.Options{BinaryName: "b", SystemdCgroup: true, IoUid: 7}, ""},
		"path":         {&runtimeoptions.Options{ConfigPath: file}, &options.Options{Root: "/r"}, ""},
		"body wins":    {&runtimeoptions.Options{ConfigPath: file, ConfigBody: []byte(`Root = "/other"`)}, &options.Options{Root: "/other"}, ""},
		"neither":      {&runtimeoptions.Options{TypeUrl: "x"}, &options.Options{}, ""},
		"unknown key":  {&runtimeoptions.Options{ConfigBody: []byte("Nonsense = 1")}, nil, "ConfigBody"},
		"not TOML":     {&runtimeoptions.Options{ConfigBody: []byte("]")}, nil, "ConfigBody"},
		"missing file": {&runtimeoptions.Options{ConfigPath: file + "x"}, nil, file + "x"},
	} {
		t.Run(name, func(t *testing.T) {
			var packed *anypb.Any
			if tc.in != nil {
				var err error
				if packed, err = anypb.New(tc.in); err != nil {
					t.Fatal(err)
				}
			}
			got, err := runcopts.Decode(packed)
			if tc.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wrong) {
					t.Fatalf("error is %v, want one with %q", err, tc.wrong)
				}
				return
			}
			if err != nil || !proto.Equal(got, tc.want) {
				t.Fatalf("got %v, %v, want %v", got, err, tc.want)
			}
			again, err := runcopts.Encode(got)
			if err != nil {
				t.Fatal(err)
			}
			if back, err := runcopts.Decode(again); err != nil || !proto.Equal(back, tc.want) {
				t.Errorf("encoded and decoded it is %v, %v", back, err)
			}
		})
	}
	other, err := anypb.New(&emptypb.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	other.Value = []byte{8, 1}
	if _, err := runcopts.Decode(other); !errdefs.IsInvalidArgument(err) {
		t.Errorf("error is %v, want an invalid argument", err)
	}
}
