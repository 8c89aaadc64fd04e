// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/hetgpu/containerd-shim-hetgpu/runtime/criu"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/runc"
)

func TestNetworkLock(t *testing.T) {
	for name, tc := range map[string]struct {
		iptables, nftables, hostNetwork, tcp bool
		want                                 runc.NetworkLock // "" is an error
	}{
		"both":                             {iptables: true, nftables: true, want: runc.LockIPTables},
		"both, connections":                {iptables: true, nftables: true, tcp: true, want: runc.LockIPTables},
		"iptables":                         {iptables: true, tcp: true, want: runc.LockIPTables},
		"nftables":                         {nftables: true, tcp: true, want: runc.LockNFTables},
		"neither, no connection":           {want: runc.LockSkip},
		"neither, connections of the host": {hostNetwork: true, tcp: true, want: runc.LockSkip},
		"neither, connections of its own":  {tcp: true},
		"nftables, network of the host":    {nftables: true, hostNetwork: true, want: runc.LockNFTables},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("PATH", dir)
			program := func(name string, status int) string {
				path := filepath.Join(dir, name)
				if err := os.WriteFile(path, fmt.Appendf(nil, "#!/bin/sh\nexit %d\n", status), 0o700); err != nil {
					t.Fatal(err)
				}
				return path
			}
			if tc.iptables {
				program("iptables-restore", 0)
			}
			check := 1
			if tc.nftables {
				check = 0
			}
			tool := criu.Tool{Path: program("criu", check)}
			s := &service{}
			s.config.StateDir = filepath.Join(dir, "state")
			got, err := s.networkLock(t.Context(), &container{hostNetwork: tc.hostNetwork}, tool, tc.tcp)
			switch {
			case tc.want != "" && (err != nil || got != tc.want):
				t.Errorf("got %q, %v, want %q", got, err, tc.want)
			case tc.want == "" && (!errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "install iptables")):
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}
