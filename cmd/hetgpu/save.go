// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/spf13/cobra"

	"github.com/hetgpu/containerd-shim-hetgpu/cmd/hetgpu/checkpoint"
	"github.com/hetgpu/containerd-shim-hetgpu/cmd/hetgpu/restore"
)

// dialTimeout is how long containerd may take to answer.
const dialTimeout = 10 * time.Second

// connect returns a client of containerd's, and a context for its namespace.
func connect(ctx context.Context, address, namespace string) (*containerd.Client, context.Context, error) {
	// The client would wait for a socket to appear.
	if _, err := os.Stat(address); err != nil {
		return nil, nil, fmt.Errorf("containerd's socket (--address): %w", err)
	}
	client, err := containerd.New(address, containerd.WithTimeout(dialTimeout))
	if err != nil {
		return nil, nil, fmt.Errorf("containerd at %s: %w", address, err)
	}
	return client, namespaces.WithNamespace(ctx, namespace), nil
}

func checkpointCommand() *cobra.Command {
	var (
		asJSON bool
		opts   checkpoint.Options
	)
	cmd := &cobra.Command{
		Use:   "checkpoint CONTAINER --dir DIR | --oci DIR",
		Short: "Save a running container, and stop it only while its state is captured",
		Long: "Save a container of the runtime io.hetgpu.v2: its processes, its GPUs, and what it wrote to its root file system, all of one moment.\n" +
			"It stands still while that is captured, and goes on while it is written. The snapshot is complete when the command ends.\n" +
			"If it fails, or is interrupted, the container goes on and nothing is left.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (opts.Dir == "") == (opts.Layout == "") {
				return errors.New("name a directory for the snapshot, by --dir or by --oci")
			}
			if opts.Parent != "" && opts.Layout != "" {
				return errors.New("--parent can't be used with --oci: a layout has all that is needed in it")
			}
			if opts.Shim.KeepOnGPU && (!opts.Shim.Exit || opts.Layout != "" || opts.Parent != "") {
				return errors.New("--keep-on-gpu needs --exit and --dir, and no --parent: the memory stays for a restore of that directory on this host")
			}
			client, ctx, err := connect(cmd.Context(), opts.Address, opts.Namespace)
			if err != nil {
				return err
			}
			defer func() { _ = client.Close() }() // all was answered
			opts.ID, opts.Progress = args[0], checkpoint.Terminal(os.Stderr, asJSON)
			report, err := checkpoint.Run(ctx, client, opts)
			if err != nil {
				return fmt.Errorf("checkpoint %s: %w", opts.ID, err)
			}
			return show(cmd.OutOrStdout(), asJSON, report)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.Dir, "dir", "", "`directory` for the snapshot: empty, or to be made")
	flags.StringVar(&opts.Layout, "oci", "", "`directory` for an OCI layout of the snapshot and the image: empty, or to be made")
	flags.StringVar(&opts.Name, "name", "", "`name` of the checkpoint in the OCI layout (default containerd.io/checkpoint/CONTAINER:TIME)")
	flags.StringVar(&opts.Parent, "parent", "", "earlier `snapshot` of the container: what has not changed is left there, and it has to be kept")
	flags.BoolVar(&opts.NoRW, "no-rw", false, "leave out what the container wrote to its root file system")
	flags.BoolVar(&opts.Shim.Exit, "exit", false, "end the container when the snapshot is complete")
	flags.BoolVar(&opts.Shim.KeepOnGPU, "keep-on-gpu", false, "with --exit: leave device memory where it is, for a restore on this host (hetgpu drain writes it to files, hetgpu drop frees it)")
	flags.BoolVar(&opts.Shim.TCPEstablished, "tcp-established", false, "save established TCP connections")
	flags.BoolVar(&opts.Shim.UnixSockets, "ext-unix-sk", false, "save connections to unix sockets outside the container")
	flags.BoolVar(&opts.Shim.FileLocks, "file-locks", false, "save file locks")
	flags.BoolVar(&opts.Shim.Terminal, "shell-job", false, "save a program that has a terminal")
	flags.DurationVar(&opts.Shim.Timeout, "timeout", 0, "longest `time` for it (default that of the container or the configuration)")
	flags.BoolVar(&asJSON, "json", false, "print the result as JSON (docs/formats.md)")
	namespaceFlag(cmd, &opts.Namespace)
	addressFlag(cmd, &opts.Address)
	return cmd
}

func restoreCommand() *cobra.Command {
	var (
		asJSON, detach bool
		opts           restore.Options
	)
	cmd := &cobra.Command{
		Use:   "restore SNAPSHOT",
		Short: "Make a container of a snapshot, and let it go on",
		Long: "SNAPSHOT is a directory or an OCI layout that hetgpu checkpoint made. Its container is made anew, from the same image, which has to be present,\n" +
			"under its own name or another, as often as you like. If it fails, nothing is left.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if opts.IO.Attach && detach || opts.IO.Attach && asJSON {
				return errors.New("--attach can't be used with --detach or --json")
			}
			client, ctx, err := connect(cmd.Context(), opts.Address, opts.Namespace)
			if err != nil {
				return err
			}
			defer func() { _ = client.Close() }() // all was answered
			opts.Source = args[0]
			report, err := restore.Run(ctx, client, opts)
			if err != nil {
				return err
			}
			if report.Status != nil {
				if *report.Status != 0 {
					return exitStatus(*report.Status)
				}
				return nil
			}
			return show(cmd.OutOrStdout(), asJSON, report)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.ID, "id", "", "`name` of the new container (default that of the saved one)")
	flags.BoolVar(&opts.IO.Attach, "attach", false, "stay, with the container's standard streams and its exit status")
	flags.BoolVarP(&detach, "detach", "d", false, "end when the container goes on (the default)")
	flags.StringVar(&opts.IO.LogURI, "log-uri", "", "where its output goes, as for ctr run: file:///path or binary:///path")
	flags.BoolVar(&asJSON, "json", false, "print the result as JSON (docs/formats.md)")
	namespaceFlag(cmd, &opts.Namespace)
	addressFlag(cmd, &opts.Address)
	return cmd
}

// exitStatus is that of a container that was attached to.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }
