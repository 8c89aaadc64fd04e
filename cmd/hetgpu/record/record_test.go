// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"reflect"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"google.golang.org/protobuf/types/known/anypb"
)

func TestRoundTrip(t *testing.T) {
	options, spec := pack(&anypb.Any{TypeUrl: "o", Value: []byte("\x0a\x01<")}), pack(&anypb.Any{TypeUrl: "s", Value: []byte(`{"new":1,"hostname":"<c>"}`)})
	want := &Container{
		Version: version, ID: "c", Labels: labels(map[string]string{"mine": "1", "nerdctl/name": "c", "io.cri-containerd.kind": "container"}),
		Image:       &Image{Name: "i:1", Target: ocispec.Descriptor{MediaType: "m", Digest: digest.FromString("i"), Size: 1}},
		Snapshotter: "overlayfs", Parent: "p", SnapshotLabels: map[string]string{"a": "b"}, Spec: spec,
	}
	want.Runtime.Name, want.Runtime.Options = "io.hetgpu.v2", &options
	data, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := decode(data)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v in %s", got, err, data)
	}
	if len(got.Labels) != 1 || string(got.Spec.Proto().GetValue()) != `{"new":1,"hostname":"<c>"}` || string(got.Runtime.Options.Proto().GetValue()) != "\x0a\x01<" {
		t.Errorf("%s", data)
	}
}

func TestDecodeRefuses(t *testing.T) {
	for text, says := range map[string]string{
		`{`: "", `{"version":2}`: "version 2", `{"version":1}`: "no id",
		`{"version":1,"id":"c","spec":{"type_url":"s"},"runtime":{"name":"r"},"image":{"name":"i","target":{"digest":"../x"}}}`: "image",
	} {
		if _, err := decode([]byte(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
