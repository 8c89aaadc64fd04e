// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package ipcwatch

import (
	"fmt"
	"os"
)

// CodeOf is what the memory of a process has at each probed function.
func (w *Watcher) CodeOf(pid int) ([]byte, error) {
	maps, err := librariesIn("/proc", pid)
	if err != nil {
		return nil, err
	}
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return nil, err
	}
	defer memory.Close()
	var code []byte
	for _, m := range maps {
		for _, s := range w.libraries[m.file].symbols {
			if !m.code || s.offset < m.offset || s.offset >= m.offset+m.end-m.start {
				continue
			}
			now := make([]byte, len(s.code))
			if _, err := memory.ReadAt(now, int64(m.start+s.offset-m.offset)); err != nil {
				return nil, err
			}
			code = append(code, now...)
		}
	}
	return code, nil
}

// OriginalCode is what the one library has there.
func (w *Watcher) OriginalCode() []byte {
	var code []byte
	for _, lib := range w.libraries {
		for _, s := range lib.symbols {
			code = append(code, s.code...)
		}
	}
	return code
}
