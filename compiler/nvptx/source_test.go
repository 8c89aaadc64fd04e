// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package nvptx_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestSource: what the program says of its source's lines and of loops stays where it
// was, in both kernels; the loop without a pragma has none.
func TestSource(t *testing.T) {
	text, err := load(t, `.version 8.0
.target sm_80
.address_size 64
.file 7 "loops.cu"
.file 3 "other.h"
.visible .entry k(.param .u64 p)
{
	.reg .pred %p; .reg .b32 %r<3>; .reg .b64 %d;
	.loc 7 10 2
	ld.param.u64 %d, [p];
	mov.u32 %r0, 0;
first:
	.pragma "nounroll";
	.loc 7 12 5
	add.u32 %r0, %r0, 3;
	.loc 3 12 5, function_name $L__info0, inlined_at 7 12 9
	setp.lt.u32 %p, %r0, 100;
	.loc 7 12 1
	@%p bra first;
second:
	add.u32 %r0, %r0, 5;
	bar.sync 0;
	setp.lt.u32 %p, %r0, 200;
	.pragma "used_bytes_mask 0xf";
	@%p bra second;
	st.global.u32 [%d], %r0;
	ret;
}
`).Emit("ptx")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	own, resume, _ := strings.Cut(text, ".entry k__resume(")
	later := regexp.MustCompile(`(?s)\$hg_block\d+_1:.*`) // the second round of a loop, and all behind it
	for line := range strings.Lines(later.ReplaceAllString(own, "") + later.ReplaceAllString(resume, "")) {
		line = strings.TrimSpace(line)
		for _, prefix := range []string{".file", ".loc", ".pragma", "add.u32 %r2", "setp.lt.u32 %p0"} {
			if strings.HasPrefix(line, prefix) {
				got = append(got, line)
			}
		}
	}
	kernel := []string{
		".loc 7 10 0", ".loc 7 12 0", `.pragma "nounroll";`, "add.u32 %r2, %r2, 3;", ".loc 3 12 0", "setp.lt.u32 %p0, %r2, 100;",
		".loc 7 12 0", "add.u32 %r2, %r2, 5;", "setp.lt.u32 %p0, %r2, 200;",
	}
	want := slices.Concat([]string{`.file 7 "loops.cu"`, `.file 3 "other.h"`}, kernel, kernel)
	if !slices.Equal(got, want) {
		t.Errorf("%q, not %q\n%s", got, want, text)
	}
}
