// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package testbed starts a private containerd with real parts below it (runc,
// CRIU, ctr, nerdctl), and tells afterwards what was left behind.
//
// It knows nothing of the testing package, so that tests, benchmarks, the demo
// and the suite for hosts with a GPU share it. Nothing of the host's own
// containerd, if there is one, is used or touched: every daemon has its own
// directories, and a namespace of its own keeps cgroups and runc's state apart.
package testbed

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
)

const (
	// startTimeout is generous: the first start of a daemon creates its
	// databases on a disk that may be busy.
	startTimeout = 30 * time.Second
	// markerEnv is inherited by the shims, runc, CRIU, loggers and helpers of
	// a daemon, but not by containers.
	markerEnv = "HETGPU_TESTBED"
	// maxDirLen leaves room for socket names in the 107 bytes of a path of a
	// unix socket.
	maxDirLen = 64
)

// Config says what a daemon is made of.
type Config struct {
	// Path are the directories in which programs are looked for, before
	// the PATH of this process: containerd, its shims, ctr, nerdctl, runc, criu.
	Path []string
	// Env is added to the daemon's environment, and so to the shims'.
	Env []string
	// Dir is where the daemon's directory is made; empty for the default of
	// temporary files. It has to be short, and on a disk that overlayfs can use.
	Dir string
	// CRI makes the daemon serve a kubelet; nil for not.
	CRI *CRI
}

// Daemon is a running containerd.
type Daemon struct {
	// Dir has everything of this daemon, and is removed by Stop.
	Dir string
	// Namespace is unique to this daemon, unless that serves the kubelet.
	Namespace string
	// Snapshotter is overlayfs where that works, else native.
	Snapshotter string
	// Client talks to the daemon, in its Namespace.
	Client *containerd.Client

	path    string
	env     []string
	process *server
	// marker is unique to this daemon: what it starts has it in its environment,
	// and its containers are in cgroups below it.
	marker string
	cri    *CRI
	// ids are those of the containers of pods that were removed.
	ids []string
	// told are the leftovers that a caller of Leftovers knows of.
	told map[string]bool
}

// Start starts a daemon and waits until it serves. On error nothing is left,
// and the error has the end of the daemon's log.
func Start(ctx context.Context, cfg Config) (_ *Daemon, err error) {
	dir, err := os.MkdirTemp(cfg.Dir, "hg")
	if err != nil {
		return nil, err
	}
	d := &Daemon{Dir: dir, marker: "hg-" + randomHex(), cri: cfg.CRI, told: map[string]bool{}}
	d.Namespace = d.marker
	if d.cri != nil {
		d.Namespace = criNamespace
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("start containerd: %w\n%s", err, d.LogTail())
			_ = os.RemoveAll(dir)
		}
	}()
	if len(dir) > maxDirLen {
		return nil, fmt.Errorf("%s is too long for unix sockets, set TMPDIR", dir)
	}
	d.path = strings.Join(append(append([]string{}, cfg.Path...), os.Getenv("PATH")), ":")
	// Temporary files in a directory of our own, so that none is left unseen.
	d.env = append(withoutEnv(os.Environ(), "PATH", "TMPDIR", "XDG_RUNTIME_DIR", markerEnv),
		"PATH="+d.path, "TMPDIR="+d.TempDir(), markerEnv+"="+d.marker)
	d.env = append(d.env, cfg.Env...)
	if err := os.Mkdir(d.TempDir(), 0o700); err != nil {
		return nil, err
	}
	d.Snapshotter = pickSnapshotter(dir)
	if d.cri != nil {
		if err := d.writeNetwork(); err != nil {
			return nil, err
		}
	}
	if err := d.writeConfig(); err != nil {
		return nil, err
	}
	if err := d.startProcess(); err != nil {
		return nil, err
	}
	if err := d.connect(ctx); err != nil {
		d.process.kill()
		return nil, err
	}
	return d, nil
}

// Address is the path of the daemon's socket.
func (d *Daemon) Address() string { return filepath.Join(d.Dir, "c.sock") }

// LogPath is the log of the daemon and of its shims.
func (d *Daemon) LogPath() string { return filepath.Join(d.Dir, "containerd.log") }

// TempDir is where the daemon, its shims and the programs that Exec runs put
// temporary files.
func (d *Daemon) TempDir() string { return filepath.Join(d.Dir, "tmp") }

// LogTail returns the end of the log.
func (d *Daemon) LogTail() string {
	const most = 16 << 10
	log, err := os.ReadFile(d.LogPath())
	if err != nil {
		return err.Error()
	}
	return string(log[max(0, len(log)-most):])
}

// Context returns a context for the Client in the daemon's namespace.
func (d *Daemon) Context(ctx context.Context) context.Context {
	return namespaces.WithNamespace(ctx, d.Namespace)
}

// Lookup finds a program as the daemon finds it.
func (d *Daemon) Lookup(program string) (string, error) {
	for _, dir := range filepath.SplitList(d.path) {
		file := filepath.Join(dir, program)
		if st, err := os.Stat(file); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return file, nil
		}
	}
	return "", fmt.Errorf("%s: %w in %s: run 'make setup build'", program, exec.ErrNotFound, d.path)
}

// Restart ends the daemon, with the given signal, and starts it again on the
// same directories. Its shims and containers go on.
func (d *Daemon) Restart(ctx context.Context, sig syscall.Signal) error {
	if err := d.end(sig); err != nil {
		return err
	}
	if err := d.startProcess(); err != nil {
		return err
	}
	return d.connect(ctx)
}

// Stop ends the daemon, kills what it left, and removes its directory. What
// was left is an error that names each thing.
func (d *Daemon) Stop(ctx context.Context) error {
	left := d.Leftovers(ctx)
	err := d.end(syscall.SIGTERM)
	d.killMarked()
	return errors.Join(left, err, d.unmountAll(), d.removeCgroups(), os.RemoveAll(d.Dir))
}

func (d *Daemon) writeConfig() error {
	disabled, served := d.criConfig()
	return os.WriteFile(d.configPath(), fmt.Appendf(nil, `version = 3
root = %q
state = %q
# Of no use here, and slow to start or with paths outside our directory.
disabled_plugins = [
  %s
  "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.blockfile",
  "io.containerd.snapshotter.v1.erofs", "io.containerd.differ.v1.erofs",
  "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing",
]
[grpc]
  address = %q
[ttrpc]
  address = %q
[debug]
  level = "debug"
%s`, filepath.Join(d.Dir, "root"), filepath.Join(d.Dir, "state"), disabled, d.Address(), d.Address()+".ttrpc", served), 0o600)
}

func (d *Daemon) configPath() string { return filepath.Join(d.Dir, "config.toml") }

func (d *Daemon) startProcess() error {
	program, err := d.Lookup("containerd")
	if err != nil {
		return err
	}
	// Not CommandContext: the daemon outlives the context of its start.
	cmd := exec.Command(program, "--config", d.configPath())
	cmd.Env = d.env
	d.process, err = serve(cmd, d.LogPath())
	return err
}

// connect waits until the daemon answers, or has exited.
func (d *Daemon) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return Eventually(ctx, "containerd serves", func() error {
		if err := d.process.alive(); err != nil {
			return err
		}
		if _, err := os.Stat(d.Address()); err != nil {
			return err
		}
		client, err := containerd.New(d.Address(), containerd.WithDefaultNamespace(d.Namespace), containerd.WithTimeout(time.Second))
		if err != nil {
			return err
		}
		if _, err := client.Version(ctx); err != nil {
			_ = client.Close()
			return err
		}
		d.Client = client
		return nil
	})
}

// end closes the client and ends the daemon's process.
func (d *Daemon) end(sig syscall.Signal) error {
	return errors.Join(d.Client.Close(), d.process.end(sig))
}

func randomHex() string {
	b := make([]byte, 4)
	// Read never fails (crypto/rand since Go 1.24).
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}

func withoutEnv(env []string, names ...string) []string {
	kept := make([]string, 0, len(env))
next:
	for _, e := range env {
		for _, name := range names {
			if strings.HasPrefix(e, name+"=") {
				continue next
			}
		}
		kept = append(kept, e)
	}
	return kept
}
