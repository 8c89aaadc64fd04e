// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package helperapi

import (
	"errors"
	"fmt"
	"strings"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"
)

// What a caller can tell apart with errors.Is, beside
// [gpuplugin.ErrUnsupported], [gpuplugin.ErrUnavailable] and [gpuplugin.ErrNotKept].
var (
	// ErrNotReady means that the process wasn't locked within the time-out and
	// runs on.
	ErrNotReady = errors.New("GPU work did not come to rest in time")
	// ErrIllegalState means that the process is in another state than the call
	// needs.
	ErrIllegalState = errors.New("process is in another GPU state")
	// ErrNoState means that the driver knows no CUDA state of the process.
	ErrNoState = errors.New("process has no CUDA state")
	// ErrGone means that there is no such process.
	ErrGone = errors.New("no such process")
	// ErrNoSpace means that a file system is full, or a quota of it.
	ErrNoSpace = errors.New("no space left for device memory")
	// ErrNoDeviceMemory means that a device has not enough free memory.
	ErrNoDeviceMemory = errors.New("not enough free device memory")
	// ErrDamaged means that saved device memory is not what was saved.
	ErrDamaged = errors.New("saved device memory is damaged")
)

// sentinel is what errors.Is looks for in an error of the class; nil for none.
func (c Class) sentinel() error {
	switch c {
	case Class_CLASS_UNSUPPORTED:
		return gpuplugin.ErrUnsupported
	case Class_CLASS_NOT_READY:
		return ErrNotReady
	case Class_CLASS_ILLEGAL_STATE:
		return ErrIllegalState
	case Class_CLASS_NO_STATE:
		return ErrNoState
	case Class_CLASS_GONE:
		return ErrGone
	case Class_CLASS_UNAVAILABLE:
		return gpuplugin.ErrUnavailable
	case Class_CLASS_NO_SPACE:
		return ErrNoSpace
	case Class_CLASS_NO_MEMORY:
		return ErrNoDeviceMemory
	case Class_CLASS_DAMAGED:
		return ErrDamaged
	case Class_CLASS_NOT_KEPT:
		return gpuplugin.ErrNotKept
	}
	return nil
}

// Error is a failed call of the driver, on either side of the protocol.
type Error struct {
	// Class is what errors.Is goes by.
	Class Class
	// Call is the function that failed.
	Call string
	// Code and Name are its result; 0 and "" where there was none.
	Code int
	Name string
	// Detail is more for people.
	Detail string
}

// Error says what the driver said, in its own words.
func (e *Error) Error() string {
	var parts []string
	if e.Call != "" {
		parts = append(parts, e.Call)
	}
	if e.Name != "" {
		parts = append(parts, fmt.Sprintf("%s (%d)", e.Name, e.Code))
	}
	if e.Detail != "" {
		parts = append(parts, e.Detail)
	}
	if class := e.Class.sentinel(); class != nil {
		parts = append(parts, class.Error())
	}
	return strings.Join(parts, ": ")
}

// Is says whether the error is of the class that target stands for.
func (e *Error) Is(target error) bool {
	class := e.Class.sentinel()
	return class != nil && class == target
}

// ToFailure puts an error into the protocol's form; nil stays nil.
func ToFailure(err error) *Failure {
	if err == nil {
		return nil
	}
	var e *Error
	if !errors.As(err, &e) {
		class, text := classOf(err), err.Error()
		if own := class.sentinel(); own != nil {
			text = strings.TrimSuffix(text, ": "+own.Error()) // the class says it again
		}
		return &Failure{Class: class, Detail: text}
	}
	return &Failure{
		Class:  e.Class,
		Call:   e.Call,
		Code:   int32(e.Code),
		Name:   e.Name,
		Detail: e.Detail,
	}
}

// FromFailure is the way back; nil stays nil.
func FromFailure(f *Failure) error {
	if f == nil {
		return nil
	}
	return &Error{Class: f.GetClass(), Call: f.GetCall(), Code: int(f.GetCode()), Name: f.GetName(), Detail: f.GetDetail()}
}

func classOf(err error) Class {
	for number := range Class_name {
		if s := Class(number).sentinel(); s != nil && errors.Is(err, s) {
			return Class(number)
		}
	}
	return Class_CLASS_OTHER
}
