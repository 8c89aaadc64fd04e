// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/runtime/snapshot"
)

// maxIndent keeps a deep tree on the screen.
const maxIndent = 16

// Print writes the report for people.
func (r *Report) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	p := printer{t}
	p.line("snapshot", "%s %s", r.Source.Kind, plain(r.Source.Name))
	if r.Source.Digest != "" {
		p.line("", "%s", plain(r.Source.Digest))
	}
	switch {
	case r.Manifest != nil:
		p.manifest(r.Manifest)
		p.keeper(r)
		p.encryption(r.Encryption)
	case len(r.Problems) == 0:
		p.line("made", "by the stock shim (no manifest)")
	}
	p.processes(r.Processes)
	p.line("files", "%s, %s", plural(r.Content.Files, "file", "files"), size(uint64(r.Content.Bytes)))
	if len(r.Content.Others) > 0 {
		p.line("beside", "%s", plain(strings.Join(r.Content.Others, ", ")))
	}
	p.line("digests", "%s", r.Digests)
	for _, problem := range r.Problems {
		p.line("PROBLEM", "%s", plain(problem))
	}
	return t.Flush()
}

// printer writes lines of two columns. Errors show at the writer's Flush.
type printer struct{ w io.Writer }

func (p printer) line(what, format string, args ...any) {
	fmt.Fprintf(p.w, "%s\t%s\n", what, fmt.Sprintf(format, args...))
}

func (p printer) manifest(m *snapshot.Manifest) {
	p.line("made", "%s, format %d", m.Created.Format("2006-01-02 15:04:05 MST"), m.Version)
	p.line("container", "%s in namespace %s", plain(m.Container.ID), plain(m.Container.Namespace))
	p.line("engine", "%s", plain(m.Engine))
	if m.EngineReason != "" {
		p.line("", "%s", plain(m.EngineReason))
	}
	if m.Library != nil {
		p.line("library", "libhetcuda, build %s", plain(m.Library.BuildID))
	}
	for _, d := range m.Devices {
		p.device(d)
	}
	for _, proc := range m.Processes {
		p.line("GPU process", "%s, PID %s, %s%s", plain(proc.Command), pids(proc.NSPIDs), plain(string(proc.State)), carrier(proc.Memory, m.Kept()))
	}
	if mem := m.Memory; mem != nil && mem.Keeper == nil {
		p.line("GPU memory", "%s: %s stored, %s zero%s", size(mem.Bytes), size(mem.StoredBytes), size(mem.ZeroBytes), reused(mem.ReusedBytes))
	}
	p.line("host", "%s", host(m.Host))
	if options := options(m.Options); options != "" {
		p.line("options", "%s", options)
	}
	if m.StopSeconds > 0 {
		p.line("stopped", "%.3f s", m.StopSeconds)
	}
	total := 0.0
	for _, phase := range m.Phases {
		p.line("phase", "%-20s %8.3f s", plain(phase.Name), phase.Seconds)
		total += phase.Seconds
	}
	if len(m.Phases) > 0 {
		// More than the time that it took: some of them run side by side.
		p.line("", "%-20s %8.3f s", "sum", total)
	}
}

// keeper says where device memory is that is in no file.
func (p printer) keeper(r *Report) {
	switch kept, now := r.Manifest.Kept(), r.Keeper; {
	case kept == nil:
	case now == nil:
		p.line("GPU memory", "%s, not in files: keeper %s", size(r.Manifest.Memory.KeptBytes), plain(kept.ID))
	default:
		p.line("GPU memory", "%s, not in files: kept on the GPU by process %d", size(now.Bytes()), now.PID)
		if now.By != "" {
			p.line("", "being taken by %s", plain(now.By))
		}
	}
}

// encryption says whose key the device memory needs.
func (p printer) encryption(e *Encryption) {
	switch {
	case e == nil:
	case e.Here:
		p.line("encrypted", "GPU memory, with this host's key %s", e.KeyID)
	default:
		p.line("encrypted", "GPU memory, with the key %s, which is not here", e.KeyID)
		p.line("", "%s", plain(e.Reason))
	}
}

// carrier says who saved the memory of a process, where it may be one or another.
func carrier(memory string, kept *snapshot.Keeper) string {
	switch {
	case memory == "":
		return ""
	case memory == snapshot.MemorySplit && kept != nil:
		return ", memory on the GPU"
	case memory == snapshot.MemorySplit:
		return ", memory in files"
	case memory == snapshot.MemoryStorage:
		return ", memory in files, shown by the driver"
	}
	return ", memory saved by the driver"
}

func reused(bytes uint64) string {
	if bytes == 0 {
		return ""
	}
	return ", " + size(bytes) + " in snapshots before"
}

func (p printer) device(d gpuplugin.Device) {
	mig := ""
	if d.MIG {
		mig = ", MIG"
	}
	p.line("GPU", "%s, %s, %s, %s used%s", plain(d.Model), plain(d.UUID), size(d.MemoryBytes), size(d.UsedBytes), mig)
}

// processes shows the tree.
func (p printer) processes(list []Process) {
	if list == nil {
		p.line("processes", "not readable")
		return
	}
	threads := 0
	for _, proc := range list {
		threads += proc.Threads
	}
	p.line("processes", "%s, %s", plural(len(list), "process", "processes"), plural(threads, "thread", "threads"))
	for _, proc := range list {
		line := strings.Repeat("  ", min(proc.depth, maxIndent)) + strconv.Itoa(proc.PID) + " " + plain(proc.Command)
		if proc.Threads > 1 {
			line += ", " + plural(proc.Threads, "thread", "threads")
		}
		if proc.GPU {
			line += ", GPU state"
		}
		p.line("", "%s", line)
	}
}

// pids shows a process's PID as the container knows it; and outside of it.
func pids(ns []int) string {
	inner := strconv.Itoa(ns[len(ns)-1])
	if len(ns) == 1 {
		return inner
	}
	outer := make([]string, 0, len(ns)-1)
	for _, pid := range ns[:len(ns)-1] {
		outer = append(outer, strconv.Itoa(pid))
	}
	return inner + " (outside " + strings.Join(outer, ", ") + ")"
}

func host(h snapshot.Host) string {
	parts := []string{"Linux " + plain(h.Kernel) + " " + plain(h.Arch)}
	for _, v := range []struct{ name, version string }{{"runc", strings.TrimPrefix(h.Runc, "runc version ")}, {"CRIU", h.CRIU}, {"driver", h.Driver}} {
		if v.version != "" {
			parts = append(parts, v.name+" "+plain(v.version))
		}
	}
	if h.API > 0 {
		parts = append(parts, fmt.Sprintf("API %d", h.API))
	}
	return strings.Join(parts, ", ")
}

func options(o snapshot.Options) string {
	var set []string
	for _, option := range []struct {
		name string
		on   bool
	}{
		{"established TCP connections", o.TCPEstablished},
		{"external unix sockets", o.ExternalUnixSockets},
		{"file locks", o.FileLocks},
		{"terminal", o.Terminal},
		{"incremental (needs its parent)", o.Incremental && !o.WholePages},
		{"incremental (device memory only; needs its parent)", o.WholePages},
	} {
		if option.on {
			set = append(set, option.name)
		}
	}
	return strings.Join(set, ", ")
}

// plain makes a text of a snapshot safe for a terminal.
func plain(s string) string {
	if s == "" {
		return "-"
	}
	return strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// size shows a number of bytes with three digits.
func size(n uint64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return strconv.FormatUint(n, 10) + " B"
	}
	f, unit := float64(n)/1024, 0
	for f >= 1000 && unit < len(units)-1 {
		f /= 1024
		unit++
	}
	return strconv.FormatFloat(f, 'f', 1, 64) + " " + units[unit:unit+1] + "iB"
}
