// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package kube

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/standin"
	"github.com/hetgpu/containerd-shim-hetgpu/integration/testbed"
)

const (
	// testTimeout bounds each test, so that one that hangs is named.
	testTimeout = 4 * time.Minute
	// image is what pods of tests run: busybox and the tests' programs.
	image = "test.hetgpu.local/programs:1"
	// sandboxImage waits to be killed.
	sandboxImage = "test.hetgpu.local/pause:1"
)

// node is a machine as Kubernetes sees it: a kubelet and its containerd.
type node struct {
	*testbed.Kubelet
	d *testbed.Daemon
	// cluster is nil for a node that is in none.
	cluster *testbed.ControlPlane
	// setup is what distinguishes it.
	setup setup
	gpu   *standin.Machine
	// programs has the stand-ins for a GPU; hetgpu what the shims' configuration
	// names.
	programs, hetgpu string
	// served are the resources that its kubelet gives away.
	served map[string]bool
	// err is why it could not be started.
	err error
}

// setup is one way to use the shim.
type setup struct {
	name string
	// old says that it is the older containerd.
	old bool
	// inCluster says that there is an API server.
	inCluster bool
	// asRunc says that containerd takes the handler for runc's, with our program.
	asRunc bool
}

// ours is the name of our runtime.
const ours = "io.hetgpu.v2"

var (
	// setups have both versions of containerd first.
	setups = []setup{{name: "ours"}, {name: "ours-on-old", old: true}, {name: "as-runc", asRunc: true}}

	// nodes are started when a test needs them.
	nodes     = map[string]*node{}
	installed *testbed.Installed
	scratch   string
)

func TestMain(m *testing.M) {
	status, err := runTests(context.Background(), m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "kube:", err)
		status = 1
	}
	os.Exit(status)
}

func runTests(ctx context.Context, m *testing.M) (status int, err error) {
	if os.Getuid() != 0 {
		return 1, errors.New("these tests start containers: run them as root")
	}
	if installed, err = testbed.FindInstalled("../.."); err != nil {
		return 1, err
	}
	if scratch, err = os.MkdirTemp("", "hg-kube"); err != nil {
		return 1, err
	}
	defer os.RemoveAll(scratch)
	defer func() {
		for _, n := range nodes {
			if stopErr := n.stop(ctx); stopErr != nil {
				status, err = 1, errors.Join(err, fmt.Errorf("%s: %w", n.setup.name, stopErr))
			}
		}
	}()
	return m.Run(), nil
}

// each runs a test on every node.
func each(t *testing.T, test func(ctx context.Context, t *testing.T, n *node)) {
	t.Helper()
	eachOf(t, setups, test)
}

// eachOf runs a test on some nodes.
func eachOf(t *testing.T, setups []setup, test func(ctx context.Context, t *testing.T, n *node)) {
	t.Helper()
	for _, s := range setups {
		t.Run(s.name, func(t *testing.T) { on(t, s, test) })
	}
}

// on runs a test on one node.
func on(t *testing.T, s setup, test func(ctx context.Context, t *testing.T, n *node)) {
	t.Helper()
	if runtime := os.Getenv("HETGPU_TEST_RUNTIME"); runtime != "" && runtime != ours {
		t.Skipf("%s is under test, and this is about our own", runtime)
	}
	// It outlives the test.
	n, err := theNode(context.WithoutCancel(t.Context()), s)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), testTimeout, fmt.Errorf("%s took more than %s", t.Name(), testTimeout))
	t.Cleanup(cancel)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("end of the kubelet's log:\n%s\nend of containerd's:\n%s", n.LogTail(), n.d.LogTail())
			if n.cluster != nil {
				t.Log(n.cluster.LogTail())
			}
		}
	})
	test(ctx, t, n)
}

// theNode returns the node of a setup, and starts it when it is first asked for. One
// that could not be started is not tried again: each test of it fails with the reason.
func theNode(ctx context.Context, s setup) (*node, error) {
	if n := nodes[s.name]; n != nil {
		return n, n.err
	}
	n := &node{setup: s, hetgpu: filepath.Join(scratch, s.name), served: map[string]bool{}}
	env, err := n.install()
	if err != nil {
		return nil, err
	}
	version := installed.Containerds()[0]
	more := fmt.Sprintf("cdi_spec_dirs = [%q]", n.cdi())
	if s.old {
		version = installed.Containerds()[1]
		// containerd 2.2 restores images of checkpoints itself, if it is told to.
		more += "\nenable_experimental_restore_via_create = true"
	}
	path, err := installed.KubePath(version)
	if err != nil {
		return nil, err
	}
	table, err := documented()
	if err != nil {
		return nil, err
	}
	if s.asRunc {
		table = strings.Replace(table, `"`+ours+`"`, fmt.Sprintf("%q\n  runtime_path = %q", "io.containerd.runc.v2", filepath.Join(path[0], "containerd-shim-hetgpu-v2")), 1)
	}
	n.d, err = testbed.Start(ctx, testbed.Config{Path: path, Env: env, CRI: &testbed.CRI{
		SandboxImage: sandboxImage, Handler: testbed.Handler{Name: "hetgpu", Table: table}, Subnet: byte(100 + len(nodes)), More: more,
	}})
	if err != nil {
		return nil, err
	}
	nodes[s.name] = n
	n.err = n.start(ctx)
	return n, n.err
}

// start starts what a node has beside containerd.
func (n *node) start(ctx context.Context) (err error) {
	if err := n.configure(); err != nil {
		return err
	}
	if err := n.importImages(ctx); err != nil {
		return err
	}
	if n.setup.inCluster {
		if n.cluster, err = n.d.StartControlPlane(ctx); err != nil {
			return err
		}
	}
	n.Kubelet, err = n.d.StartKubelet(ctx, n.cluster)
	return err
}

// install makes the node's GPUs, and returns the environment by which shims find them
// and their configuration.
func (n *node) install() (env []string, err error) {
	if n.gpu, err = standin.New(filepath.Join(n.hetgpu, "machine"), standin.H200s(2, 1)); err != nil {
		return nil, err
	}
	n.programs = filepath.Join(n.hetgpu, "programs")
	if err := standin.Install(n.programs, filepath.Join(n.hetgpu, "libhetcuda"), "../../bin"); err != nil {
		return nil, err
	}
	if err := n.installDriver(); err != nil {
		return nil, err
	}
	if err := os.Mkdir(n.snapshots(), 0o700); err != nil {
		return nil, err
	}
	return append(n.gpu.HelperEnv(n.programs), "HETGPU_CONFIG="+n.configFile()), nil
}

func (n *node) configFile() string { return filepath.Join(n.hetgpu, "config.toml") }

// configure writes the shims' configuration. Snapshots are looked for where they are by
// default: in a directory for them, and in the kubelet's.
func (n *node) configure() error {
	text := fmt.Sprintf("log_dir = %q\nstate_dir = %q\nsplit.enabled = false\nsplit.library_dir = %q\nrestore.dirs = [%q, %q]\n",
		filepath.Join(n.hetgpu, "log"), filepath.Join(n.hetgpu, "state"), filepath.Join(n.hetgpu, "libhetcuda"), n.snapshots(), n.d.KubeletCheckpoints())
	return os.WriteFile(n.configFile(), []byte(text), 0o600)
}

// snapshots is where snapshots are looked for that pods name.
func (n *node) snapshots() string { return filepath.Join(n.hetgpu, "snapshots") }

func (n *node) importImages(ctx context.Context) error {
	busybox, err := testbed.FindBusybox()
	if err != nil {
		return err
	}
	files, err := testbed.LibC(ctx)
	if err != nil {
		return err
	}
	counter := filepath.Join(scratch, "counter")
	if err := testbed.CompileC(ctx, "../testdata/counter.c", counter); err != nil {
		return err
	}
	files = maps.Clone(files)
	files["/bin/counter"], files["/bin/train"] = counter, filepath.Join(n.programs, "toy")
	for _, im := range []testbed.Image{
		{Name: image, Busybox: busybox, Files: files},
		{Name: sandboxImage, Busybox: busybox, Command: []string{"/bin/sleep", "2147483647"}},
	} {
		if _, err := n.d.Import(ctx, im); err != nil {
			return err
		}
		if err := n.d.WaitImage(ctx, im.Name); err != nil {
			return err
		}
	}
	return nil
}

// stop ends the node. Tests have removed their pods.
func (n *node) stop(ctx context.Context) error {
	var err error
	if n.Kubelet != nil {
		err = n.Stop(ctx)
	}
	if n.cluster != nil {
		err = errors.Join(err, n.cluster.Stop())
	}
	return errors.Join(err, n.d.Stop(ctx))
}
