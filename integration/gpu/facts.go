// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/version"
)

// Host is what the suite ran on.
type Host struct {
	Devices    []gpuplugin.Device `json:"devices"`
	Driver     string             `json:"driver"`
	API        int                `json:"api"`
	OS         string             `json:"os"`
	Kernel     string             `json:"kernel"`
	Cgroups    string             `json:"cgroups"`
	CPU        string             `json:"cpu"`
	CPUs       int                `json:"cpus"`
	Memory     int64              `json:"memory_bytes"`
	Disk       string             `json:"disk"`
	HetGPU     string             `json:"hetgpu"`
	Containerd string             `json:"containerd"`
	Runc       string             `json:"runc"`
	CRIU       string             `json:"criu"`
	// Rates in GB/s: the first touch of memory, then files.
	TouchRate     float64 `json:"touch_gb_s"`
	TmpfsRate     float64 `json:"tmpfs_write_gb_s"`
	DiskWriteRate float64 `json:"disk_write_gb_s"`
	DiskReadRate  float64 `json:"disk_read_gb_s"`
	// Doctor is what "hetgpu doctor" says.
	Doctor string `json:"doctor"`
}

// describeHost finds out what it can; what it can't is a note in the report.
func (s *suite) describeHost(ctx context.Context) Host {
	h := Host{
		Devices: s.gpu.Devices, Driver: s.gpu.Driver, API: s.gpu.API,
		CPUs: runtime.NumCPU(), Cgroups: "version 1", HetGPU: version.Version,
		CPU: lineOf("/proc/cpuinfo", "model name"), OS: strings.Trim(lineOf("/etc/os-release", "PRETTY_NAME"), `"`),
	}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		h.Cgroups = "version 2"
	}
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		s.note(err)
	}
	h.Kernel = unix.ByteSliceToString(uts.Release[:])
	var fs unix.Statfs_t
	if err := unix.Statfs(s.disk, &fs); err != nil {
		s.note(err)
	}
	h.Disk = fmt.Sprintf("file system %#x, %d GiB free", fs.Type, int64(fs.Bavail)*fs.Bsize>>30)
	if v, err := s.d.Client.Version(ctx); err != nil {
		s.note(err)
	} else {
		h.Containerd = v.Version
	}
	h.Runc = s.firstLine(ctx, "runc", "--version")
	h.CRIU = s.firstLine(ctx, "criu", "--version")
	// It fails where something is missing; the report shows what.
	doctor, err := s.d.Exec(ctx, "hetgpu", "doctor", "--address", s.d.Address())
	if h.Doctor = doctor; doctor == "" && err != nil {
		s.note(err)
	}
	if err := s.rates(ctx, &h); err != nil {
		s.note(fmt.Errorf("rates of memory and disk: %w", err))
	}
	return h
}

func (s *suite) note(err error) { s.run.Notes = append(s.run.Notes, err.Error()) }

func (s *suite) firstLine(ctx context.Context, program string, args ...string) string {
	out, err := s.d.Exec(ctx, program, args...)
	if err != nil {
		s.note(err)
	}
	line, _, _ := strings.Cut(out, "\n")
	return line
}

// lineOf returns what a file says after a key, "" if it says nothing.
func lineOf(file, key string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(data)) {
		rest, ok := strings.CutPrefix(line, key)
		if ok {
			return strings.TrimSpace(strings.TrimLeft(rest, " \t:="))
		}
	}
	return ""
}

// rates measures memory and files, on so much data that it takes a second.
func (s *suite) rates(ctx context.Context, h *Host) error {
	mib := 2048
	if s.gpu.machine != nil {
		mib = 256
	}
	h.TouchRate = warm(ctx, mib)
	h.Memory = meminfo("MemTotal")
	var err error
	if h.TmpfsRate, err = writeRate(s.ram, mib, 8, 0); err != nil {
		return err
	}
	if h.DiskWriteRate, err = writeRate(s.disk, mib, 4, unix.O_DIRECT); err != nil {
		return err
	}
	h.DiskReadRate, err = readRate(filepath.Join(s.disk, "rate-0"))
	for i := range 8 {
		os.Remove(filepath.Join(s.ram, fmt.Sprintf("rate-%d", i)))
		os.Remove(filepath.Join(s.disk, fmt.Sprintf("rate-%d", i)))
	}
	return err
}

// rateBlock is how much is written at once.
const rateBlock = 8 << 20

// writeRate writes files side by side and returns GB/s.
func writeRate(dir string, mib, files, flags int) (float64, error) {
	var group sync.WaitGroup
	errs := make([]error, files)
	start := time.Now()
	for i := range files {
		group.Go(func() {
			errs[i] = writeFile(filepath.Join(dir, fmt.Sprintf("rate-%d", i)), (mib<<20)/files, flags)
		})
	}
	group.Wait()
	return float64(mib<<20) / time.Since(start).Seconds() / 1e9, errors.Join(errs...)
}

func writeFile(name string, size, flags int) error {
	block, err := alignedBlock()
	if err != nil {
		return err
	}
	defer unix.Munmap(block) //nolint:errcheck // it was mapped there
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC|flags, 0o600)
	if err != nil {
		return err
	}
	for written := 0; written < size && err == nil; written += len(block) {
		_, err = f.Write(block)
	}
	if flags != 0 && err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// alignedBlock is memory as direct input and output want it.
func alignedBlock() ([]byte, error) {
	block, err := unix.Mmap(-1, 0, rateBlock, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	for i := range block {
		block[i] = byte(i * 2654435761 >> 13)
	}
	return block, err
}

func readRate(name string) (float64, error) {
	block, err := alignedBlock()
	if err != nil {
		return 0, err
	}
	defer unix.Munmap(block) //nolint:errcheck // it was mapped there
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var read int
	start := time.Now()
	for err == nil {
		var n int
		n, err = f.Read(block)
		read += n
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return float64(read) / time.Since(start).Seconds() / 1e9, err
}
