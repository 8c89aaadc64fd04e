// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"testing"

	bootapi "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	"github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"github.com/containerd/typeurl/v2"
	"google.golang.org/protobuf/proto"
)

func TestParse(t *testing.T) {
	for name, tc := range map[string]struct {
		args    []string
		want    call
		isStart bool
	}{
		"start":         {[]string{"-namespace", "n", "-id", "c", "-address", "/a", "-publish-binary", "p", "start"}, call{"c", "n", "/a", false}, true},
		"start, debug":  {[]string{"-debug", "-namespace", "n", "-id", "c", "start"}, call{"c", "n", "", true}, true},
		"delete":        {[]string{"-namespace", "n", "-id", "c", "-bundle", "/b", "delete"}, call{"c", "n", "", false}, false},
		"server":        {[]string{"-namespace", "n", "-id", "c"}, call{"c", "n", "", false}, false},
		"info":          {[]string{"-info"}, call{}, false},
		"unknown flags": {[]string{"-new", "start"}, call{}, false},
		"nothing":       {nil, call{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, isStart := parse(tc.args)
			if got != tc.want || isStart != tc.isStart {
				t.Errorf("got %+v %t, want %+v %t", got, isStart, tc.want, tc.isStart)
			}
		})
	}
}

// The old protocol's parts make the new one's message, options included.
func TestMessage(t *testing.T) {
	c := call{id: "c", namespace: "n", address: "/a", debug: true}
	t.Setenv("TTRPC_ADDRESS", "/t")
	for name, opts := range map[string]proto.Message{
		"none":    nil,
		"runc":    &options.Options{BinaryName: "crun"},
		"generic": &runtimeoptions.Options{ConfigBody: []byte(`BinaryName = "crun"`)},
	} {
		t.Run(name, func(t *testing.T) {
			var input []byte
			if opts != nil {
				packed, err := typeurl.MarshalAnyToProto(opts)
				if err != nil {
					t.Fatal(err)
				}
				if input, err = proto.Marshal(packed); err != nil {
					t.Fatal(err)
				}
			}
			if c.made(input) {
				t.Fatal("the old protocol's input was taken for the new one's")
			}
			data, err := c.message(input)
			if err != nil {
				t.Fatal(err)
			}
			if !c.made(data) || (call{id: "other", namespace: "n"}).made(data) {
				t.Error("the message is not known again as that of its call")
			}
			var params bootapi.BootstrapParams
			if err := proto.Unmarshal(data, &params); err != nil {
				t.Fatal(err)
			}
			if params.GetContainerdGrpcAddress() != "/a" || params.GetContainerdTtrpcAddress() != "/t" || params.GetLogLevel() != bootapi.LogLevel_LOG_LEVEL_DEBUG {
				t.Errorf("got %v", &params)
			}
			if opts == nil {
				return
			}
			dst := proto.Clone(opts)
			proto.Reset(dst)
			if found, err := params.FindExtension(dst); err != nil || !found || !proto.Equal(dst, opts) {
				t.Errorf("the options are %v, %t, %v", dst, found, err)
			}
		})
	}
	if _, err := c.message([]byte("\xff\xffnonsense")); err == nil {
		t.Error("nonsense was accepted")
	}
}
