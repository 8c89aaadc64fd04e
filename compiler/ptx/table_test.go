// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package ptx

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// deciding is as much of an instruction's name as is in the table.
func deciding(in *Instr) string {
	name := in.Op
	found := ""
	for i := 0; ; i++ {
		if _, ok := opcodes[name]; ok {
			found = name
		}
		if i == len(in.Mods) || i == 3 {
			return found
		}
		name += "." + in.Mods[i]
	}
}

// each calls do with every instruction of a scope and of those in it.
func each(s *Scope, do func(*Instr)) {
	for _, st := range s.Stmts {
		switch st := st.(type) {
		case *Instr:
			do(st)
		case *Scope:
			each(st, do)
		}
	}
}

// TestSamplesAreComplete: every opcode of the table is in a sample, which TestRoundTrip
// parses and prints.
func TestSamplesAreComplete(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range files(t) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		m, err := Parse(string(text))
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range m.Decls {
			if f, ok := d.(*Func); ok && f.Body != nil {
				each(f.Body, func(in *Instr) { seen[deciding(in)] = true })
			}
		}
	}
	for _, name := range slices.Concat(Opcodes(Everywhere), Opcodes(NVIDIAOnly)) {
		if !seen[name] {
			t.Errorf("no sample has %s", name)
		}
	}
}

// TestModReasons: each modifier that makes an instruction NVIDIA's alone does, of one
// that runs everywhere without it.
func TestModReasons(t *testing.T) {
	for mod, reason := range modReasons {
		if class, why := Classify("ld", []string{mod, "u32"}); class != NVIDIAOnly || why != reason {
			t.Errorf("ld.%s.u32 has class %d, %q", mod, class, why)
		}
	}
	if class, why := Classify("ld", []string{"shared", "u32"}); class != Everywhere || why != "" {
		t.Errorf("ld.shared.u32 has class %d, %q", class, why)
	}
}

// TestVersions: PTX ISA 6.0 to 8.8, and 9.x as far as its instructions are those; for
// any target.
func TestVersions(t *testing.T) {
	for version, known := range map[string]bool{
		"5.0": false, "5.9": false, "6.0": true, "6.5": true, "7.0": true, "7.8": true, "8.0": true, "8.8": true, "9.0": true, "10.0": false,
	} {
		if _, err := Parse(fmt.Sprintf(".version %s\n.target sm_70\n.address_size 64\n", version)); (err == nil) != known {
			t.Errorf("%s: %v", version, err)
		}
	}
	for target := range strings.FieldsSeq("sm_50 sm_52 sm_53 sm_60 sm_61 sm_62 sm_70 sm_72 sm_75 sm_80 sm_86 sm_87 sm_89 sm_90 sm_90a sm_100 sm_100a sm_100f sm_101a sm_103 sm_120a") {
		m, err := Parse(".version 8.8\n.target " + target + ", debug\n.address_size 64\n")
		if err != nil || m.Targets[0] != target {
			t.Errorf("%s: %v", target, err)
		}
	}
}
