// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/hetgpu/containerd-shim-hetgpu/cmd/hetgpu/kept"
)

func drainCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "drain SNAPSHOT",
		Short: "Write the device memory that a snapshot has left on the GPU to its files",
		Long: "SNAPSHOT is a directory that hetgpu checkpoint --exit --keep-on-gpu made on this host. It is an ordinary snapshot then, and the GPU is free.\n" +
			"If it fails, or is interrupted, the memory stays where it is.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return onThisHost(cmd, asJSON, "drain "+args[0], func(ctx context.Context, h *kept.Host) (printer, error) { return h.Drain(ctx, args[0]) })
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON (docs/formats.md)")
	return cmd
}

func dropCommand() *cobra.Command {
	var (
		asJSON bool
		keeper string
	)
	cmd := &cobra.Command{
		Use:   "drop SNAPSHOT | --keeper ID",
		Short: "Free the device memory that a snapshot has left on the GPU",
		Long: "SNAPSHOT is a directory that hetgpu checkpoint --exit --keep-on-gpu made on this host. It can't be restored any more then.\n" +
			"hetgpu doctor lists what is kept, also where the directory is not there any more.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (len(args) == 0) == (keeper == "") {
				return errors.New("name a snapshot, or a keeper by --keeper")
			}
			return onThisHost(cmd, asJSON, "drop", func(ctx context.Context, h *kept.Host) (printer, error) {
				if keeper != "" {
					return h.DropKeeper(ctx, keeper)
				}
				return h.Drop(ctx, args[0])
			})
		},
	}
	cmd.Flags().StringVar(&keeper, "keeper", "", "`name` of the keeper, instead of a snapshot")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON (docs/formats.md)")
	return cmd
}

type printer interface{ Print(w io.Writer) error }

// onThisHost does something about kept memory and shows its result.
func onThisHost(cmd *cobra.Command, asJSON bool, what string, do func(context.Context, *kept.Host) (printer, error)) error {
	host, err := kept.ThisHost()
	if err != nil {
		return err
	}
	result, err := do(cmd.Context(), host)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return show(cmd.OutOrStdout(), asJSON, result)
}
