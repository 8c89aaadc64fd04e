// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package runcopts understands both forms in which containerd sends a runtime's
// options: runc's own message, which it sends to io.containerd.runc.v2 and
// nerdctl to everybody, and the generic one with a TOML text, which its CRI and
// `ctr --runtime-config-path` send to a runtime of any other name. The stock
// task service takes the first only, and panics on the second.
package runcopts

import (
	"bytes"
	"fmt"
	"os"

	"github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"github.com/containerd/errdefs"
	"github.com/containerd/typeurl/v2"
	"github.com/pelletier/go-toml/v2"
	"google.golang.org/protobuf/types/known/anypb"
)

// Decode returns the options as runc's; without any, empty ones. In TOML the
// keys are the names of the message's fields: BinaryName, Root, SystemdCgroup,
// NoPivotRoot, ... as in containerd's own configuration.
func Decode(packed *anypb.Any) (*options.Options, error) {
	if len(packed.GetValue()) == 0 {
		return &options.Options{}, nil
	}
	v, err := typeurl.UnmarshalAny(packed)
	if err != nil {
		return nil, fmt.Errorf("runtime options: %w", err)
	}
	switch o := v.(type) {
	case *options.Options:
		return o, nil
	case *runtimeoptions.Options:
		return fromTOML(o)
	}
	return nil, fmt.Errorf("runtime options of type %s are not known: %w", packed.GetTypeUrl(), errdefs.ErrInvalidArgument)
}

// Encode packs options for the stock task service.
func Encode(o *options.Options) (*anypb.Any, error) {
	return typeurl.MarshalAnyToProto(o)
}

// fromTOML reads the text that the message carries or names; containerd sets
// one of the two.
func fromTOML(generic *runtimeoptions.Options) (*options.Options, error) {
	text, where := generic.GetConfigBody(), "ConfigBody"
	if path := generic.GetConfigPath(); len(text) == 0 && path != "" {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("runtime options: %w", err)
		}
		text, where = data, path
	}
	var fields fields
	if err := toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields().Decode(&fields); err != nil {
		return nil, fmt.Errorf("runtime options in %s: %w: %w", where, err, errdefs.ErrInvalidArgument)
	}
	return &options.Options{
		NoPivotRoot:   fields.NoPivotRoot,
		NoNewKeyring:  fields.NoNewKeyring,
		ShimCgroup:    fields.ShimCgroup,
		IoUid:         fields.IOUID,
		IoGid:         fields.IOGID,
		BinaryName:    fields.BinaryName,
		Root:          fields.Root,
		SystemdCgroup: fields.SystemdCgroup,
		CriuImagePath: fields.CriuImagePath,
		CriuWorkPath:  fields.CriuWorkPath,
	}, nil
}

// fields has the names of options.Options (containerd 2.4,
// api/types/runc/options/oci.proto), without the message's inner ones, which a
// text must not reach.
type fields struct {
	NoPivotRoot    bool
	NoNewKeyring   bool
	ShimCgroup     string
	IOUID          uint32 `toml:"IoUid"`
	IOGID          uint32 `toml:"IoGid"`
	BinaryName     string
	Root           string
	CriuPath       string // gone in containerd 2.0, and still in users' files
	SystemdCgroup  bool
	CriuImagePath  string
	CriuWorkPath   string
	TaskAPIAddress string `toml:"TaskApiAddress"`
	TaskAPIVersion uint32 `toml:"TaskApiVersion"`
}
