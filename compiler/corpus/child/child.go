// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package child talks to programs that use a driver for this process (clrun,
// curun): a driver may abort or hang, and that must be an error here. Requests go
// to the program's standard input, answers come from its standard output; serve.h
// is the other side. The package knows nothing of what is asked.
package child

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

//go:embed serve.h
var serve []byte

// Build makes a program of one C file in a directory and returns its path.
func Build(ctx context.Context, dir, name string, source []byte, libraries ...string) (string, error) {
	src, program := filepath.Join(dir, name+".c"), filepath.Join(dir, name)
	if err := errors.Join(os.WriteFile(src, source, 0o600), os.WriteFile(filepath.Join(dir, "serve.h"), serve, 0o600)); err != nil {
		return "", err
	}
	args := append([]string{"-std=c11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-o", program, src}, libraries...)
	out, err := exec.CommandContext(ctx, "cc", args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("cc %s.c: %w: %s", name, err, out)
	}
	return program, nil
}

// Process is a program under way. One goroutine may use it at a time.
type Process struct {
	// Timeout is for each request; the program is killed then.
	Timeout time.Duration

	cmd    *exec.Cmd
	in     io.WriteCloser
	out    io.Reader
	said   *tail
	broken error
}

// ErrCrashed is in the error of a request during which the program ended or was
// killed, and of all after it. What it had on its device is lost.
var ErrCrashed = errors.New("the device's process ended")

// Start starts a program, with variables beside this process'.
func Start(ctx context.Context, program string, timeout time.Duration, env ...string) (*Process, error) {
	p := &Process{Timeout: timeout, said: &tail{}}
	p.cmd = exec.CommandContext(ctx, program)
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stderr = p.said
	p.cmd.WaitDelay = 5 * time.Second
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if p.out, err = p.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	return p, p.cmd.Start()
}

// Close ends the program.
func (p *Process) Close() error {
	if p.broken != nil {
		return nil // the request that found it has said so, and waited
	}
	p.broken = ErrCrashed
	_ = p.in.Close()
	stop := time.AfterFunc(p.Timeout, func() { _ = p.cmd.Process.Kill() })
	defer stop.Stop()
	return p.cmd.Wait()
}

// Do sends a request and waits for its answer.
func (p *Process) Do(kind uint32, parts ...[]byte) ([]byte, error) {
	if p.broken != nil {
		return nil, p.broken
	}
	stop := time.AfterFunc(p.Timeout, func() { _ = p.cmd.Process.Kill() })
	defer stop.Stop()
	payload := bytes.Join(parts, nil)
	_, err := p.in.Write(append(U64s(uint64(kind), uint64(len(payload))), payload...))
	var answer struct {
		Kind, Zero uint32
		Length     uint64
	}
	var data []byte
	if err == nil {
		err = binary.Read(p.out, binary.NativeEndian, &answer)
	}
	if err == nil {
		data = make([]byte, answer.Length)
		_, err = io.ReadFull(p.out, data)
	}
	if err != nil {
		timedOut := ""
		if !stop.Stop() {
			timedOut = fmt.Sprintf(" after %v", p.Timeout)
		}
		_ = p.in.Close()
		_ = p.cmd.Process.Kill()
		p.broken = fmt.Errorf("%w%s: %w (%w); it said: %s", ErrCrashed, timedOut, err, ended(p.cmd.Wait()), p.said)
		return nil, p.broken
	}
	if answer.Kind != 0 {
		return nil, errors.New(string(data))
	}
	return data, nil
}

// ended is how the program ended, which is an error even where it said all is well.
func ended(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

// U64s encodes numbers as programs read them. A request's kind is such a number
// too: its upper half is zero on the little-endian hosts that there are.
func U64s(values ...uint64) []byte {
	var b []byte
	for _, v := range values {
		b = binary.NativeEndian.AppendUint64(b, v)
	}
	return b
}

// tail keeps the last of what the program says on standard error.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const tailSize = 4096

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	t.text = t.text[max(0, len(t.text)-tailSize):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}

// Serve is the other side in Go: it answers requests until there are no more.
func Serve(in io.Reader, out io.Writer, answer func(kind uint32, payload []byte) ([]byte, error)) error {
	for {
		var head [2]uint64
		if err := binary.Read(in, binary.NativeEndian, &head); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		payload := make([]byte, head[1])
		if _, err := io.ReadFull(in, payload); err != nil {
			return err
		}
		data, err := answer(uint32(head[0]), payload)
		kind := uint64(0)
		if err != nil {
			kind, data = 1, []byte(err.Error())
		}
		if _, err := out.Write(append(U64s(kind, uint64(len(data))), data...)); err != nil {
			return err
		}
	}
}
