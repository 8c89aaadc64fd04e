// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package ptx

import "fmt"

// Error is what is wrong with a program, and where. Line and Col count from 1.
type Error struct {
	Line, Col int
	Msg       string
}

func (e *Error) Error() string { return fmt.Sprintf("%d:%d: %s", e.Line, e.Col, e.Msg) }

// Errorf makes an error at pos.
func (p Pos) Errorf(format string, args ...any) *Error {
	return &Error{Line: int(p.Line), Col: int(p.Col), Msg: fmt.Sprintf(format, args...)}
}
