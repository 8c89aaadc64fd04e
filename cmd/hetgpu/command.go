// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/containerd/containerd/v2/defaults"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/spf13/cobra"

	"github.com/hetgpu/containerd-shim-hetgpu/cmd/hetgpu/doctor"
	"github.com/hetgpu/containerd-shim-hetgpu/cmd/hetgpu/inspect"
	"github.com/hetgpu/containerd-shim-hetgpu/cmd/hetgpu/kept"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/config"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/version"
)

// errReported means that what is wrong is in the output already.
var errReported = errors.New("see the report")

func command() *cobra.Command {
	root := &cobra.Command{
		Use:           "hetgpu",
		Short:         "Checkpoint and restore containers that use a GPU",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(checkpointCommand(), restoreCommand(), drainCommand(), dropCommand(), cdiCommand(), doctorCommand(), inspectCommand(),
		installCommand(), uninstallCommand(), versionCommand())
	return root
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "hetgpu", version.Version, runtime.Version(), runtime.GOARCH)
			return err
		},
	}
}

// addressFlag is containerd's socket, as ctr names it.
func addressFlag(cmd *cobra.Command, address *string) {
	cmd.Flags().StringVarP(address, "address", "a",
		cmp.Or(os.Getenv("CONTAINERD_ADDRESS"), defaults.DefaultAddress), "`socket` of containerd")
}

// namespaceFlag is containerd's namespace, as ctr names it.
func namespaceFlag(cmd *cobra.Command, namespace *string) {
	cmd.Flags().StringVarP(namespace, "namespace", "n",
		cmp.Or(os.Getenv("CONTAINERD_NAMESPACE"), namespaces.Default), "containerd's `namespace`")
}

func doctorCommand() *cobra.Command {
	var (
		asJSON                bool
		file, address, daemon string
	)
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Tell whether this host is fit, and what to do",
		Long: "Look at kernel, cgroups, containerd, runc, CRIU, drivers and devices: a line each, what was found and what to do.\n" +
			"The exit status is 1 if something failed. A host without a GPU does not fail.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file != "" {
				if err := os.Setenv(config.Env, file); err != nil {
					return err
				}
			}
			host, err := doctor.ThisHost(address)
			if err != nil {
				return err
			}
			host.ContainerdConfig = daemon
			report := doctor.Run(cmd.Context(), host, doctor.Checks, version.Version)
			if err := show(cmd.OutOrStdout(), asJSON, report); err != nil {
				return err
			}
			if !report.OK {
				return errReported
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON (docs/formats.md)")
	cmd.Flags().StringVar(&file, "config", "", "configuration `file`, instead of "+config.Path)
	cmd.Flags().StringVar(&daemon, "containerd-config", containerdConfig, "containerd's configuration `file`")
	addressFlag(cmd, &address)
	return cmd
}

func inspectCommand() *cobra.Command {
	var (
		asJSON bool
		opts   inspect.Options
	)
	cmd := &cobra.Command{
		Use:   "inspect SNAPSHOT",
		Short: "Tell what is in a snapshot, and verify it",
		Long: "SNAPSHOT is a directory, a tar (plain, gzip or zstd; containerd's or the kubelet's), or the reference of a containerd image.\n" +
			"The exit status is 1 if it must not be restored: a digest, a size or a name is not as the manifest says.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if os.Geteuid() == 0 { // a keeper speaks to nobody else
				opts.Keeper = kept.Status
			}
			opts.Key = func(id string) (*memfile.Key, error) {
				conf, err := config.Load()
				if err != nil {
					return nil, err
				}
				return memfile.KeyFor(id, conf.Encryption.KeyFile)
			}
			report, err := inspect.Inspect(cmd.Context(), args[0], opts)
			if report == nil {
				return err
			}
			if err := show(cmd.OutOrStdout(), asJSON, report); err != nil {
				return err
			}
			if err != nil {
				return errReported
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON (docs/formats.md)")
	cmd.Flags().BoolVar(&opts.NoVerify, "no-verify", false, "do not read the files to compare their digests")
	namespaceFlag(cmd, &opts.Namespace)
	addressFlag(cmd, &opts.Address)
	return cmd
}

// show writes a report for people or for programs.
func show(w io.Writer, asJSON bool, report interface{ Print(io.Writer) error }) error {
	if !asJSON {
		return report.Print(w)
	}
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	return out.Encode(report)
}
