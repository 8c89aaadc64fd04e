// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package ir

// Op is an operation. docs/ir.md has the meaning of each; they are PTX's unless
// said otherwise.
type Op uint8

// The operations.
const (
	NoOp Op = iota

	Mov    // Dst[0] = Args[0]; also of special registers, variables, functions
	Pack   // Dst[0] = Args, the first in the lowest bits; Type is the whole's
	Unpack // Dst = the parts of Args[0], the lowest bits first; Type is the whole's

	// Integers, and what they share with floating point (by Type).
	Add // Mods.CarryIn: Args[2] is a predicate; Mods.CarryOut: Dst[1] is one
	Sub
	Mul // Mods.Half
	Mad // Mods.Half; a*b + c
	Mul24
	Mad24
	Sad
	Div
	Rem
	Abs
	Neg
	Min
	Max
	And
	Or
	Xor
	Not
	Cnot
	Lop3 // Mods.Lut
	Shl
	Shr
	Shf // Mods.Left, Mods.Wrap
	Popc
	Clz
	Bfind // Mods.ShiftAmt
	Fns
	Brev
	Bfe
	Bfi
	Szext // Mods.Wrap
	Bmsk  // Mods.Wrap
	Dp4a  // Type and Type2 are a's and b's
	Dp2a  // Mods.Half
	Prmt  // Mods.Prmt

	// Floating point.
	Fma
	Rcp
	Sqrt
	Rsqrt
	Sin
	Cos
	Lg2
	Ex2
	Tanh
	Copysign
	Testp // Mods.Test

	// Compare and select.
	Set  // Dst[0] of type Type = compare of type Type2
	Setp // Dst[0], Dst[1] = compare of type Type, and its inverse
	Selp
	Slct // Args[2] of type Type2
	Cvt  // from Type2 to Type; with two Args the first goes to the upper half
	CvtPack

	// Memory.
	Ld // Dst has Mods.Vec registers
	St // Args[1:] are the values
	Cvta
	CvtaTo   // generic to Mods.Space
	Isspacep // Dst[0] = is the generic address Args[0] in Mods.Space
	Atom     // Mods.Atom; Args[1:] the operands; Dst[0] is what was there
	Red      // as Atom, without a result
	Fence
	Prefetch // no effect
	Alloca   // Dst[0] = local address of Args[0] bytes
	StackSave
	StackRestore

	// Asynchronous copies, which are done when they are issued.
	CpAsync       // Args: shared address, global address, bytes to copy (others up to Mods.Bytes are zeroed)
	CpAsyncCommit // no effect
	CpAsyncWait   // no effect
	MbarInit
	MbarInval
	MbarArrive     // Dst[0] = the phase's state; Args[1]: count
	MbarArriveDrop // the same
	MbarTest       // Dst[0] = is the phase of state Args[1] over; Mods.Parity: of parity Args[1]
	MbarTry        // the same; may wait
	MbarPending    // Dst[0] = pending count in state Args[0]
	MbarExpect     // bytes that copies will bring: Args[1]

	// Threads together.
	Bar      // Mods.Bar: Sync, Arrive, Red...; Args[0] the barrier, Args[1] the number of threads or none
	WarpSync // Args[0]: mask
	Shfl     // Mods.Shfl; Dst[0], Dst[1] predicate; Args: value, lane or distance, clamp and segment mask, member mask
	Vote     // Mods.Vote; Args: predicate, member mask
	Match    // Mods.MatchAll; Dst[1] predicate; Args: value, member mask
	Redux    // Mods.Atom; Args: value, member mask
	Activemask
	Elect // Dst[0] leader, Dst[1] predicate; Args: member mask

	// Matrices, over the threads of a warp.
	Mma        // Mods.Shape, ALayout, BLayout, Elems[0:4] = d, a, b, c; Args: a..., b..., c...
	WmmaLoad   // Mods.Shape, Frag, ALayout; Args[0] address, Args[1] stride in elements
	WmmaStore  // the same; Args[2:] the values
	WmmaMma    // as Mma
	Ldmatrix   // Mods.Vec matrices of 8x8, Mods.Trans
	Stmatrix   // the same
	Movmatrix  // 8x8 transposed
	Nanosleep  // no effect
	Printf     // Dst[0] = vprintf(Args[0] generic address of the format, Args[1] of the arguments)
	Assertfail // __assertfail: reports and traps; Args as the function's
	Malloc     // Dst[0] = generic address or 0; Args[0] bytes
	Free

	// Threads that stop in a loop (passes.Gather).
	Poll   // Dst[0] = a predicate: this thread leaves its loop, because a pause is asked for
	Gather // no effect; begins a block that threads execute only while their block stops; Args[0]: 1 on the way back

	// Calls, and the end of blocks.
	Call // not a terminator
	Br   // to Targets[0]; with a guard, where it doesn't hold, Targets[1]
	Brx  // to Targets[Args[0]]
	Ret  // from a function to its caller; of a kernel the same as Exit
	Exit // ends the thread
	Trap // ends the launch with an error
	numOps
)

var opNames = [numOps]string{
	"nop", "mov", "pack", "unpack",
	"add", "sub", "mul", "mad", "mul24", "mad24", "sad", "div", "rem", "abs", "neg", "min", "max",
	"and", "or", "xor", "not", "cnot", "lop3", "shl", "shr", "shf", "popc", "clz", "bfind", "fns",
	"brev", "bfe", "bfi", "szext", "bmsk", "dp4a", "dp2a", "prmt",
	"fma", "rcp", "sqrt", "rsqrt", "sin", "cos", "lg2", "ex2", "tanh", "copysign", "testp",
	"set", "setp", "selp", "slct", "cvt", "cvt_pack",
	"ld", "st", "cvta", "cvta_to", "isspacep", "atom", "red", "fence", "prefetch", "alloca", "stacksave", "stackrestore",
	"cp_async", "cp_async_commit", "cp_async_wait", "mbar_init", "mbar_inval", "mbar_arrive", "mbar_arrive_drop",
	"mbar_test", "mbar_try", "mbar_pending", "mbar_expect",
	"bar", "warp_sync", "shfl", "vote", "match", "redux", "activemask", "elect",
	"mma", "wmma_load", "wmma_store", "wmma_mma", "ldmatrix", "stmatrix", "movmatrix", "nanosleep", "printf", "assertfail", "malloc", "free",
	"poll", "gather",
	"call", "br", "brx", "ret", "exit", "trap",
}

func (o Op) String() string { return opNames[o] }

// Terminator tells of what ends a block.
func (o Op) Terminator() bool { return o >= Br }

// Mods are an operation's modifiers. Each operation reads its own; the others
// are zero, which the verifier checks.
type Mods struct {
	Round                                      Round
	FTZ, Sat, Approx, Full, Relu, NaN, XorSign bool
	Half                                       Half
	CarryIn, CarryOut                          bool
	Cmp                                        Cmp
	Bool                                       BoolOp // with a third argument, a predicate
	Space                                      Space
	Vec                                        uint8 // 0 and 1: not a vector; 2, 4, 8
	Volatile                                   bool
	Order                                      Order
	Scope                                      Scope
	Atom                                       AtomOp
	Left, Wrap, ShiftAmt                       bool
	Lut                                        uint8
	Prmt                                       PrmtMode
	Test                                       Test
	Bar                                        BarOp
	Aligned                                    bool // of Bar: all threads of a warp execute it together
	Shfl                                       ShflMode
	Vote                                       VoteMode
	MatchAll, Parity, Trans                    bool
	Bytes                                      uint8 // of CpAsync
	Shape                                      Shape
	ALayout, BLayout                           MatrixLayout
	Frag                                       Frag
	Elems                                      [4]Type // of matrices: d, a, b, c
}

// Round is how a result that can't be represented is rounded.
type Round uint8

// Rounding modes; those ending in I round to an integral value.
const (
	NoRound Round = iota
	RN            // nearest, ties to even
	RZ            // towards zero
	RM            // towards minus infinity
	RP            // towards plus infinity
	RNA           // nearest, ties away from zero
	RNI
	RZI
	RMI
	RPI
)

// Half is the part of a product that is kept.
type Half uint8

// Parts of a product; Wide has twice the width of Type.
const (
	NoHalf Half = iota
	Lo
	Hi
	Wide
)

// Cmp is a comparison. Those with U are also true where an operand is NaN;
// integer ones are signed or not by the type.
type Cmp uint8

// The comparisons.
const (
	NoCmp Cmp = iota
	EQ
	NE
	LT
	LE
	GT
	GE
	EQU
	NEU
	LTU
	LEU
	GTU
	GEU
	NUM // neither is NaN
	NAN // one is NaN
)

// BoolOp combines a comparison with a third operand.
type BoolOp uint8

// The combinations.
const (
	NoBool BoolOp = iota
	BoolAnd
	BoolOr
	BoolXor
)

// Order is a memory operation's ordering.
type Order uint8

// The orders.
const (
	Weak Order = iota
	Relaxed
	Acquire
	Release
	AcqRel
	SC
)

// Scope is whose accesses an order concerns.
type Scope uint8

// The scopes.
const (
	NoScope Scope = iota
	CTA
	Cluster
	GPU
	Sys
)

// AtomOp is a read-modify-write operation, or a reduction over a warp.
type AtomOp uint8

// The operations; Inc and Dec wrap at their operand.
const (
	NoAtom AtomOp = iota
	AtomAdd
	AtomAnd
	AtomOr
	AtomXor
	AtomExch
	AtomCas
	AtomMin
	AtomMax
	AtomInc
	AtomDec
)

// PrmtMode is a mode of Prmt.
type PrmtMode uint8

// The modes.
const (
	PrmtBytes PrmtMode = iota
	PrmtF4E
	PrmtB4E
	PrmtRC8
	PrmtECL
	PrmtECR
	PrmtRC16
)

// Test is a property that Testp tests.
type Test uint8

// The properties.
const (
	NoTest Test = iota
	Finite
	Infinite
	Number
	NotANumber
	Normal
	Subnormal
)

// BarOp is what Bar does.
type BarOp uint8

// The operations; the three last wait as BarSync does and reduce Args[2], a
// predicate, over the threads, to Dst[0].
const (
	BarSync BarOp = iota
	BarArrive
	BarRedPopc
	BarRedAnd
	BarRedOr
)

// ShflMode is from which lane Shfl reads.
type ShflMode uint8

// The modes.
const (
	ShflUp ShflMode = iota
	ShflDown
	ShflBfly
	ShflIdx
)

// VoteMode is what Vote tells.
type VoteMode uint8

// The modes.
const (
	VoteAll VoteMode = iota
	VoteAny
	VoteUni
	VoteBallot
)

// Shape is a matrix product's m, n and k.
type Shape struct{ M, N, K uint8 }

// MatrixLayout is how a matrix lies in memory or in registers.
type MatrixLayout uint8

// The layouts.
const (
	NoLayout MatrixLayout = iota
	Row
	Col
)

// Frag is a matrix's part in a product.
type Frag uint8

// The parts.
const (
	FragA Frag = iota + 1
	FragB
	FragC
	FragD
)
