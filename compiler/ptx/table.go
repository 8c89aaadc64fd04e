// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package ptx

import (
	"slices"
	"strings"
)

// Class tells where an instruction can run.
type Class uint8

// The classes.
const (
	// Unknown instructions are in no PTX ISA from 6.0 to 8.8.
	Unknown Class = iota
	// Everywhere is what every back end can do.
	Everywhere
	// NVIDIAOnly needs hardware that other devices lack and that we do not imitate.
	NVIDIAOnly
)

// Classify tells where an instruction can run, and why not elsewhere.
func Classify(op string, mods []string) (Class, string) {
	var buf [64]byte
	key := append(buf[:0], op...)
	e, ok := opcodes[op]
	// The longest name decides: cp.async, but cp.async.bulk.
	for i := 0; i < len(mods) && i < 3; i++ {
		key = append(append(key, '.'), mods[i]...)
		if longer, found := opcodes[string(key)]; found {
			e, ok = longer, true
		}
	}
	if !ok {
		return Unknown, ""
	}
	if e.class == Everywhere {
		for _, m := range mods {
			if reason, found := modReasons[m]; found {
				return NVIDIAOnly, reason
			}
		}
	}
	return e.class, e.reason
}

// Opcode is the instruction's name with all modifiers, as it is written.
func (i *Instr) Opcode() string {
	if len(i.Mods) == 0 {
		return i.Op
	}
	return i.Op + "." + strings.Join(i.Mods, ".")
}

type class struct {
	class  Class
	reason string
}

// Why what runs on NVIDIA's devices only does.
const (
	whyTexture  = "textures and surfaces are not imitated"
	whyTMA      = "it copies through the tensor memory accelerator"
	whyCluster  = "it needs clusters of blocks"
	whyWgmma    = "it works with four warps' asynchronous matrix unit"
	whyTcgen05  = "it works with tensor memory"
	whyMulti    = "it works with multicast memory of several GPUs"
	whySparse   = "it multiplies sparse matrices"
	whyFormat   = "it needs number formats of 4, 6 or 8 bits with block scales"
	whyVideo    = "video instructions are not imitated"
	whyDebugger = "it needs a debugger"
	whyRandom   = "it rounds with random bits"
)

// opcodes has every opcode of PTX ISA 6.0 to 8.8 (NVIDIA, "Parallel Thread
// Execution ISA", chapter 9), by as much of its name as decides.
var opcodes = makeOpcodes()

func makeOpcodes() map[string]class {
	m := map[string]class{}
	add := func(c class, names string) {
		for name := range strings.FieldsSeq(names) {
			m[name] = c
		}
	}
	add(class{class: Everywhere}, `
		add addc sub subc mul mad madc mul24 mad24 sad div rem abs neg min max popc clz bfind fns brev bfe bfi szext bmsk dp4a dp2a
		testp copysign fma rcp sqrt rsqrt sin cos lg2 ex2 tanh
		set setp selp slct and or xor not cnot lop3 shf shl shr
		mov shfl prmt ld ldu st prefetch prefetchu applypriority discard createpolicy isspacep cvta cvt
		cp.async cp.async.mbarrier.arrive
		bra brx.idx call ret exit
		bar barrier membar fence atom red vote match.all match.any activemask redux griddepcontrol elect
		mbarrier.init mbarrier.inval mbarrier.expect_tx mbarrier.arrive mbarrier.arrive_drop mbarrier.test_wait mbarrier.try_wait mbarrier.pending_count
		wmma.load wmma.store wmma.mma mma ldmatrix stmatrix movmatrix
		stacksave stackrestore alloca nanosleep pmevent trap setmaxnreg`)
	add(class{NVIDIAOnly, whyTexture}, "tex tld4 txq istypep suld sust sured suq")
	add(class{NVIDIAOnly, whyTMA}, `
		cp.async.bulk cp.reduce.async.bulk tensormap.replace tensormap.cp_fenceproxy fence.proxy.tensormap::generic
		st.bulk mbarrier.complete_tx`)
	add(class{NVIDIAOnly, whyCluster}, `
		mapa getctarank barrier.cluster st.async red.async
		clusterlaunchcontrol.try_cancel clusterlaunchcontrol.query_cancel fence.acquire.sync_restrict::shared::cluster fence.release.sync_restrict::shared::cta`)
	add(class{NVIDIAOnly, whyMulti}, `
		multimem.ld_reduce multimem.st multimem.red multimem.cp.async multimem.cp.reduce`)
	add(class{NVIDIAOnly, whyWgmma}, "wgmma.fence wgmma.mma_async wgmma.commit_group wgmma.wait_group")
	add(class{NVIDIAOnly, whyTcgen05}, `
		tcgen05.alloc tcgen05.dealloc tcgen05.relinquish_alloc_permit tcgen05.ld tcgen05.st tcgen05.wait::ld tcgen05.wait::st
		tcgen05.cp tcgen05.shift tcgen05.mma tcgen05.fence::before_thread_sync tcgen05.fence::after_thread_sync tcgen05.commit`)
	add(class{NVIDIAOnly, whySparse}, "mma.sp mma.sp::ordered_metadata")
	add(class{NVIDIAOnly, whyVideo}, `
		vadd vsub vabsdiff vmin vmax vshl vshr vmad vset
		vadd2 vsub2 vavrg2 vabsdiff2 vmin2 vmax2 vset2 vadd4 vsub4 vavrg4 vabsdiff4 vmin4 vmax4 vset4`)
	add(class{NVIDIAOnly, whyDebugger}, "brkpt")
	return m
}

// Opcodes returns the opcodes of a class, sorted, by as much of their name as decides.
func Opcodes(c Class) []string {
	var names []string
	for name, e := range opcodes {
		if e.class == c {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// modReasons are modifiers that make any instruction NVIDIA's alone.
var modReasons = makeModReasons()

func makeModReasons() map[string]string {
	m := map[string]string{
		"shared::cluster":    whyCluster,
		"multicast::cluster": whyCluster,
		"rs":                 whyRandom,
		"block_scale":        whyFormat,
		"m16n8k256":          "products of single bits over 256 are not imitated",
	}
	for format := range strings.FieldsSeq(`
		e2m1 e2m3 e3m2 e2m1x2 e2m3x2 e3m2x2 e2m1x4 e2m3x4 e3m2x4 e4m3x4 e5m2x4 ue8m0 ue8m0x2 ue4m3 s2f6x2
		e4m3 e5m2 kind::f8f6f4 kind::mxf8f6f4 kind::mxf4 kind::mxf4nvf4 m8n16 m16n16 m16n8`) {
		m[format] = whyFormat
	}
	return m
}
