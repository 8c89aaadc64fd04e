// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// warmChunk is touched at once by one thread.
	warmChunk = 256 << 20
	// warmSpare is what stays free meanwhile.
	warmSpare = 2 << 30
	// warmWait is how long a machine whose memory grows with its use may take
	// to grow.
	warmWait = 2 * time.Second
)

// warm touches so much memory and gives it back, so that the memory that a
// measured operation gets is there already: a virtual machine may have handed
// free memory back to its host, and then the first touch of each page costs
// more than all that is to be measured. It returns the rate in GB/s.
func warm(ctx context.Context, mib int) float64 {
	start := time.Now()
	var (
		group  sync.WaitGroup
		chunks = make(chan []byte)
		all    [][]byte
	)
	for range runtime.NumCPU() {
		group.Go(func() {
			for chunk := range chunks {
				for i := 0; i < len(chunk); i += os.Getpagesize() {
					chunk[i] = 1
				}
			}
		})
	}
	for total := int64(mib) << 20; int64(len(all))*warmChunk < total && ctx.Err() == nil && roomFor(ctx, warmChunk); {
		chunk, err := unix.Mmap(-1, 0, warmChunk, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			break
		}
		_ = unix.Madvise(chunk, unix.MADV_HUGEPAGE) // small pages do, too
		all = append(all, chunk)
		chunks <- chunk
	}
	close(chunks)
	group.Wait()
	took := time.Since(start).Seconds()
	for _, chunk := range all {
		_ = unix.Munmap(chunk) // it was mapped above
	}
	return float64(len(all)) * warmChunk / took / 1e9
}

// roomFor waits a moment until so much memory can be had without harm.
func roomFor(ctx context.Context, bytes int64) bool {
	end := time.Now().Add(warmWait)
	for {
		if available := meminfo("MemAvailable"); available > bytes+warmSpare {
			return true
		}
		if time.Now().After(end) {
			return false
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// meminfo reads a value of /proc/meminfo, in bytes; 0 if there is none.
func meminfo(key string) int64 {
	file, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), key+":"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			if err != nil {
				return 0
			}
			return kib << 10
		}
	}
	return 0
}
