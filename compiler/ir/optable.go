// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package ir

import "slices"

// opInfo describes an operation to the text form and to the verifier.
type opInfo struct {
	mods modSet
	// address tells that Args[0] is an address, to which Offset is added.
	address bool
	// dst and args are what the results and arguments are. minDst and minArgs of
	// them must be there (0: all of them, none: none). many: the last kind repeats,
	// and verifyOp knows how often.
	dst, args       []kind
	minDst, minArgs int
	many            bool
	// types are what Type, and types2 what Type2 can be; nil: only NoType.
	types, types2 []Type
}

// none is a minimum of no operands at all.
const none = -1

// kind is what a result or an argument is.
type kind uint8

const (
	kT    kind = iota // a register of Type's size, or an immediate
	kT2               // of Type2's
	kHalf             // of Type's size, of twice it with Mods.Half Wide
	kPart             // a part of Type, of which there are as many as make the whole
	kMin              // a register of Type's size or a larger one, as PTX has it for ld, st and cvt
	kMin2             // of Type2's
	kPred             // a predicate
	k32
	k64
	kAny  // anything that is not a predicate
	kReg  // anything
	kAddr // an address: 64 bits
	kMem  // the same, and a variable of the space that is accessed
)

// Groups of types.
var (
	tInt     = []Type{U16, S16, U32, S32, U64, S64}
	tInt32   = []Type{U32, S32, B32}
	tInt64   = []Type{U32, S32, U64, S64}
	tBits    = []Type{B16, B32, B64}
	tPredBit = []Type{Pred, B16, B32, B64}
	tWord    = []Type{B32, B64}
	tFloat   = []Type{F16, F16x2, BF16, BF16x2, F32, F64}
	tF32F64  = []Type{F32, F64}
	tApprox  = []Type{F16, F16x2, BF16, BF16x2, F32}
	tArith   = join(tInt, []Type{U16x2, S16x2}, tFloat)
	tScalar  = join(tInt, tBits, []Type{F16, BF16, F32, F64})
	tAny     = join(tScalar, []Type{Pred, B8, F16x2, BF16x2, U16x2, S16x2, B128, TF32})
	tMem     = join(tInt, tBits, []Type{U8, S8, B8, B128, F16, F16x2, BF16, BF16x2, F32, F64})
	tAtom    = join(tInt, tBits, []Type{B128, F16, F16x2, BF16, BF16x2, F32, F64})
	tCvt     = join(tInt, []Type{U8, S8, F16, F16x2, BF16, BF16x2, TF32, F32, F64, E4M3x2, E5M2x2})
)

func join(groups ...[]Type) []Type {
	var all []Type
	for _, g := range groups {
		all = append(all, g...)
	}
	return all
}

const (
	mMemory = mSpace | mVolatile | mOrder | mScope
	mFloat  = mRound | mFTZ | mSat
)

var (
	one   = []kind{kT}
	two   = []kind{kT, kT}
	three = []kind{kT, kT, kT}
	pred  = []kind{kPred}
	word  = []kind{k32}
)

// Takes tells whether the operation can have the type.
func (o Op) Takes(t Type) bool { return slices.Contains(opTable[o].types, t) }

// Address tells whether the operation's first argument is an address, to which
// Instr.Offset is added.
func (o Op) Address() bool { return opTable[o].address }

// opTable is what there is of each operation. docs/ir.md says the same in words.
var opTable = [numOps]opInfo{
	Mov:    {dst: one, args: one, types: tAny},
	Pack:   {dst: one, args: []kind{kPart}, many: true, types: []Type{B16, B32, B64, B128}},
	Unpack: {dst: []kind{kPart}, args: one, many: true, types: []Type{B16, B32, B64, B128}},

	Add:   {mods: mFloat | mCarryIn | mCarryOut, dst: []kind{kT, kPred}, minDst: 1, args: []kind{kT, kT, kPred}, minArgs: 2, types: tArith},
	Sub:   {mods: mFloat | mCarryIn | mCarryOut, dst: []kind{kT, kPred}, minDst: 1, args: []kind{kT, kT, kPred}, minArgs: 2, types: tArith},
	Mul:   {mods: mFloat | mHalf, dst: []kind{kHalf}, args: two, types: join(tInt, tFloat)},
	Mad:   {mods: mFloat | mHalf | mCarryIn | mCarryOut, dst: []kind{kHalf, kPred}, minDst: 1, args: []kind{kT, kT, kHalf, kPred}, minArgs: 3, types: join(tInt, tF32F64)},
	Mul24: {mods: mHalf, dst: one, args: two, types: tInt32},
	Mad24: {mods: mHalf | mSat, dst: one, args: three, types: tInt32},
	Sad:   {dst: one, args: three, types: tInt},
	Div:   {mods: mFloat | mApprox | mFull, dst: one, args: two, types: join(tInt, tF32F64)},
	Rem:   {dst: one, args: two, types: tInt},
	Abs:   {mods: mFTZ, dst: one, args: one, types: tArith},
	Neg:   {mods: mFTZ, dst: one, args: one, types: tArith},
	Min:   {mods: mFTZ | mNaN | mXorSign | mRelu, dst: one, args: three, minArgs: 2, types: tArith},
	Max:   {mods: mFTZ | mNaN | mXorSign | mRelu, dst: one, args: three, minArgs: 2, types: tArith},
	And:   {dst: one, args: two, types: tPredBit},
	Or:    {dst: one, args: two, types: tPredBit},
	Xor:   {dst: one, args: two, types: tPredBit},
	Not:   {dst: one, args: one, types: tPredBit},
	Cnot:  {dst: one, args: one, types: tBits},
	Lop3:  {mods: mLut | mBool, dst: []kind{kT, kPred}, minDst: 1, args: []kind{kT, kT, kT, kPred}, minArgs: 3, types: tInt32},
	Shl:   {dst: one, args: []kind{kT, k32}, types: tBits},
	Shr:   {dst: one, args: []kind{kT, k32}, types: join(tBits, tInt)},
	Shf:   {mods: mLeft | mWrap, dst: one, args: three, types: tInt32},
	Popc:  {dst: word, args: one, types: tWord},
	Clz:   {dst: word, args: one, types: tWord},
	Bfind: {mods: mShiftAmt, dst: word, args: one, types: tInt64},
	Fns:   {dst: word, args: []kind{k32, k32, k32}, types: tInt32},
	Brev:  {dst: one, args: one, types: tWord},
	Bfe:   {dst: one, args: []kind{kT, k32, k32}, types: tInt64},
	Bfi:   {dst: one, args: []kind{kT, kT, k32, k32}, types: tWord},
	Szext: {mods: mWrap, dst: one, args: two, types: tInt32},
	Bmsk:  {mods: mWrap, dst: one, args: two, types: tInt32},
	Dp4a:  {dst: word, args: []kind{k32, k32, k32}, types: tInt32, types2: tInt32},
	Dp2a:  {mods: mHalf, dst: word, args: []kind{k32, k32, k32}, types: tInt32, types2: tInt32},
	Prmt:  {mods: mPrmt, dst: word, args: []kind{k32, k32, k32}, types: tInt32},

	Fma:      {mods: mFloat | mRelu, dst: one, args: three, types: tFloat},
	Rcp:      {mods: mRound | mFTZ | mApprox, dst: one, args: one, types: tF32F64},
	Sqrt:     {mods: mRound | mFTZ | mApprox, dst: one, args: one, types: tF32F64},
	Rsqrt:    {mods: mFTZ | mApprox, dst: one, args: one, types: tF32F64},
	Sin:      {mods: mFTZ | mApprox, dst: one, args: one, types: []Type{F32}},
	Cos:      {mods: mFTZ | mApprox, dst: one, args: one, types: []Type{F32}},
	Lg2:      {mods: mFTZ | mApprox, dst: one, args: one, types: []Type{F32}},
	Ex2:      {mods: mFTZ | mApprox, dst: one, args: one, types: tApprox},
	Tanh:     {mods: mFTZ | mApprox, dst: one, args: one, types: tApprox},
	Copysign: {dst: one, args: two, types: tF32F64},
	Testp:    {mods: mTest, dst: pred, args: one, types: tF32F64},

	Set:     {mods: mCmp | mBool | mFTZ, dst: one, args: []kind{kT2, kT2, kPred}, minArgs: 2, types: join(tInt32, tFloat, []Type{U16, S16}), types2: join(tScalar, []Type{F16x2, BF16x2})},
	Setp:    {mods: mCmp | mBool | mFTZ, dst: []kind{kPred, kPred}, minDst: 1, args: []kind{kT, kT, kPred}, minArgs: 2, types: join(tScalar, []Type{F16x2, BF16x2})},
	Selp:    {dst: one, args: []kind{kT, kT, kPred}, types: tAny},
	Slct:    {mods: mFTZ, dst: one, args: []kind{kT, kT, kT2}, types: tScalar, types2: []Type{S32, F32}},
	Cvt:     {mods: mFloat | mRelu, dst: []kind{kMin}, args: []kind{kMin2, kMin2}, minArgs: 1, types: tCvt, types2: tCvt},
	CvtPack: {mods: mSat, dst: word, args: []kind{k32, k32, k32}, minArgs: 2, types: []Type{U16, S16, U8, S8, U4, S4}, types2: tInt32},

	Ld:           {mods: mMemory | mVec, address: true, dst: []kind{kMin}, args: []kind{kMem}, many: true, types: tMem},
	St:           {mods: mMemory | mVec, address: true, args: []kind{kMem, kMin}, many: true, types: tMem},
	Cvta:         {mods: mSpace, dst: []kind{k64}, args: []kind{kAddr}},
	CvtaTo:       {mods: mSpace, dst: []kind{k64}, args: []kind{kAddr}},
	Isspacep:     {mods: mSpace, dst: pred, args: []kind{kAddr}},
	Atom:         {mods: mMemory | mAtom | mFTZ | mRound | mVec, address: true, dst: one, args: []kind{kMem, kT}, many: true, types: tAtom},
	Red:          {mods: mMemory | mAtom | mFTZ | mRound | mVec, address: true, args: []kind{kMem, kT}, many: true, types: tAtom},
	Fence:        {mods: mOrder | mScope},
	Prefetch:     {mods: mSpace, address: true, args: []kind{kMem}},
	Alloca:       {dst: []kind{k64}, args: []kind{kAny}},
	StackSave:    {dst: []kind{k64}},
	StackRestore: {args: []kind{k64}},

	CpAsync:        {mods: mBytes, address: true, args: []kind{kMem, kMem, k32}, minArgs: 2},
	CpAsyncCommit:  {},
	CpAsyncWait:    {},
	MbarInit:       {mods: mMemory, address: true, args: []kind{kMem, k32}},
	MbarInval:      {mods: mMemory, address: true, args: []kind{kMem}},
	MbarArrive:     {mods: mMemory, address: true, dst: []kind{k64}, args: []kind{kMem, k32}, minArgs: 1},
	MbarArriveDrop: {mods: mMemory, address: true, dst: []kind{k64}, args: []kind{kMem, k32}, minArgs: 1},
	MbarTest:       {mods: mMemory | mParity, address: true, dst: pred, args: []kind{kMem, kAny}},
	MbarTry:        {mods: mMemory | mParity, address: true, dst: pred, args: []kind{kMem, kAny}},
	MbarPending:    {dst: word, args: []kind{k64}},
	MbarExpect:     {mods: mMemory, address: true, args: []kind{kMem, k32}},

	Bar:        {mods: mBar | mAligned, dst: []kind{kReg}, minDst: none, args: []kind{k32, k32, kPred}, minArgs: 1},
	WarpSync:   {args: word},
	Shfl:       {mods: mShfl, dst: []kind{kT, kPred}, minDst: 1, args: []kind{kT, k32, k32, k32}, types: join(tInt32, []Type{F32})},
	Vote:       {mods: mVote, dst: []kind{kReg}, args: []kind{kPred, k32}},
	Match:      {mods: mMatchAll, dst: []kind{k32, kPred}, minDst: 1, args: []kind{kT, k32}, types: tWord},
	Redux:      {mods: mAtom | mNaN, dst: one, args: []kind{kT, k32}, types: join(tInt32, []Type{F32})},
	Activemask: {dst: word},
	Elect:      {dst: []kind{k32, kPred}, args: word},

	Mma:        {mods: mShape | mALayout | mBLayout | mElems | mAtom | mSat | mRound, dst: []kind{kAny}, args: []kind{kAny}, many: true},
	WmmaLoad:   {mods: mShape | mALayout | mFrag | mSpace, address: true, dst: []kind{kAny}, args: []kind{kMem, k32}, many: true, types: join(tMem, []Type{S4, U4, B1, TF32})},
	WmmaStore:  {mods: mShape | mALayout | mFrag | mSpace, address: true, args: []kind{kMem, k32, kAny}, many: true, types: join(tMem, []Type{S4, U4, B1, TF32})},
	WmmaMma:    {mods: mShape | mALayout | mBLayout | mElems | mAtom | mSat | mRound, dst: []kind{kAny}, args: []kind{kAny}, many: true},
	Ldmatrix:   {mods: mVec | mTrans | mSpace | mShape, address: true, dst: word, args: []kind{kMem}, many: true, types: []Type{B16, B8}},
	Stmatrix:   {mods: mVec | mTrans | mSpace | mShape, address: true, args: []kind{kMem, k32}, many: true, types: []Type{B16, B8}},
	Movmatrix:  {mods: mTrans, dst: word, args: word, types: []Type{B16}},
	Nanosleep:  {args: word},
	Printf:     {dst: word, args: []kind{kAddr, kAddr}},
	Assertfail: {args: []kind{kAddr, kAddr, k32, kAddr, k64}},
	Malloc:     {dst: []kind{k64}, args: []kind{k64}},
	Free:       {args: []kind{kAddr}},
	Poll:       {dst: pred},
	Gather:     {args: word},

	Call: {args: []kind{k64}, minArgs: none},
	Br:   {},
	Brx:  {args: word},
	Ret:  {},
	Exit: {},
	Trap: {},
}
