// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	bootapi "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	"github.com/containerd/containerd/v2/pkg/shim"
	"github.com/containerd/typeurl/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// Run is the shim's program.
//
// Since 2.3 containerd and its shims agree on a start over a message on
// standard input and one on standard output. Older daemons pass flags, the
// environment and the packed options on standard input, and read JSON; the
// library refuses to start under them. So their way is translated here.
func Run(ctx context.Context) error {
	call, isStart := parse(os.Args[1:])
	if !isStart {
		shim.RunShim(ctx, New())
		return nil
	}
	input, err := io.ReadAll(io.LimitReader(os.Stdin, mostOptions))
	if err != nil {
		return fmt.Errorf("read the bootstrap parameters: %w", err)
	}
	old := !call.made(input)
	if old {
		if input, err = call.message(input); err != nil {
			return err
		}
	}
	if os.Stdin, err = filled(input); err != nil {
		return err
	}
	if !old {
		shim.RunShim(ctx, New())
		return nil
	}
	return answerInJSON(func() { shim.RunShim(ctx, New()) })
}

// call is a command line of containerd's.
type call struct {
	id, namespace, address string
	debug                  bool
}

// parse reads a command line as the shim library does, and tells whether it
// asks for a start. What it can't read is left to the library, for the error.
func parse(args []string) (call, bool) {
	var c call
	set := flag.NewFlagSet("", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.StringVar(&c.id, "id", "", "")
	set.StringVar(&c.namespace, "namespace", "", "")
	set.StringVar(&c.address, "address", "", "")
	set.BoolVar(&c.debug, "debug", false, "")
	for _, name := range []string{"publish-binary", "bundle", "socket", "debug-socket"} {
		set.String(name, "", "")
	}
	for _, name := range []string{"v", "version", "info"} {
		set.Bool(name, false, "")
	}
	err := set.Parse(args)
	return c, err == nil && set.Arg(0) == "start"
}

// made tells whether the input is the new protocol's message for this very
// call: packed options may happen to parse as one.
func (c call) made(input []byte) bool {
	var params bootapi.BootstrapParams
	return proto.Unmarshal(input, &params) == nil && params.GetInstanceID() == c.id && params.GetNamespace() == c.namespace
}

// message makes the new protocol's message of the old one's parts.
func (c call) message(input []byte) ([]byte, error) {
	params := &bootapi.BootstrapParams{
		InstanceID:             c.id,
		Namespace:              c.namespace,
		ContainerdGrpcAddress:  c.address,
		ContainerdTtrpcAddress: os.Getenv("TTRPC_ADDRESS"),
	}
	if c.debug {
		params.LogLevel = bootapi.LogLevel_LOG_LEVEL_DEBUG
	}
	if len(input) > 0 {
		var packed anypb.Any
		if err := proto.Unmarshal(input, &packed); err != nil {
			return nil, fmt.Errorf("standard input has neither bootstrap parameters nor options: %w", err)
		}
		v, err := typeurl.UnmarshalAny(&packed)
		if err != nil {
			return nil, fmt.Errorf("runtime options: %w", err)
		}
		opts, ok := v.(proto.Message)
		if !ok {
			return nil, fmt.Errorf("runtime options of type %s are not known", packed.GetTypeUrl())
		}
		if err := params.AddExtension(opts); err != nil {
			return nil, err
		}
	}
	return proto.Marshal(params)
}

// filled returns a file from which the data can be read.
func filled(data []byte) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	go func() {
		defer w.Close()
		// The reader is this process; if it goes, so does the writer.
		_, _ = w.Write(data)
	}()
	return r, nil
}

// answerInJSON runs start, which writes the new protocol's answer to standard
// output, and writes the old one's there instead. A start that fails ends the
// process.
func answerInJSON(start func()) error {
	stdout := os.Stdout
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	os.Stdout = w
	start()
	os.Stdout = stdout
	if err := w.Close(); err != nil {
		return err
	}
	// The answer is an address: it fits into the pipe, so start never waited.
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	var result bootapi.BootstrapResult
	if err := proto.Unmarshal(data, &result); err != nil {
		return fmt.Errorf("the start's answer: %w", err)
	}
	if result.GetAddress() == "" {
		return errors.New("the start's answer has no address")
	}
	// containerd 2.2, pkg/shim, BootstrapParams.
	return json.NewEncoder(stdout).Encode(struct {
		Version  int32  `json:"version"`
		Address  string `json:"address"`
		Protocol string `json:"protocol"`
	}{result.GetVersion(), result.GetAddress(), result.GetProtocol()})
}
