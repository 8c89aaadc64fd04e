// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// apiTimeout is how long etcd and the API server may take to serve.
const apiTimeout = 2 * time.Minute

// ControlPlane is an API server, with its etcd, for a node of tests. It has
// neither a scheduler nor controllers. All of it listens on the loopback only, and
// takes nobody without a certificate of its own authority.
type ControlPlane struct {
	// Dir has its files.
	Dir string

	d         *Daemon
	authority *authority
	etcd, api *server
	url       string
	admin     string
	// address is the node's, on the loopback: a kubelet takes none of 127.0.0.0/8.
	address string
}

// StartControlPlane starts etcd and an API server, and waits until they serve.
func (d *Daemon) StartControlPlane(ctx context.Context) (_ *ControlPlane, err error) {
	c := &ControlPlane{Dir: filepath.Join(d.Dir, "cluster"), d: d, address: fmt.Sprintf("192.0.2.%d", d.cri.Subnet)}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("start the control plane: %w\n%s", err, c.LogTail()), c.end(syscall.SIGKILL))
		}
	}()
	if err := os.Mkdir(c.Dir, 0o700); err != nil {
		return nil, err
	}
	if c.authority, err = newAuthority(c.Dir); err != nil {
		return nil, err
	}
	if err := c.setAddress(net.ParseIP(c.address)); err != nil {
		return nil, fmt.Errorf("give the loopback the address %s: %w", c.address, err)
	}
	store, err := c.startEtcd(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.startAPI(ctx, store); err != nil {
		return nil, err
	}
	if c.admin, err = c.kubeconfig("admin", "system:masters"); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	return c, c.Eventually(ctx, "the API server is ready", func() error {
		_, err := c.Kubectl(ctx, "", "get", "--raw", "/readyz")
		return err
	})
}

// startEtcd returns the API server's flags for it.
func (c *ControlPlane) startEtcd(ctx context.Context) ([]string, error) {
	id, err := c.authority.sign("etcd")
	if err != nil {
		return nil, err
	}
	clients, err := loopback(ctx)
	if err != nil {
		return nil, err
	}
	peers, err := loopback(ctx)
	if err != nil {
		return nil, err
	}
	c.etcd, err = c.serve("etcd",
		"--name", "tests", "--data-dir", filepath.Join(c.Dir, "etcd"), "--log-level", "warn", "--unsafe-no-fsync",
		"--listen-client-urls", clients, "--advertise-client-urls", clients,
		"--cert-file", id.cert, "--key-file", id.key, "--client-cert-auth", "--trusted-ca-file", c.authority.file(),
		"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "tests="+peers,
		"--peer-cert-file", id.cert, "--peer-key-file", id.key, "--peer-client-cert-auth", "--peer-trusted-ca-file", c.authority.file())
	return []string{"--etcd-servers", clients, "--etcd-cafile", c.authority.file(), "--etcd-certfile", id.cert, "--etcd-keyfile", id.key}, err
}

func (c *ControlPlane) startAPI(ctx context.Context, store []string) error {
	id, err := c.authority.sign("apiserver", "system:masters")
	if err != nil {
		return err
	}
	port, err := freePort(ctx)
	if err != nil {
		return err
	}
	c.url = "https://127.0.0.1:" + strconv.Itoa(port)
	c.api, err = c.serve("kube-apiserver", append(store,
		"--bind-address", "127.0.0.1", "--secure-port", strconv.Itoa(port), "--endpoint-reconciler-type", "none", "--allow-privileged",
		"--tls-cert-file", id.cert, "--tls-private-key-file", id.key, "--client-ca-file", c.authority.file(), "--anonymous-auth=false",
		"--authorization-mode", "Node,RBAC", "--enable-admission-plugins", "NodeRestriction", "--service-cluster-ip-range", "198.18.0.0/24",
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", id.key, "--service-account-signing-key-file", id.key,
		// The kubelet's own certificate nobody has signed.
		"--kubelet-client-certificate", id.cert, "--kubelet-client-key", id.key, "--kubelet-preferred-address-types", "InternalIP")...)
	return err
}

func (c *ControlPlane) serve(program string, args ...string) (*server, error) {
	path, err := c.d.Lookup(program)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, args...)
	// It is nothing of the daemon's.
	cmd.Env = withoutEnv(c.d.env, markerEnv)
	return serve(cmd, c.log(program))
}

func (c *ControlPlane) log(program string) string { return filepath.Join(c.d.Dir, program+".log") }

// loopback is a free place there.
func loopback(ctx context.Context) (string, error) {
	port, err := freePort(ctx)
	return "https://127.0.0.1:" + strconv.Itoa(port), err
}

// kubeconfig makes a user, and the file by which that one is known to the API.
func (c *ControlPlane) kubeconfig(user string, groups ...string) (string, error) {
	id, err := c.authority.sign(user, groups...)
	if err != nil {
		return "", err
	}
	type object map[string]any
	config, err := json.Marshal(object{
		"apiVersion": "v1", "kind": "Config", "current-context": "tests",
		"clusters": []object{{"name": "tests", "cluster": object{"server": c.url, "certificate-authority": c.authority.file()}}},
		"users":    []object{{"name": "tests", "user": object{"client-certificate": id.cert, "client-key": id.key}}},
		"contexts": []object{{"name": "tests", "context": object{"cluster": "tests", "user": "tests"}}},
	})
	if err != nil {
		return "", err
	}
	file := filepath.Join(c.Dir, strings.ReplaceAll(user, ":", "-")+".kubeconfig")
	return file, os.WriteFile(file, config, 0o600)
}

// Kubeconfig is the administrator's.
func (c *ControlPlane) Kubeconfig() string { return c.admin }

// Kubectl runs kubectl as the administrator, with an input, and returns what it
// wrote. Its error has what it complained of.
func (c *ControlPlane) Kubectl(ctx context.Context, input string, args ...string) (string, error) {
	cmd, err := c.kubectl(ctx, args...)
	if err != nil {
		return "", err
	}
	cmd.Stdin = strings.NewReader(input)
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(complaints.Bytes()))
	}
	return out.String(), nil
}

func (c *ControlPlane) kubectl(ctx context.Context, args ...string) (*exec.Cmd, error) {
	program, err := c.d.Lookup("kubectl")
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, append([]string{"--kubeconfig", c.admin, "--cache-dir", filepath.Join(c.Dir, "cache")}, args...)...)
	cmd.Env = withoutEnv(c.d.env, markerEnv)
	return cmd, nil
}

// Schedule puts pods on the node that are on none, as a scheduler does, until the
// context ends. Its error is why it ended before.
func (c *ControlPlane) Schedule(ctx context.Context) error {
	cmd, err := c.kubectl(ctx, "get", "pods", "--field-selector", "spec.nodeName=", "--watch", "--output-watch-events",
		"-o", `jsonpath={.type} {.object.metadata.name}{"\n"}`)
	if err != nil {
		return err
	}
	events, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return err
	}
	for lines := bufio.NewScanner(events); lines.Scan() && err == nil; {
		if pod, ok := strings.CutPrefix(lines.Text(), "ADDED "); ok {
			err = c.bind(ctx, pod)
		}
	}
	if err != nil {
		_ = cmd.Process.Kill()
	}
	if err = errors.Join(err, cmd.Wait()); ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("nobody schedules pods any more: %w", err)
}

func (c *ControlPlane) bind(ctx context.Context, pod string) error {
	_, err := c.Kubectl(ctx, fmt.Sprintf(`{"apiVersion": "v1", "kind": "Binding", "metadata": {"name": %q}, "target": {"apiVersion": "v1", "kind": "Node", "name": %q}}`, pod, nodeName),
		"create", "--raw", "/api/v1/namespaces/default/pods/"+pod+"/binding", "-f", "-")
	return err
}

// nodeReady fails while the API does not have the node, or not ready.
func (c *ControlPlane) nodeReady(ctx context.Context) error {
	status, err := c.Kubectl(ctx, "", "get", "node", nodeName, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")]}`)
	if err == nil && !strings.Contains(status, `"status":"True"`) {
		err = fmt.Errorf("the node is %s", status)
	}
	return err
}

// Eventually is [Eventually] for what the API server has to be asked.
func (c *ControlPlane) Eventually(ctx context.Context, what string, try func() error) error {
	return eventually(ctx, askInterval, what, func() error {
		if err := errors.Join(c.etcd.alive(), c.api.alive()); err != nil {
			return Permanent(err)
		}
		return try()
	})
}

// LogTail returns the ends of the logs.
func (c *ControlPlane) LogTail() string {
	const most = 8 << 10
	var tails []string
	for _, program := range []string{"etcd", "kube-apiserver"} {
		log, err := os.ReadFile(c.log(program))
		if err != nil {
			log = []byte(err.Error())
		}
		tails = append(tails, program+": "+string(log[max(0, len(log)-most):]))
	}
	return strings.Join(tails, "\n")
}

// Stop ends the API server and etcd.
func (c *ControlPlane) Stop() error { return c.end(syscall.SIGTERM) }

func (c *ControlPlane) end(sig syscall.Signal) error {
	var errs []error
	for _, s := range []*server{c.api, c.etcd} {
		if s != nil {
			errs = append(errs, s.end(sig))
		}
	}
	return errors.Join(append(errs, c.setAddress(net.IPv4zero))...)
}

// setAddress gives the loopback an address of its own for the node; none takes it
// away. The network is one for documentation (RFC 5737): nobody else has it.
func (c *ControlPlane) setAddress(address net.IP) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	set := func(request uint, to net.IP) error {
		ifr, err := unix.NewIfreq(fmt.Sprintf("lo:hg%d", c.d.cri.Subnet))
		if err == nil {
			err = ifr.SetInet4Addr(to.To4())
		}
		if err == nil {
			err = unix.IoctlIfreq(fd, request, ifr)
		}
		return err
	}
	if address.IsUnspecified() {
		if err := set(unix.SIOCSIFADDR, address); !errors.Is(err, unix.EADDRNOTAVAIL) {
			return err
		}
		return nil
	}
	return errors.Join(set(unix.SIOCSIFADDR, address), set(unix.SIOCSIFNETMASK, net.IPv4bcast))
}
