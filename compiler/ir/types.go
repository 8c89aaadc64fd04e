// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package ir

// Type is the type of a register or of an operation.
type Type uint8

// The types. B are bits without a meaning; registers have only Pred and those.
const (
	NoType Type = iota
	Pred
	B8
	B16
	B32
	B64
	B128
	U8
	U16
	U32
	U64
	S8
	S16
	S32
	S64
	U16x2
	S16x2
	F16
	F16x2
	BF16
	BF16x2
	TF32 // F32's bits, of which the lower 13 of the significand count as zero
	F32
	F64
	E4M3x2
	E5M2x2
	S4 // operands of mma only, eight in a register
	U4
	B1
	numTypes
)

var typeNames = [numTypes]string{
	NoType: "none", Pred: "pred",
	B8: "b8", B16: "b16", B32: "b32", B64: "b64", B128: "b128",
	U8: "u8", U16: "u16", U32: "u32", U64: "u64",
	S8: "s8", S16: "s16", S32: "s32", S64: "s64", U16x2: "u16x2", S16x2: "s16x2",
	F16: "f16", F16x2: "f16x2", BF16: "bf16", BF16x2: "bf16x2", TF32: "tf32", F32: "f32", F64: "f64",
	E4M3x2: "e4m3x2", E5M2x2: "e5m2x2", S4: "s4", U4: "u4", B1: "b1",
}

func (t Type) String() string { return typeNames[t] }

// Size is in bytes; a predicate's is 1, that of types below a byte 0.
func (t Type) Size() int {
	switch t {
	case Pred, B8, U8, S8:
		return 1
	case B16, U16, S16, F16, BF16, E4M3x2, E5M2x2:
		return 2
	case B32, U32, S32, U16x2, S16x2, F16x2, BF16x2, TF32, F32:
		return 4
	case B64, U64, S64, F64:
		return 8
	case B128:
		return 16
	}
	return 0
}

// Signed tells of integers with a sign.
func (t Type) Signed() bool {
	return t == S8 || t == S16 || t == S32 || t == S64 || t == S16x2 || t == S4
}

// Float tells of floating point types.
func (t Type) Float() bool { return t >= F16 && t <= E5M2x2 }

// Bits returns the type of a register of t's size.
func (t Type) Bits() Type {
	switch t.Size() {
	case 1:
		if t == Pred {
			return Pred
		}
		return B8
	case 2:
		return B16
	case 4:
		return B32
	case 8:
		return B64
	case 16:
		return B128
	}
	return NoType
}

// Space is a state space of memory.
type Space uint8

// The spaces. Addresses are 64 bits everywhere: absolute in Global and Const, a
// distance from the beginning of the block's, thread's or launch's memory in
// Shared, Local and Param.
const (
	Generic Space = iota
	Global
	Const
	Shared
	Local
	Param
	numSpaces
)

var spaceNames = [numSpaces]string{"generic", "global", "const", "shared", "local", "param"}

func (s Space) String() string { return spaceNames[s] }

// A generic address is an address in Global or Const as it is, or one of these
// plus an address in Shared, Local or Param. No device has addresses with bits
// this high (57 bits are the most, with five levels of page tables), so that a
// pointer means the same on each of them, and in a snapshot.
const (
	SharedWindow uint64 = 1 << 60
	LocalWindow  uint64 = 2 << 60
	ParamWindow  uint64 = 3 << 60
	WindowMask   uint64 = 0xf << 60
)

// WarpSize is the number of threads in a warp, on every device.
const WarpSize = 32

// Sreg is a special register.
type Sreg uint8

// The special registers. Those of a vector have one entry for each dimension.
const (
	TidX Sreg = iota
	TidY
	TidZ
	NtidX
	NtidY
	NtidZ
	CtaidX
	CtaidY
	CtaidZ
	NctaidX
	NctaidY
	NctaidZ
	LaneID
	WarpID
	NWarpID
	SMID
	NSMID
	GridID
	LanemaskEQ
	LanemaskLE
	LanemaskLT
	LanemaskGE
	LanemaskGT
	Clock       // 32 bits of a counter that grows
	ClockHi     // its upper half
	Clock64     // 64 bits of it
	GlobalTimer // nanoseconds, 64 bits
	GlobalTimerLo
	GlobalTimerHi
	TotalSmemSize   // static and dynamic, bytes
	DynamicSmemSize // bytes
	WarpSz          // 32
	numSregs
)

var sregNames = [numSregs]string{
	"tid.x", "tid.y", "tid.z", "ntid.x", "ntid.y", "ntid.z",
	"ctaid.x", "ctaid.y", "ctaid.z", "nctaid.x", "nctaid.y", "nctaid.z",
	"laneid", "warpid", "nwarpid", "smid", "nsmid", "gridid",
	"lanemask_eq", "lanemask_le", "lanemask_lt", "lanemask_ge", "lanemask_gt",
	"clock", "clock_hi", "clock64", "globaltimer", "globaltimer_lo", "globaltimer_hi",
	"total_smem_size", "dynamic_smem_size", "warpsz",
}

func (s Sreg) String() string { return sregNames[s] }

// Type returns what a special register has: U32 or U64.
func (s Sreg) Type() Type {
	switch s {
	case GridID, Clock64, GlobalTimer:
		return U64
	}
	return U32
}
