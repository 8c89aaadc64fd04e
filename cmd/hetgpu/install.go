// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/hetgpu/containerd-shim-hetgpu/cmd/hetgpu/install"
)

// containerdConfig is containerd's configuration file.
const containerdConfig = "/etc/containerd/config.toml"

func installCommand() *cobra.Command {
	var (
		o      install.Options
		dryRun bool
	)
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Tell containerd's CRI of the runtime, by a drop-in file",
		Long: "Write a drop-in file with a runtime handler for Kubernetes into the directory that containerd's configuration\n" +
			"imports. Files of others are not changed: if the configuration imports none, it is said what to add to it. Each change\n" +
			"is a line on standard output; without any, all is as it should be. ctr and nerdctl need none of this.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Shim == "" {
				self, err := os.Executable()
				if err != nil {
					return err
				}
				o.Shim = filepath.Join(filepath.Dir(self), "containerd-shim-hetgpu-v2")
			}
			if _, err := os.Stat(o.Shim); err != nil || !filepath.IsAbs(o.Shim) {
				return fmt.Errorf("the shim is to be an absolute path (%v): `make install` installs it", err) //nolint:errorlint // there may be none
			}
			plan, err := install.Install(o)
			if err != nil {
				return err
			}
			return carryOut(cmd, plan, dryRun)
		},
	}
	configFlags(cmd, &o.Config, &dryRun)
	cmd.Flags().StringVar(&o.Handler, "handler", "hetgpu", "`name` of the handler, which a RuntimeClass names")
	cmd.Flags().StringVar(&o.Shim, "shim", "", "`path` of the shim (default beside this program)")
	cmd.Flags().StringVar(&o.Binary, "runtime-binary", "", "OCI runtime that the shim runs, instead of runc (`path`)")
	return cmd
}

func uninstallCommand() *cobra.Command {
	var (
		config        string
		dryRun, force bool
	)
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove what install wrote",
		Long:  "Remove the drop-in file. It is refused while containers run with our shim.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			plan, err := install.Uninstall(config)
			if err != nil {
				return err
			}
			if !force {
				if err := install.InUse("/proc"); err != nil {
					return fmt.Errorf("%w: end them, or use --force", err)
				}
			}
			return carryOut(cmd, plan, dryRun)
		},
	}
	configFlags(cmd, &config, &dryRun)
	cmd.Flags().BoolVar(&force, "force", false, "also while containers run: they go on, and are not cleaned up by containerd")
	return cmd
}

func configFlags(cmd *cobra.Command, config *string, dryRun *bool) {
	cmd.Flags().StringVar(config, "containerd-config", containerdConfig, "containerd's configuration `file`")
	cmd.Flags().BoolVar(dryRun, "dry-run", false, "say what would be done, and do nothing")
}

// carryOut does what is planned, and says so.
func carryOut(cmd *cobra.Command, plan install.Plan, dryRun bool) error {
	if plan.Empty() {
		_, err := fmt.Fprintln(cmd.ErrOrStderr(), "nothing to do")
		return err
	}
	if !dryRun {
		if err := plan.Apply(); err != nil {
			return err
		}
	}
	say(cmd.OutOrStdout(), plan, dryRun)
	if !dryRun {
		fmt.Fprintln(cmd.ErrOrStderr(), "restart containerd now: containers go on meanwhile")
	}
	return nil
}

func say(w io.Writer, plan install.Plan, dryRun bool) {
	for _, f := range plan.Write {
		fmt.Fprintln(w, "write", f.Name)
		if dryRun {
			fmt.Fprint(w, f.Text)
		}
	}
	for _, name := range plan.Remove {
		fmt.Fprintln(w, "remove", name)
	}
}
