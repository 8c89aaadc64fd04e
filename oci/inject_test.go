// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package oci_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/hetgpu/containerd-shim-hetgpu/oci"
)

func inject(t *testing.T, document string, in oci.Injection) (spec *oci.Spec, written string) {
	t.Helper()
	dir, name := bundle(t, document)
	spec = load(t, dir)
	if _, err := oci.Inject(spec, in); err != nil {
		t.Fatal(err)
	}
	if err := spec.Save(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return load(t, dir), string(data)
}

var plainInjection = oci.Injection{Library: "/usr/lib/hetgpu", Control: "/bundle/control"}

func TestInjectEnvironment(t *testing.T) {
	const lib, control = "LD_LIBRARY_PATH=/run/hetgpu/lib", "HETCUDA_CONTROL=/run/hetgpu/control"
	for name, tc := range map[string]struct {
		env, mounts string
		preload     []string
		want        []string
		variables   bool // are left to the driver
	}{
		"nothing there":         {env: ``, want: []string{lib, control}},
		"others":                {env: `"A=B","PATH=/bin"`, want: []string{"A=B", "PATH=/bin", lib, control}},
		"a path":                {env: `"LD_LIBRARY_PATH=/usr/local/nvidia/lib:/x","A=B"`, want: []string{lib + ":/usr/local/nvidia/lib:/x", "A=B", control}},
		"an empty path":         {env: `"LD_LIBRARY_PATH="`, want: []string{lib, control}},
		"the working directory": {env: `"LD_LIBRARY_PATH=/x::/y"`, want: []string{lib + ":/x::/y", control}},
		"musl's separator":      {env: `"LD_LIBRARY_PATH=/x\n/y"`, want: []string{lib + ":/x\n/y", control}},
		"ours, elsewhere in it": {env: `"LD_LIBRARY_PATH=/x:/run/hetgpu/lib:/y"`, want: []string{lib + ":/x:/y", control}},
		"twice":                 {env: `"LD_LIBRARY_PATH=/no","A=B","LD_LIBRARY_PATH=/yes"`, want: []string{lib + ":/yes", "A=B", control}},
		"a name that begins so": {env: `"LD_LIBRARY_PATH_X=/x"`, want: []string{"LD_LIBRARY_PATH_X=/x", lib, control}},
		"another's control":     {env: `"HETCUDA_CONTROL=/else"`, want: []string{control, lib}},
		"the real library": {
			mounts: `{"destination":"/usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04"}`,
			want:   []string{lib, control, "HETCUDA_REAL=/usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04"},
		},
		"a library that only looks so": {
			mounts: `{"destination":"/lib/libcuda.so.1"},{"destination":"/lib/libcuda.so.new"},{"destination":"/lib/libcudadebugger.so.580.1"},{"destination":"/lib/libcuda.so"}`,
			want:   []string{lib, control},
		},
		"the user's own libraries": {preload: []string{"a.so", "b.so"}, want: []string{"LD_PRELOAD=/run/hetgpu/preload/a.so:/run/hetgpu/preload/b.so", lib, control}},
		"and what is preloaded":    {env: `"LD_PRELOAD=/x.so /y.so"`, preload: []string{"a.so"}, want: []string{"LD_PRELOAD=/run/hetgpu/preload/a.so:/x.so:/y.so", lib, control}},
		"variables":                {variables: true, want: []string{lib, control, "HETCUDA_MANAGED_VARIABLES=driver"}},
		"variables, by the user":   {env: `"HETCUDA_MANAGED_VARIABLES="`, variables: true, want: []string{"HETCUDA_MANAGED_VARIABLES=", lib, control}},
		"no library of the user's": {env: `"LD_PRELOAD=/x.so"`, preload: []string{}, want: []string{"LD_PRELOAD=/x.so", lib, control}},
	} {
		t.Run(name, func(t *testing.T) {
			in := plainInjection
			in.LeaveVariables = tc.variables
			if tc.preload != nil {
				in.Preload, in.PreloadNames = "/opt/tools", tc.preload
			}
			spec, written := inject(t, `{"process":{"env":[`+tc.env+`]},"mounts":[`+tc.mounts+`]}`, in)
			if !slices.Equal(spec.Process.Env, tc.want) {
				t.Errorf("environment\n %q, want\n %q", spec.Process.Env, tc.want)
			}
			if _, again := inject(t, written, in); again != written {
				t.Errorf("twice it is\n%s\nonce\n%s", again, written)
			}
		})
	}
}

func TestInjectMounts(t *testing.T) {
	const ours = `{"destination":"/run/hetgpu/lib","type":"bind","source":"/usr/lib/hetgpu","options":["bind","ro","nosuid","nodev"]},` +
		`{"destination":"/run/hetgpu/control","type":"bind","source":"/bundle/control","options":["bind","rw","nosuid","nodev"]}`
	const preload = `,{"destination":"/run/hetgpu/preload","type":"bind","source":"/opt/tools","options":["bind","ro","nosuid","nodev"]}`
	const env = `"process":{"newer":1,"env":["LD_LIBRARY_PATH=/run/hetgpu/lib","HETCUDA_CONTROL=/run/hetgpu/control"]}`
	const run = `{"destination":"/run","type":"tmpfs","source":"tmpfs","newer":{"x":1}}`
	for name, tc := range map[string]struct {
		mounts, want string
		preload      bool
	}{
		"none":                    {`null`, `[` + ours + `]`, false},
		"after what hides it":     {`[` + run + `]`, `[` + run + `,` + ours + `]`, false},
		"in another's place":      {`[{"destination":"/run/hetgpu/control/","source":"/old/control"},` + run + `]`, `[{"destination":"/run/hetgpu/control","type":"bind","source":"/bundle/control","options":["bind","rw","nosuid","nodev"]},` + run + `,{"destination":"/run/hetgpu/lib","type":"bind","source":"/usr/lib/hetgpu","options":["bind","ro","nosuid","nodev"]}]`, false},
		"with a user's libraries": {`[]`, `[` + ours + preload + `]`, true},
	} {
		t.Run(name, func(t *testing.T) {
			in := plainInjection
			if tc.preload {
				in.Preload = "/opt/tools"
			}
			document := `{"new":[ 1 ],` + env + `,"mounts":` + tc.mounts + `}`
			_, written := inject(t, document, in)
			if want := strings.Replace(document, `"mounts":`+tc.mounts, `"mounts":`+tc.want, 1); written != want {
				t.Errorf("it is\n%s\nwant\n%s", written, want)
			}
		})
	}
}

// A device comes after the rules that deny all.
func TestInjectUserfaultfd(t *testing.T) {
	const ours = `{"path":"/dev/userfaultfd","type":"c","major":10,"minor":126,"fileMode":438}`
	const rule = `{"allow":true,"type":"c","major":10,"minor":126,"access":"rw"}`
	const deny = `{"allow":false,"access":"rwm","newer":1}`
	mode := os.FileMode(0o666)
	in := plainInjection
	in.Userfaultfd = &specs.LinuxDevice{Path: "/dev/userfaultfd", Type: "c", Major: 10, Minor: 126, FileMode: &mode}
	for name, tc := range map[string]struct{ linux, want string }{
		"nothing there":     {`{}`, `{"devices":[` + ours + `],"resources":{"devices":[` + rule + `]}}`},
		"nulls":             {`{"devices":null,"resources":null}`, `{"devices":[` + ours + `],"resources":{"devices":[` + rule + `]}}`},
		"beside others":     {`{"devices":[{"path":"/dev/x","newer":1}],"resources":{"devices":[` + deny + `],"newer":1}}`, `{"devices":[{"path":"/dev/x","newer":1},` + ours + `],"resources":{"devices":[` + deny + `,` + rule + `],"newer":1}}`},
		"of another host":   {`{"devices":[{"path":"/dev/userfaultfd","type":"c","major":10,"minor":9},{"path":"/dev/x"}]}`, `{"devices":[` + ours + `,{"path":"/dev/x"}],"resources":{"devices":[` + rule + `]}}`},
		"the user's own":    {`{"devices":[{"path":"/dev/userfaultfd/","type":"c","major":10,"minor":126,"uid":7}]}`, `{"devices":[{"path":"/dev/userfaultfd/","type":"c","major":10,"minor":126,"uid":7}],"resources":{"devices":[` + rule + `]}}`},
		"denied afterwards": {`{"resources":{"devices":[` + rule + `,` + deny + `]}}`, `{"resources":{"devices":[` + rule + `,` + deny + `,` + rule + `]},"devices":[` + ours + `]}`},
	} {
		t.Run(name, func(t *testing.T) {
			_, written := inject(t, `{"mounts":[],"linux":`+tc.linux+`}`, in)
			if !strings.Contains(written, `"linux":`+tc.want) {
				t.Errorf("it is\n%s\nwant\n%s", written, tc.want)
			}
			if _, again := inject(t, written, in); again != written {
				t.Errorf("twice it is\n%s\nonce\n%s", again, written)
			}
		})
	}
}

// On a restore into another container the paths inside stay, and lead to its own.
func TestInjectAgain(t *testing.T) {
	_, first := inject(t, `{"mounts":[{"destination":"/a"}]}`, plainInjection)
	other := oci.Injection{Library: "/usr/lib/hetgpu", Control: "/other/control"}
	spec, second := inject(t, first, other)
	if second != strings.Replace(first, "/bundle/control", "/other/control", 1) || len(spec.Mounts) != 3 {
		t.Errorf("first\n%s\nsecond\n%s", first, second)
	}
}

// A process that enters later is told what the first one is, and is else as its
// client wants it.
func TestInjectedEnvironmentOfProcess(t *testing.T) {
	in := plainInjection
	in.Preload, in.PreloadNames = "/opt/tools", []string{"a.so"}
	dir, _ := bundle(t, `{"process":{"env":["OF=THE CONTAINER"]},"mounts":[{"destination":"/lib/libcuda.so.580.1"}]}`)
	env, err := oci.Inject(load(t, dir), in)
	if err != nil {
		t.Fatal(err)
	}
	const ours = `"LD_PRELOAD=/run/hetgpu/preload/a.so","LD_LIBRARY_PATH=/run/hetgpu/lib","HETCUDA_CONTROL=/run/hetgpu/control","HETCUDA_REAL=/lib/libcuda.so.580.1"`
	for name, tc := range map[string]struct{ document, want string }{
		"with an environment": {`{"args":["a"],"env":["A=B"],"newer":[ 1 ]}`, `{"args":["a"],"env":["A=B",` + ours + `],"newer":[ 1 ]}`},
		"without":             {`{"args":["a"]}`, `{"args":["a"],"env":[` + ours + `]}`},
		"null":                {`{"env":null}`, `{"env":[` + ours + `]}`},
		"nothing at all":      {`null`, `{"env":[` + ours + `]}`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := env.AddToProcess([]byte(tc.document))
			if err != nil || string(got) != tc.want {
				t.Errorf("it is %v\n%s\nwant\n%s", err, got, tc.want)
			}
			if again, err := env.AddToProcess(got); err != nil || string(again) != tc.want {
				t.Errorf("twice it is %v\n%s", err, again)
			}
		})
	}
	for _, broken := range []string{``, `{`, `[]`, `{"env":"A=B"}`, `{} {}`} {
		if got, err := env.AddToProcess([]byte(broken)); err == nil {
			t.Errorf("%q became %q", broken, got)
		}
	}
}

// Who has our CDI device is given nothing twice: its mounts are ours, and its hook
// goes. Other hooks stay as they are written.
func TestInjectAfterCDI(t *testing.T) {
	const ours = `{"path":"/usr/local/bin/hetgpu-hook","args":["hetgpu-hook","createRuntime"]}`
	const others = `{"path":"/bin/hook","newer":1}`
	document := `{"hooks":{"createRuntime":[` + others + `,` + ours + `],"poststop":[` + ours + `],"newer":[1]},"mounts":[{"destination":"/run/hetgpu/lib","type":"bind","source":"/else","options":["bind"]}]}`
	if before := load(t, first(bundle(t, document))); !oci.Injected(before) || oci.HasControl(before) {
		t.Errorf("%+v", before.Mounts)
	}
	spec, written := inject(t, document, plainInjection)
	if want := `"hooks":{"createRuntime":[` + others + `],"poststop":[],"newer":[1]}`; !strings.Contains(written, want) {
		t.Errorf("%s\nwant %s", written, want)
	}
	if len(spec.Mounts) != 2 || spec.Mounts[0].Source != "/usr/lib/hetgpu" || !oci.HasControl(spec) {
		t.Errorf("%+v", spec.Mounts)
	}
	if _, again := inject(t, written, plainInjection); again != written {
		t.Errorf("twice\n%s\nonce\n%s", again, written)
	}
	if spec, _ := inject(t, `{"hooks":null}`, plainInjection); oci.HasControl(&oci.Spec{}) || spec.Hooks.Poststop != nil {
		t.Error("what is not there is found")
	}
}

func first(dir, _ string) string { return dir }

func TestRootfs(t *testing.T) {
	for path, want := range map[string]string{"rootfs": "DIR/rootfs", "/srv/root/": "/srv/root", "../x": "DIR/../x", "": "DIR"} {
		dir, _ := bundle(t, `{"root":{"path":"`+path+`"}}`)
		if got := load(t, dir).Rootfs(); got != filepath.Clean(strings.ReplaceAll(want, "DIR", dir)) {
			t.Errorf("%q: %s", path, got)
		}
	}
}
