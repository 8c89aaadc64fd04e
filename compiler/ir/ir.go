// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package ir is the compiler's form of a program: PTX's own meaning, with types
// resolved, names bound, control flow in blocks, and nothing of PTX's syntax.
//
// Registers are virtual and not in SSA form: what is saved at a pause is "the
// value of register r", which means the same in every back end. docs/ir.md has
// the meaning of every operation; this package has the data, its text form
// (Parse, Module.String) and its verifier (Verify).
//
// It knows nothing of PTX's text, of any target language, and of containers.
package ir

// Module is a translation unit.
type Module struct {
	// Target is PTX's .target, "sm_90" for example. Nothing depends on it but
	// what a program reads of it.
	Target string
	// Vars are the variables of the module: global, const and shared ones.
	Vars []*Var
	// Funcs are kernels and device functions, in the order of the source. A
	// function without blocks is declared only; "vprintf" is known.
	Funcs []*Func
	// Files are the source files that Pos.File counts from 1.
	Files []string
}

// Var is a variable in memory, or an array.
type Var struct {
	Name  string
	Space Space // Global, Const, Shared, Local, or Param for what a call passes
	// Size is in bytes. An "extern .shared" array has size 0: it is what the
	// launch adds behind the static shared variables.
	Size  int64
	Align int64
	// Init has Size bytes, or is nil for zeroes. Shared, Local and Param
	// variables have none and start with any value.
	Init []byte
	// Addresses are the places in Init that hold an address of a variable or of
	// a function (as an index, see Module.FuncIndex).
	Addresses []Address
	// Extern variables are defined in another module.
	Extern bool
}

// Address is a pointer inside an initializer.
type Address struct {
	Offset  int64 // into Init; 8 bytes
	Var     *Var  // one of Var and Func
	Func    *Func
	Addend  int64
	Generic bool // a generic address, and not one in the variable's space
}

// Func is a kernel or a device function.
type Func struct {
	Name   string
	Kernel bool
	// Params are variables of space Param: a kernel's lie one after the other,
	// aligned, in the launch's parameter block (Offset); a device function's are
	// copied by Call. Results are what Ret leaves to the caller.
	Params  []*Parameter
	Results []*Parameter
	// Regs are the virtual registers; Reg is an index into it.
	Regs []RegInfo
	// Vars are the function's own: Local ones, Param ones for calls, and Shared
	// ones, of which each block of threads has one copy however often the
	// function is called.
	Vars []*Var
	// Stacks are Local variables of which only the first bytes are in use.
	Stacks []Stack
	// Blocks begin with the entry, which no branch goes to.
	Blocks []*Block
	Attrs  Attrs
	Pos    Pos
	// NVIDIAOnly is why the function can run on NVIDIA's devices only, in the
	// program's own PTX: its instructions that are so, or the reasons of what it
	// calls. Its body is a trap then.
	NVIDIAOnly []Reason
}

// Stack tells how much of a Local variable has a meaning: what lies before the
// address in Top, a register of 64 bits, and Above bytes more, wherever the value
// of Top is read later. Nobody reads behind that what was written before.
type Stack struct {
	Var   *Var
	Top   Reg
	Above int64
}

// Reason is why something is as it is, and where.
type Reason struct {
	Pos  Pos
	Text string
}

// Parameter is a parameter or a result.
type Parameter struct {
	Var
	// Offset in a kernel's parameter block, in bytes.
	Offset int64
}

// Attrs are what a kernel declares of its launches. Zeroes: nothing.
type Attrs struct {
	MaxThreads [3]uint32 // .maxntid
	ReqThreads [3]uint32 // .reqntid
	MinBlocks  uint32    // .minnctapersm
	MaxRegs    uint32    // .maxnreg
	Cluster    [3]uint32 // .reqnctapercluster
}

// RegInfo describes a virtual register.
type RegInfo struct {
	Name string
	Type Type // Pred, B8, B16, B32, B64 or B128: registers have a size, operations a type
}

// Reg is an index into Func.Regs.
type Reg int32

// NoReg is where there is none: a result that is dropped ("_"), an absent guard.
const NoReg Reg = -1

// Block is a basic block: its last instruction, and no other, is a terminator.
type Block struct {
	Name   string
	Instrs []*Instr
}

// Term returns the block's last instruction.
func (b *Block) Term() *Instr { return b.Instrs[len(b.Instrs)-1] }

// Succs returns where the block can go on. A conditional branch has the place
// where its guard holds first.
func (b *Block) Succs() []*Block { return b.Term().Targets }

// Instr is one instruction.
type Instr struct {
	Op Op
	// Type is what the operation works on; Type2 is the second type of those
	// that have two (Cvt: the source's; Set, Slct, Mad with Wide: see docs/ir.md).
	Type, Type2 Type
	Mods        Mods
	// Guard is a predicate register or NoReg. The instruction acts for the
	// threads where it holds (where it doesn't, with GuardNot). A register that a
	// guarded instruction writes keeps its value in the other threads. Of
	// terminators only Br has one.
	Guard    Reg
	GuardNot bool
	// Dst are the registers written; NoReg drops a result.
	Dst  []Reg
	Args []Operand
	// Offset is added to the address, Args[0], of Ld, St, Atom and the others
	// that access memory.
	Offset int64
	// Targets of terminators. Br with a guard has two: taken, not taken.
	Targets []*Block
	// Callee of a direct Call; an indirect one has its address in Args[0] and
	// what it may be in Callees (empty: every function whose address is taken
	// with the same parameters).
	Callee  *Func
	Callees []*Func
	// CallArgs and CallResults are the caller's variables (space Param).
	CallArgs, CallResults []*Var
	// Text is PTX's instruction, without its guard, where this is one instruction
	// of the program: "ld.global.nc.L1::no_allocate.f32 $d0, [$a0+4]", $d0 for
	// Dst[0] and $a0 for Args[0]; "" where a pass made or changed it. It has what
	// means nothing for the result, hints for caches, and serves only to print PTX
	// again.
	Text string
	Pos  Pos
}

// Pos is where an instruction comes from.
type Pos struct {
	Line, Col int32 // in the PTX text, from 1; 0: made by a pass
	// File and SrcLine are what .loc says of the program's source; 0: nothing.
	File, SrcLine int32
}

// OperandKind tells what an Operand is.
type OperandKind uint8

// What an operand can be.
const (
	RegOperand  OperandKind = iota // Reg; for predicates Not inverts it
	ImmOperand                     // Imm, the bits of a value of the operation's type
	VarOperand                     // the address of Var, plus Imm, in the variable's own space
	FuncOperand                    // the address of Func: its index among the module's functions, plus 1
	SregOperand                    // a special register
)

// Operand is an argument of an instruction.
type Operand struct {
	Kind OperandKind
	Reg  Reg
	Not  bool
	Imm  uint64
	Var  *Var
	Func *Func
	Sreg Sreg
}

// R makes a register operand.
func R(r Reg) Operand { return Operand{Kind: RegOperand, Reg: r} }

// Imm makes an immediate operand.
func Imm(bits uint64) Operand { return Operand{Kind: ImmOperand, Imm: bits, Reg: NoReg} }
