// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// fixedDirs are what a kubelet uses wherever its root is: sockets of device plugins,
// and what it remembers of the devices that it gave away (k8s.io/kubelet,
// deviceplugin/v1beta1, DevicePluginPath), and links to logs (Kubernetes 1.36,
// pkg/kubelet/kuberuntime/legacy.go). The machine's may be those of its own kubelet,
// and what one kubelet of ours has left there another one would believe.
var fixedDirs = []string{"/var/lib/kubelet", "/var/log/containers"}

// apartScript mounts directories of our own at these places, where only what it then
// runs sees them: the root of its mount namespace has no peer any more. What is
// mounted below the kubelet's own root the machine does see.
const apartScript = `own=$1
shift
while [ "$1" != -- ]; do
	mount --make-private "$(findmnt --noheadings --output TARGET --target "$1")"
	mount --bind "$own$1" "$1"
	shift
done
shift
exec "$@"
`

// runApart makes a command one that has the fixed directories of a kubelet for
// itself, below a directory, and shares what is mounted below root with the machine.
// undo takes back what that needs on the machine, when the command has ended.
func runApart(cmd *exec.Cmd, own, root string) (undo func() error, err error) {
	undo = func() error {
		if err := unix.Unmount(root, unix.MNT_DETACH); !errors.Is(err, unix.EINVAL) {
			return err
		}
		return nil
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, undo())
		}
	}()
	for _, dir := range fixedDirs {
		// The machine's is a place to mount ours at. It stays: to remove it would
		// unmount what another run has mounted there.
		for _, dir := range []string{dir, filepath.Join(own, dir)} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return nil, err
			}
		}
	}
	for _, m := range []struct {
		source string
		flags  uintptr
	}{{root, unix.MS_BIND}, {"", unix.MS_PRIVATE}, {"", unix.MS_SHARED}} {
		if err := unix.Mount(m.source, root, "", m.flags, ""); err != nil {
			return nil, &fs.PathError{Op: "mount", Path: root, Err: err}
		}
	}
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		return nil, err
	}
	args := append([]string{"unshare", "--mount", "--propagation", "unchanged", "sh", "-ec", apartScript, "sh", own}, fixedDirs...)
	cmd.Args = append(append(args, "--", cmd.Path), cmd.Args[1:]...)
	cmd.Path = unshare
	return undo, nil
}
