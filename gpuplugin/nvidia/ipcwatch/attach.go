// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package ipcwatch

import (
	"errors"
	"fmt"
	"math"
	"os"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// attachKind is how programs are attached. Linux 6.6 has links for many probes
// that are set and taken off at once, beside one another. Before it, each probe
// is a perf event, and the kernel takes off one after the other, for a tenth of a
// second each and longer where its CPUs are busy; whoever sets one waits for that,
// also when it was another container's.
func attachKind() ebpf.AttachType {
	kind.once.Do(func() { kind.is = findKind() })
	return kind.is
}

var kind struct {
	once sync.Once
	is   ebpf.AttachType
}

func findKind() ebpf.AttachType {
	p, err := load("hetgpu_kind", ebpf.AttachTraceUprobeMulti, asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()})
	if err != nil {
		return ebpf.AttachNone
	}
	defer func() { _ = p.Close() }()
	self, err := link.OpenExecutable("/proc/self/exe")
	if err != nil {
		return ebpf.AttachNone
	}
	// No process has this number, which only a kernel that knows such links
	// finds out.
	nobody := &link.UprobeMultiOptions{Addresses: []uint64{1}, PID: math.MaxInt32}
	if l, err := self.UprobeMulti(nil, p, nobody); !errors.Is(err, os.ErrNotExist) {
		if err == nil {
			_ = l.Close()
		}
		return ebpf.AttachNone
	}
	return ebpf.AttachTraceUprobeMulti
}

// attach sets the probes of a library's functions. One where a call begins comes
// before the one where it ends, so that a call in between counts as one that
// never ends.
func (p *programs) attach(file *link.Executable, symbols []symbol) ([]link.Link, error) {
	set := p.attachEach
	if p.kind == ebpf.AttachTraceUprobeMulti {
		set = p.attachMulti
	}
	links, err := set(file, symbols)
	if err != nil {
		return nil, errors.Join(err, closeLinks(links))
	}
	return links, nil
}

// attachMulti sets the probes with a link for each program.
func (p *programs) attachMulti(file *link.Executable, symbols []symbol) (links []link.Link, err error) {
	var all []uint64
	by := make(map[effect][]uint64)
	for _, s := range symbols {
		all = append(all, s.offset)
		by[s.effect] = append(by[s.effect], s.offset)
	}
	begin, err := file.UprobeMulti(nil, p.begin, &link.UprobeMultiOptions{Addresses: all})
	if err != nil {
		return links, err
	}
	links = append(links, begin)
	for e, some := range by {
		end, err := file.UretprobeMulti(nil, p.ends[e], &link.UprobeMultiOptions{Addresses: some})
		if err != nil {
			return links, err
		}
		links = append(links, end)
	}
	return links, nil
}

// attachEach sets each probe by itself.
func (p *programs) attachEach(file *link.Executable, symbols []symbol) (links []link.Link, err error) {
	for _, s := range symbols {
		at := &link.UprobeOptions{Address: s.offset}
		begin, err := file.Uprobe(s.name, p.begin, at)
		if err != nil {
			return links, fmt.Errorf("%s: %w", s.name, err)
		}
		links = append(links, begin)
		end, err := file.Uretprobe(s.name, p.ends[s.effect], at)
		if err != nil {
			return links, fmt.Errorf("%s: %w", s.name, err)
		}
		links = append(links, end)
	}
	return links, nil
}

// closeLinks takes the probes off beside one another: each waits for the kernel.
func closeLinks(links []link.Link) error {
	errs := make([]error, len(links))
	var wait sync.WaitGroup
	for i, probe := range links {
		wait.Go(func() { errs[i] = probe.Close() })
	}
	wait.Wait()
	return errors.Join(errs...)
}
