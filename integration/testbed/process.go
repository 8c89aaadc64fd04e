// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// stopTimeout is how long a process may take to end when it is asked to.
const stopTimeout = 15 * time.Second

// server is a process that serves until it is told to end.
type server struct {
	cmd *exec.Cmd
	// name is for people.
	name string
	// exited is closed when the process has been waited for, and err is set before.
	exited chan struct{}
	err    error
}

// serve starts a command, whose output goes to the end of a file.
func serve(cmd *exec.Cmd, log string) (*server, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	s := &server{cmd: cmd, name: filepath.Base(cmd.Path), exited: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = out, out
	// A test that is killed must not leave a server.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		// The parent-death signal comes when the thread that started the
		// process ends, so that thread is kept until the process has ended.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			s.err = cmd.Wait()
			close(s.exited)
		}
	}()
	return s, <-started
}

// alive fails, permanently, once the process has ended.
func (s *server) alive() error {
	select {
	case <-s.exited:
		return Permanent(fmt.Errorf("%s exited: %w", s.name, s.err))
	default:
		return nil
	}
}

// end ends the process, harder if need be.
func (s *server) end(sig syscall.Signal) error {
	_ = s.cmd.Process.Signal(sig)
	select {
	case <-s.exited:
		return nil
	case <-time.After(stopTimeout):
	}
	s.kill()
	return fmt.Errorf("%s did not end within %s of %v", s.name, stopTimeout, sig)
}

func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	<-s.exited
}
