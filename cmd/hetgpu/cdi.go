// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hetgpu/containerd-shim-hetgpu/cmd/hetgpu/cdi"
	"github.com/hetgpu/containerd-shim-hetgpu/cmd/hetgpu/doctor"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/config"
	"github.com/hetgpu/containerd-shim-hetgpu/oci"
)

func cdiCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cdi",
		Short: "Give containers GPUs with libhetcuda by --device " + cdi.Kind + "=" + cdi.All,
	}
	cmd.AddCommand(cdiGenerateCommand(), cdiInjectCommand())
	return cmd
}

func cdiGenerateCommand() *cobra.Command {
	var (
		file, output string
		host         cdi.Host
		roots        cdi.Roots
	)
	cmd := &cobra.Command{
		Use:   "generate",
		Short: "Write the CDI specification of this host's GPUs",
		Long: "Write a specification of the Container Device Interface: for each GPU its device nodes, the driver's libraries,\n" +
			"libhetcuda in front of them, and a hook. Run it again when the driver or our programs were updated.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file != "" {
				if err := os.Setenv(config.Env, file); err != nil {
					return err
				}
			}
			this, err := doctor.ThisHost("")
			if err != nil {
				return err
			}
			if this.ConfigErr != nil {
				return this.ConfigErr
			}
			host.Library = cmp.Or(host.Library, this.Config.Split.LibraryDir, filepath.Join(this.Bin, "..", "lib", "hetgpu"))
			host.Hook = cmp.Or(host.Hook, filepath.Join(this.Bin, oci.HookProgram))
			for _, path := range []*string{&host.Library, &host.Hook, &roots.Driver, &roots.Dev} {
				if *path, err = filepath.Abs(*path); err != nil {
					return err
				}
			}
			report, err := this.Inventory(cmd.Context())
			if err == nil && len(report.Errors) > 0 {
				err = errors.New(strings.Join(report.Errors, "; "))
			}
			if err != nil {
				return fmt.Errorf("ask the driver for its GPUs: %w", err)
			}
			if err := host.Look(cmd.Context(), report.Inventory, roots); err != nil {
				return err
			}
			spec, err := cdi.Spec(host)
			if err != nil {
				return err
			}
			if output == "" || output == "-" {
				return cdi.Print(spec, cmd.OutOrStdout())
			}
			return cdi.Write(spec, output)
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&output, "output", "o", "", "`file` to write, .yaml or .json: /etc/cdi/hetgpu.yaml is where runtimes look (default standard output)")
	flags.StringVar(&roots.Driver, "driver-root", "/", "`directory` below which the driver is installed")
	flags.StringVar(&roots.Dev, "dev-root", "/", "`directory` that has dev with the device nodes")
	flags.StringVar(&host.Library, "library-dir", "", "`directory` of libhetcuda (default as the shim finds it)")
	flags.StringVar(&host.Hook, "hook", "", "`path` of hetgpu-hook (default beside this program)")
	flags.StringSliceVar(&host.LibraryPath, "library-path", nil, "`directories` of containers that LD_LIBRARY_PATH has besides: CDI replaces an image's own")
	flags.BoolVar(&host.Userfaultfd, "userfaultfd", false, "give containers /dev/userfaultfd too, whatever runs them (docs/cdi.md)")
	flags.StringVar(&file, "config", "", "configuration `file`, instead of "+config.Path)
	return cmd
}

func cdiInjectCommand() *cobra.Command {
	var (
		bundle string
		dirs   []string
	)
	cmd := &cobra.Command{
		Use:   "inject DEVICE...",
		Short: "Give an OCI bundle's container CDI devices, for a plain runc",
		Long: "Edit config.json as containerd, podman and nerdctl do it for their containers. DEVICE is " + cdi.Kind + "=" + cdi.All + ", say.\n" +
			"A bundle that has a device of ours is left as it is.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := cdi.Inject(bundle, dirs, args)
			if errors.Is(err, cdi.ErrEdited) {
				_, err = fmt.Fprintln(cmd.ErrOrStderr(), err, "and was left as it is")
			}
			return err
		},
	}
	cmd.Flags().StringVarP(&bundle, "bundle", "b", ".", "`directory` of the bundle, as runc names it")
	cmd.Flags().StringSliceVar(&dirs, "cdi-spec-dirs", []string{"/etc/cdi", "/var/run/cdi"}, "`directories` of CDI specifications, as nerdctl names them")
	return cmd
}
