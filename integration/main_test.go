// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"

	"github.com/hetgpu/containerd-shim-hetgpu/integration/standin"
	"github.com/hetgpu/containerd-shim-hetgpu/integration/testbed"
)

// stockRuntime is the runc shim that containerd ships.
const stockRuntime = "io.containerd.runc.v2"

// testTimeout bounds each test, so that one that hangs is named.
const testTimeout = 2 * time.Minute

var (
	runtimeName = flag.String("runtime", cmp.Or(os.Getenv("HETGPU_TEST_RUNTIME"), "io.hetgpu.v2"), "runtime under test")
	versions    = flag.String("containerd", "", "versions of containerd, comma separated (default: those of hack/versions.env)")
)

// daemon is one containerd that all tests share.
type daemon struct {
	*testbed.Daemon
	version string
	image   containerd.Image
	// gpu is the machine whose GPUs its containers can have.
	gpu *standin.Machine
	// programs has the stand-ins for a GPU, and hetgpu what the shims'
	// configuration names.
	programs, hetgpu string
}

var (
	installed *testbed.Installed
	daemons   []*daemon
	// scratch has the compiled test programs.
	scratch string
)

func TestMain(m *testing.M) {
	flag.Parse()
	status, err := runTests(context.Background(), m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "integration:", err)
		status = 1
	}
	os.Exit(status)
}

func runTests(ctx context.Context, m *testing.M) (status int, err error) {
	if os.Getuid() != 0 {
		return 1, fmt.Errorf("these tests start containers: run them as root")
	}
	if scratch, err = os.MkdirTemp("", "hg-programs"); err != nil {
		return 1, err
	}
	defer os.RemoveAll(scratch)
	defer func() {
		for _, d := range daemons {
			if stopErr := d.Stop(ctx); stopErr != nil {
				status, err = 1, fmt.Errorf("containerd %s: %w", d.version, stopErr)
			}
		}
	}()
	if err := startDaemons(ctx); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

func startDaemons(ctx context.Context) (err error) {
	if installed, err = testbed.FindInstalled(".."); err != nil {
		return err
	}
	image, err := testImage(ctx)
	if err != nil {
		return err
	}
	wanted := installed.Containerds()
	if *versions != "" {
		wanted = strings.Split(*versions, ",")
	}
	for _, version := range wanted {
		path, err := installed.Path(version)
		if err != nil {
			return err
		}
		d := &daemon{version: version}
		env, err := d.makeMachine(filepath.Join(scratch, version))
		if err != nil {
			return err
		}
		if d.Daemon, err = testbed.Start(ctx, testbed.Config{Path: path, Env: env}); err != nil {
			return err
		}
		daemons = append(daemons, d)
		if d.image, err = d.Import(ctx, image); err != nil {
			return err
		}
	}
	return nil
}

// testImage is busybox and the programs of testdata, compiled.
func testImage(ctx context.Context) (testbed.Image, error) {
	im := testbed.Image{Name: testbed.ImageName, Files: map[string]string{}}
	sources, err := filepath.Glob("testdata/*.c")
	if err != nil {
		return im, err
	}
	for _, source := range sources {
		name := strings.TrimSuffix(filepath.Base(source), ".c")
		program := filepath.Join(scratch, name)
		if err := testbed.CompileC(ctx, source, program); err != nil {
			return im, err
		}
		im.Files["/bin/"+name] = program
	}
	libc, err := testbed.LibC(ctx)
	if err != nil {
		return im, err
	}
	maps.Copy(im.Files, libc)
	im.Busybox, err = testbed.FindBusybox()
	return im, err
}

// eachDaemon runs a test against every version of containerd.
func eachDaemon(t *testing.T, test func(t *testing.T, d *daemon)) {
	t.Helper()
	for _, d := range daemons {
		t.Run("containerd-"+d.version, func(t *testing.T) {
			d.logIfFailed(t)
			test(t, d)
		})
	}
}

// logIfFailed shows what the daemon and its shims wrote during a test that
// failed.
func (d *daemon) logIfFailed(t *testing.T) {
	t.Helper()
	offset := d.logSize()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of containerd %s since the test began:\n%s", d.version, d.logSince(offset))
		}
	})
}

func (d *daemon) logSize() int64 {
	st, err := os.Stat(d.LogPath())
	if err != nil {
		return 0
	}
	return st.Size()
}

// logNoise are lines that every container causes.
var logNoise = regexp.MustCompile(`level=(trace|debug) msg="(loading plugin|registering ttrpc|serving api|starting signal loop|[a-z ]*snapshot|activating mount)`)

// logSince returns what matters of the log from an offset on.
func (d *daemon) logSince(offset int64) string {
	data, err := os.ReadFile(d.LogPath())
	if err != nil {
		return err.Error()
	}
	var kept []string
	for line := range strings.Lines(string(data[min(offset, int64(len(data))):])) {
		if !logNoise.MatchString(line) {
			kept = append(kept, line)
		}
	}
	const most = 80
	return strings.Join(kept[max(0, len(kept)-most):], "")
}

// testContext ends before the test would be killed, in the daemon's namespace.
func (d *daemon) testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), testTimeout, fmt.Errorf("%s took more than %s", t.Name(), testTimeout))
	t.Cleanup(cancel)
	return d.Context(ctx)
}

// cleanupContext is for what has to be done after the test, when its own
// context has ended.
func (d *daemon) cleanupContext() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	return d.Context(ctx), cancel
}

func isStock() bool { return *runtimeName == stockRuntime }

// skipOnStock skips what only our shim promises.
func skipOnStock(t *testing.T, why string) {
	t.Helper()
	if isStock() {
		t.Skip("stock shim: " + why)
	}
}
