// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package ipcwatch

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// calls is what the kernel counts of one process. The programs write it by the
// offsets below.
type calls struct {
	// Memory is how many memory handles are open: opened less closed.
	Memory int64
	// Events is how many event handles were opened. They are closed by
	// cuEventDestroy, as other events are, so that can't be told.
	Events int64
	// Under is how many calls are under way.
	Under int64
	// Since is when the process made its first call, in nanoseconds since boot.
	Since uint64
}

const (
	offMemory, offEvents, offUnder, offSince = 0, 8, 16, 24
	callsSize                                = 32
)

const (
	// maxProcesses is how many processes that make calls can be told apart,
	// among all on the host that map the library.
	maxProcesses = 4096
	// lostKey is no process's. Since of its entry is when there was room for no
	// more, 0 if that never was.
	lostKey = uint32(0)
)

// resultAt is where a program finds the result of the function that returns: rax
// in struct pt_regs, x0 in struct user_pt_regs.
func resultAt(arch string) (_ int16, known bool) {
	switch arch {
	case "amd64":
		return 80, true
	case "arm64":
		return 0, true
	}
	return 0, false
}

// initialPIDs is the first PID namespace, which has always had this number
// (PROC_PID_INIT_INO in the kernel's include/linux/proc_ns.h).
const initialPIDs = "pid:[4026531836]"

// programs count the calls: begin runs where one begins, and the others, by
// what the call has changed, where it returns.
type programs struct {
	// kind is how they are attached.
	kind  ebpf.AttachType
	table *ebpf.Map // calls by PID
	begin *ebpf.Program
	ends  map[effect]*ebpf.Program
}

// Supported tells why calls can't be counted on this host; nil if they can.
func Supported() error {
	p, err := loadPrograms()
	if err != nil {
		return err
	}
	return p.close()
}

func loadPrograms() (_ *programs, err error) {
	result, ok := resultAt(runtime.GOARCH)
	if !ok {
		return nil, fmt.Errorf("no program was written for %s", runtime.GOARCH)
	}
	// Without it, the library would fall back to a way that leaves things
	// behind after a crash.
	if _, err := os.Stat("/sys/bus/event_source/devices/uprobe/type"); err != nil {
		return nil, fmt.Errorf("the kernel has no uprobes (CONFIG_UPROBE_EVENTS): %w", err)
	}
	// The programs see PIDs of the initial namespace and no others.
	if ns, err := os.Readlink("/proc/self/ns/pid"); err != nil || ns != initialPIDs {
		return nil, errors.Join(errors.New("containerd runs in a PID namespace of its own"), err)
	}
	p := &programs{kind: attachKind(), ends: make(map[effect]*ebpf.Program)}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	p.table, err = ebpf.NewMap(&ebpf.MapSpec{
		Name: "hetgpu_ipc", Type: ebpf.Hash, KeySize: 4, ValueSize: callsSize, MaxEntries: maxProcesses,
	})
	if err != nil {
		return nil, fmt.Errorf("make a BPF map: %w", err)
	}
	if err = p.table.Put(lostKey, &calls{}); err != nil {
		return nil, fmt.Errorf("fill the BPF map: %w", err)
	}
	if p.begin, err = load("hetgpu_begin", p.kind, beginCode(p.table.FD())); err != nil {
		return nil, err
	}
	for e, change := range changes {
		if p.ends[effect(e)], err = load("hetgpu_end", p.kind, endCode(p.table.FD(), result, change.member, change.by)); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func load(name string, kind ebpf.AttachType, code asm.Instructions) (*ebpf.Program, error) {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: name, Type: ebpf.Kprobe, AttachType: kind, License: "Apache-2.0", Instructions: code,
	})
	if err != nil {
		return nil, fmt.Errorf("load the BPF program %s: %w", name, err)
	}
	return p, nil
}

func (p *programs) close() error {
	errs := []error{p.table.Close(), p.begin.Close()} // nil is fine for both
	for _, end := range p.ends {
		errs = append(errs, end.Close())
	}
	return errors.Join(errs...)
}

// Where the programs have things on their stack.
const (
	stackKey   = -4
	stackCalls = -8 - callsSize
)

// lookUp finds the entry of the process that makes the call: R0 is its address,
// or 0.
func lookUp(table int) asm.Instructions {
	return asm.Instructions{
		asm.FnGetCurrentPidTgid.Call(),
		asm.RSh.Imm(asm.R0, 32), // the process; the lower half is the thread
		asm.StoreMem(asm.RFP, stackKey, asm.R0, asm.Word),
		asm.LoadMapPtr(asm.R1, table),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, stackKey),
		asm.FnMapLookupElem.Call(),
	}
}

// add adds to a member of the entry at R6, whatever other threads do.
func add(member, by int32) asm.Instructions {
	return asm.Instructions{
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.Add.Imm(asm.R1, member),
		asm.Mov.Imm(asm.R2, by),
		asm.StoreXAdd(asm.R1, asm.R2, asm.DWord),
	}
}

// label names the first of the instructions.
func label(name string, code asm.Instructions) asm.Instructions {
	code[0] = code[0].WithSymbol(name)
	return code
}

// program joins pieces of code and ends them at the label "out".
func program(pieces ...asm.Instructions) asm.Instructions {
	var all asm.Instructions
	for _, p := range pieces {
		all = append(all, p...)
	}
	return append(all, asm.Mov.Imm(asm.R0, 0).WithSymbol("out"), asm.Return())
}

// beginCode counts one more call under way, in an entry that it makes if there
// is none.
func beginCode(table int) asm.Instructions {
	return program(
		lookUp(table),
		asm.Instructions{
			asm.Mov.Reg(asm.R6, asm.R0),
			asm.JNE.Imm(asm.R0, 0, "found"),
			asm.FnKtimeGetBootNs.Call(),
			asm.Mov.Reg(asm.R7, asm.R0),
			asm.Mov.Imm(asm.R1, 0),
			asm.StoreMem(asm.RFP, stackCalls+offMemory, asm.R1, asm.DWord),
			asm.StoreMem(asm.RFP, stackCalls+offEvents, asm.R1, asm.DWord),
			asm.StoreMem(asm.RFP, stackCalls+offUnder, asm.R1, asm.DWord),
			asm.StoreMem(asm.RFP, stackCalls+offSince, asm.R7, asm.DWord),
			asm.LoadMapPtr(asm.R1, table),
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, stackKey),
			asm.Mov.Reg(asm.R3, asm.RFP),
			asm.Add.Imm(asm.R3, stackCalls),
			asm.Mov.Imm(asm.R4, int32(ebpf.UpdateNoExist)), // another thread may have been faster
			asm.FnMapUpdateElem.Call(),
		},
		lookUp(table),
		asm.Instructions{
			asm.Mov.Reg(asm.R6, asm.R0),
			asm.JNE.Imm(asm.R0, 0, "found"),
			// The table is full.
			asm.StoreImm(asm.RFP, stackKey, int64(lostKey), asm.Word),
			asm.LoadMapPtr(asm.R1, table),
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, stackKey),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "out"),
			asm.StoreMem(asm.R0, offSince, asm.R7, asm.DWord),
			asm.Ja.Label("out"),
		},
		label("found", add(offUnder, 1)),
	)
}

// endCode changes a member of the entry if the call succeeded, and then counts
// one call less under way.
func endCode(table int, result int16, member, by int32) asm.Instructions {
	return program(
		asm.Instructions{asm.LoadMem(asm.R8, asm.R1, result, asm.Word)},
		lookUp(table),
		asm.Instructions{
			asm.JEq.Imm(asm.R0, 0, "out"),
			asm.Mov.Reg(asm.R6, asm.R0),
			asm.JNE.Imm(asm.R8, 0, "failed"), // CUDA_SUCCESS is 0
		},
		add(member, by),
		label("failed", add(offUnder, -1)),
	)
}
