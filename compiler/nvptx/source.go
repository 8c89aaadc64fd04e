// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package nvptx

import (
	"slices"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ptx"
)

// source is what the program's text says beside its instructions, which the
// intermediate form doesn't know: no result depends on it.
type source struct {
	// files are those that ir.Pos counts from 1.
	files []ptx.File
	// rolled are the instructions behind a .pragma "nounroll", by where they stand.
	rolled map[place]bool
}

// place is a line and a column of the program's text.
type place struct{ line, col int32 }

func sourceOf(m *ptx.Module) *source {
	s := &source{files: m.Files, rolled: map[place]bool{}}
	var scopes []*ptx.Scope
	for _, d := range m.Decls {
		if f, ok := d.(*ptx.Func); ok && f.Body != nil {
			scopes = append(scopes, f.Body)
		}
	}
	for ; len(scopes) > 0; scopes = scopes[1:] {
		rolled := false
		for _, st := range scopes[0].Stmts {
			switch st := st.(type) {
			case *ptx.Scope:
				scopes = append(scopes, st)
			case *ptx.Pragma:
				rolled = rolled || slices.Contains(st.Words, "nounroll")
			case *ptx.Instr:
				if rolled {
					s.rolled[place{st.Pos.Line, st.Pos.Col}] = true
				}
				rolled = false
			}
		}
	}
	return s
}

// source prints what was said before b's i-th instruction: where it comes from, if
// that is not where the one before does, for debuggers and profilers (the column is
// not known any more); and that the loop which begins here is not to be unrolled.
func (e *emitter) source(b *ir.Block, i int) {
	at := b.Instrs[i].Pos
	if at.File > 0 && int(at.File) <= len(e.src.files) && (at.File != e.loc.File || at.SrcLine != e.loc.SrcLine) {
		e.loc = at
		e.line(".loc %d %d 0", e.src.files[at.File-1].Number, at.SrcLine)
	}
	if i == 0 && e.round == 0 && e.src.rolled[place{at.Line, at.Col}] {
		e.line(".pragma \"nounroll\";")
	}
}
