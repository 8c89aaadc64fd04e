// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package ipcwatch

import (
	"encoding/binary"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// record is one of the kernel's, of any kind.
func record(kind uint32, body ...uint64) []byte {
	b := binary.NativeEndian.AppendUint32(nil, kind)
	b = binary.NativeEndian.AppendUint16(b, 0)
	b = binary.NativeEndian.AppendUint16(b, uint16(headerSize+8*len(body)))
	for _, word := range body {
		b = binary.NativeEndian.AppendUint64(b, word)
	}
	return b
}

func TestRing(t *testing.T) {
	page := uint64(os.Getpagesize())
	call := func(id uint64) []byte { return record(unix.PERF_RECORD_SAMPLE, id, 7|9<<32, 1000+id) }
	tests := map[string]struct {
		at       uint64 // where the first record begins
		records  [][]byte
		want     []uint64
		complete bool
	}{
		"empty":                {at: 32, complete: true},
		"two":                  {at: 0, records: [][]byte{call(1), call(2)}, want: []uint64{1, 2}, complete: true},
		"across the end":       {at: page - 40, records: [][]byte{call(1), call(2), call(3)}, want: []uint64{1, 2, 3}, complete: true},
		"many times round":     {at: 100*page - 8, records: [][]byte{call(4)}, want: []uint64{4}, complete: true},
		"other kinds":          {records: [][]byte{record(unix.PERF_RECORD_THROTTLE, 1, 2), call(5)}, want: []uint64{5}, complete: true},
		"dropped":              {records: [][]byte{call(1), record(unix.PERF_RECORD_LOST, 1, 2), call(2)}, want: []uint64{1, 2}},
		"a sample cut short":   {records: [][]byte{record(unix.PERF_RECORD_SAMPLE, 1)}},
		"not a record":         {records: [][]byte{make([]byte, 16), call(1)}},
		"longer than there is": {records: [][]byte{call(1)[:24]}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := &ring{memory: make([]byte, 2*page), meta: &unix.PerfEventMmapPage{Data_tail: test.at, Data_head: test.at}}
			for _, rec := range test.records {
				for i, b := range rec {
					r.memory[page+(r.meta.Data_head+uint64(i))%page] = b
				}
				r.meta.Data_head += uint64(len(rec))
			}
			var got []uint64
			complete := r.read(func(s sample) {
				if s.pid != 7 || s.tid != 9 || s.time != 1000+s.id {
					t.Errorf("sample = %+v", s)
				}
				got = append(got, s.id)
			})
			if complete != test.complete || !slices.Equal(got, test.want) {
				t.Errorf("got %v, complete %v; want %v, %v", got, complete, test.want, test.complete)
			}
			if r.meta.Data_tail != r.meta.Data_head {
				t.Errorf("tail is %d, head %d", r.meta.Data_tail, r.meta.Data_head)
			}
		})
	}
}

func TestParseCPUs(t *testing.T) {
	for list, want := range map[string][]int{"0": {0}, "0-3": {0, 1, 2, 3}, "0,2-3,8": {0, 2, 3, 8}} {
		if got, err := parseCPUs(list); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v", list, got, err)
		}
	}
	for _, list := range []string{"", "a", "1-", "-1"} {
		if got, err := parseCPUs(list); err == nil {
			t.Errorf("%q: %v, no error", list, got)
		}
	}
}

func TestParseMapping(t *testing.T) {
	tests := map[string]struct {
		line string
		ok   bool
		want mapping
	}{
		"code":    {"7f10a000-7f10c000 r-xp 00001000 fe:00 12 /a/libcuda.so.580.1", true, mapping{start: 0x7f10a000, end: 0x7f10c000, offset: 0x1000, path: "/a/libcuda.so.580.1", code: true}},
		"data":    {"7f10a000-7f10c000 rw-p 00001000 fe:00 12 /a/libcuda.so.1 (deleted)", true, mapping{start: 0x7f10a000, end: 0x7f10c000, offset: 0x1000, path: "/a/libcuda.so.1"}},
		"runtime": {"7f10a000-7f10c000 r-xp 00001000 fe:00 12 /a/libcudart.so.12", false, mapping{}},
		"no name": {"7f10a000-7f10c000 r-xp 00001000 00:00 0", false, mapping{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, ok, err := parseMapping(test.line)
			if err != nil || ok != test.ok || ok && got != test.want {
				t.Errorf("got %+v, %v, %v", got, ok, err)
			}
		})
	}
	if _, _, err := parseMapping("x r-xp y fe:00 12 /a/libcuda.so.1"); err == nil {
		t.Error("nonsense is accepted")
	}
}
