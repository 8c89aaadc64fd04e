// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/corpus"
)

// nvccTimeout is for one file.
const nvccTimeout = time.Minute

// NVCC is the corpus with the PTX that this host's nvcc makes of it.
type NVCC struct {
	// Version is nvcc's, or Missing why there is none.
	Version string `json:"version,omitempty"`
	Missing string `json:"missing,omitempty"`
	// Errors are nvcc's, by file. Programs of such files were not run.
	Errors   map[string]string `json:"errors,omitempty"`
	Programs []*Program        `json:"programs,omitempty"`
}

// fromNVCC compiles the corpus' sources with nvcc and runs them as the PTX that is
// in the repository.
func (s *suite) fromNVCC(ctx context.Context) {
	r := &NVCC{Errors: map[string]string{}}
	s.report.NVCC = r
	nvcc, err := findNVCC()
	if err != nil {
		r.Missing = err.Error()
		return
	}
	version, err := exec.CommandContext(ctx, nvcc, "--version").CombinedOutput()
	if err != nil {
		r.Missing = fmt.Sprintf("%s: %v: %s", nvcc, err, version)
		return
	}
	lines := strings.Split(strings.TrimSpace(string(version)), "\n")
	r.Version = lines[len(lines)-1]
	dir, err := os.MkdirTemp("", "nvcc")
	if err != nil {
		r.Missing = err.Error()
		return
	}
	defer os.RemoveAll(dir)
	if err := os.CopyFS(dir, corpus.Sources()); err != nil {
		r.Missing = err.Error()
		return
	}
	texts := s.compileAll(ctx, nvcc, dir, r)
	r.Programs = s.each(func(p *pair, c *corpus.Case) *Program {
		if texts[c.File] == "" {
			return nil
		}
		return p.program(ctx, c, texts[c.File])
	})
}

func findNVCC() (string, error) {
	nvcc, err := exec.LookPath("nvcc")
	if err == nil {
		return nvcc, nil
	}
	const usual = "/usr/local/cuda/bin/nvcc"
	if _, err := os.Stat(usual); err == nil {
		return usual, nil
	}
	return "", err
}

// compileAll returns the files' PTX.
func (s *suite) compileAll(ctx context.Context, nvcc, dir string, r *NVCC) map[string]string {
	files := map[string]bool{}
	for _, c := range corpus.All() {
		if s.wants(c.Name) {
			files[c.File] = true
		}
	}
	var mu sync.Mutex
	var workers sync.WaitGroup
	queue, texts := make(chan string), map[string]string{}
	for range 2 * s.workers {
		workers.Go(func() {
			for file := range queue {
				text, err := compileFile(ctx, nvcc, dir, file)
				mu.Lock()
				if texts[file] = text; err != nil {
					r.Errors[file] = err.Error()
				}
				mu.Unlock()
			}
		})
	}
	for _, file := range slices.Sorted(maps.Keys(files)) {
		queue <- file
	}
	close(queue)
	workers.Wait()
	s.say("nvcc: %d of %d files", len(files)-len(r.Errors), len(files))
	return texts
}

// needs is how a source says that it needs a newer device than the others.
var needs = regexp.MustCompile(`(?m)^// needs sm_(\d+)a?$`)

// oldest is the oldest architecture that nvcc 13 compiles for.
const oldest = 75

func compileFile(ctx context.Context, nvcc, dir, file string) (string, error) {
	source, err := fs.ReadFile(corpus.Sources(), file+".cu")
	if err != nil {
		return "", err
	}
	arch := oldest
	if m := needs.FindSubmatch(source); m != nil {
		n, err := strconv.Atoi(string(m[1]))
		if err != nil {
			return "", err
		}
		arch = max(arch, n)
	}
	ctx, cancel := context.WithTimeout(ctx, nvccTimeout)
	defer cancel()
	ptx := filepath.Join(dir, file+".nvcc.ptx")
	// No contraction: where a kernel multiplies and adds in one step it says fmaf.
	cmd := exec.CommandContext(ctx, nvcc, "-ptx", "-std=c++17", "-fmad=false", fmt.Sprintf("-arch=compute_%d", arch), "-o", ptx, file+".cu")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %.2000s", err, out)
	}
	text, err := os.ReadFile(ptx)
	return string(text), err
}
