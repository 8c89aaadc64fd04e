// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package runc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"
)

// DefaultCRIUConfig is the file that runc passes to CRIU for a container
// without the annotation org.criu.config (runc 1.5,
// libcontainer/criu_linux.go).
const DefaultCRIUConfig = "/etc/criu/runc.conf"

// CRIUConfigName is the file in a bundle that carries the configuration for one
// operation, and is there as long as that is under way: it tells whoever cleans
// up that a shim was killed in the middle.
const CRIUConfigName = "hetgpu-criu.conf"

// NetworkLock is how CRIU keeps packets away from the connections that it
// saves.
type NetworkLock string

// The values of CRIU's option network-lock.
const (
	LockIPTables NetworkLock = "iptables"
	LockNFTables NetworkLock = "nftables"
	LockSkip     NetworkLock = "skip"
)

// ExternalMount is a mount that CRIU does not look into. At a dump Key is where
// it is in the container, and Value its name in the images; at a restore Key is
// the name, and Value what is mounted there.
type ExternalMount struct{ Key, Value string }

// ghostLimit is for programs that share memory by files in /dev/shm and delete them
// at once, as NCCL does with some tens of MiB for each pair of ranks. CRIU counts
// bytes in 32 bits (4.2, criu/include/cr_options.h).
const ghostLimit = "1G"

// CRIUConfig is what runc's flags can't say, for one operation. CRIU reads it
// after runc's request, and it wins.
type CRIUConfig struct {
	// NetworkLock is for a dump; a restore takes it from the images.
	NetworkLock NetworkLock
	// Timeout bounds CRIU's own waits, by default 10 s (CRIU 4.2,
	// criu/include/cr_options.h, DEFAULT_TIMEOUT).
	Timeout time.Duration
	// TCPEstablished and TCPClose are the two ways with TCP connections.
	TCPEstablished, TCPClose bool
	ExternalUnixSockets      bool
	FileLocks                bool
	// DeletedFiles is for a dump, of files that are in use and have been deleted: one
	// that has another name gets one beside it, which a restore takes away; of one
	// that has none up to ghostLimit is in the images. CRIU refuses the former
	// otherwise, and of the latter all above 1 MiB.
	DeletedFiles bool
	Terminal     bool
	// AllowUprobes is for processes that have hit a probe: the kernel has left
	// a mapping in them. CRIU knows it since 4.2.
	AllowUprobes bool
	// ExternalMounts are those of which runc knows nothing.
	ExternalMounts []ExternalMount
	// LogLevel is CRIU's verbosity, 0 for the one that runc asks for.
	LogLevel int
	// User is the user's own file; its lines come last and win over ours. It
	// may be missing, as for CRIU.
	User string
}

// Write writes the configuration file.
func (c CRIUConfig) Write(name string) error {
	var b strings.Builder
	b.WriteString("# Written by the hetGPU shim for one operation.\n")
	if c.NetworkLock != "" && c.NetworkLock != LockIPTables {
		fmt.Fprintln(&b, "network-lock", c.NetworkLock)
	}
	if c.Timeout > 0 {
		fmt.Fprintln(&b, "timeout", max(1, int(c.Timeout.Seconds())))
	}
	if c.LogLevel > 0 {
		fmt.Fprintln(&b, "verbosity", strconv.Itoa(c.LogLevel))
	}
	for _, flag := range []struct {
		name string
		on   bool
	}{
		{"tcp-established", c.TCPEstablished},
		{"tcp-close", c.TCPClose},
		{"ext-unix-sk", c.ExternalUnixSockets},
		{"file-locks", c.FileLocks},
		{"link-remap", c.DeletedFiles},
		{"ghost-limit " + ghostLimit, c.DeletedFiles},
		{"shell-job", c.Terminal},
		{"allow-uprobes", c.AllowUprobes},
	} {
		if flag.on {
			b.WriteString(flag.name + "\n")
		}
	}
	for _, m := range c.ExternalMounts {
		// CRIU splits lines at white space, and ends them at a #.
		if strings.ContainsAny(m.Key+m.Value, " \t\r\n\"'#\\[]") {
			return fmt.Errorf("write the CRIU configuration: no name for a mount: %q, %q", m.Key, m.Value)
		}
		fmt.Fprintf(&b, "external mnt[%s]:%s\n", m.Key, m.Value)
	}
	if c.User != "" {
		user, err := os.ReadFile(c.User)
		switch {
		case err == nil:
			fmt.Fprintf(&b, "# From %s:\n%s\n", strconv.Quote(c.User), user)
		case !errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("read the user's CRIU configuration: %w", err)
		}
	}
	if err := os.WriteFile(name, []byte(b.String()), 0o600); err != nil {
		return fmt.Errorf("write the CRIU configuration: %w", err)
	}
	return nil
}
