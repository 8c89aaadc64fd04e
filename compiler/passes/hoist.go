// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package passes

import (
	"fmt"
	"slices"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
)

// hoistShared makes variables of the module of those that functions have in
// shared memory: a block of threads has one copy of each, however often the
// function's body is pasted.
func hoistShared(m *ir.Module) error {
	taken := map[string]bool{}
	for _, v := range m.Vars {
		taken[v.Name] = true
	}
	for _, f := range m.Funcs {
		taken[f.Name] = true
	}
	for _, f := range m.Funcs {
		f.Vars = slices.DeleteFunc(f.Vars, func(v *ir.Var) bool {
			if v.Space != ir.Shared {
				return false
			}
			name := f.Name + "." + v.Name
			for n := 1; taken[name]; n++ {
				name = fmt.Sprintf("%s.%s.%d", f.Name, v.Name, n)
			}
			taken[name] = true
			v.Name = name
			m.Vars = append(m.Vars, v)
			return true
		})
	}
	return nil
}
