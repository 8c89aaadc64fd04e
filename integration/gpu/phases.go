// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// phases is how long each step of an operation took, in order.
type phases []snapshot.Phase

func (p *phases) add(name string, seconds float64) {
	*p = append(*p, snapshot.Phase{Name: name, Seconds: seconds})
}

func (p phases) total() float64 {
	var sum float64
	for _, phase := range p {
		sum += phase.Seconds
	}
	return sum
}

// each runs the steps until one fails.
func (phases) each(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// step is one that is timed here.
func (p *phases) step(name string, do func() error) func() error {
	return func() error {
		start := time.Now()
		err := do()
		p.add(name, time.Since(start).Seconds())
		return err
	}
}

// driver is one call of the driver, timed where it is made.
func (p *phases) driver(ctx context.Context, c *checkpointer, call string, pid int) func() error {
	return func() error {
		took, err := c.call(ctx, call, pid)
		p.add("gpu-"+call, took)
		return err
	}
}

// phaseLine is what the shim logs at the end of each phase.
var phaseLine = regexp.MustCompile(`(?m)^.*msg="phase ended".* phase=([a-z-]+).* seconds=([0-9.e+-]+).*$`)

// loggedPhases reads the shim's phases from containerd's log.
func (s *suite) loggedPhases(offset int64) (phases, error) {
	data, err := s.logSince(offset)
	if err != nil {
		return nil, err
	}
	var p phases
	for _, match := range phaseLine.FindAllSubmatch(data, -1) {
		took, err := strconv.ParseFloat(string(match[2]), 64)
		if err != nil {
			return nil, fmt.Errorf("the log says %q", match[0])
		}
		p.add(string(match[1]), took)
	}
	return p, nil
}
