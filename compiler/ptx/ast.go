// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Package ptx reads and writes NVIDIA's PTX: text to a tree with positions and
// back, and what is known of each instruction of PTX ISA 6.0 to 8.8.
//
// Input is hostile: time and memory are bounded by the text's length, nesting by
// a constant, and whatever is wrong is an *Error that says where.
//
// It knows nothing of what instructions do, of types that have to agree, and of
// names that have to exist: that is package lower's.
package ptx

// Module is a file of PTX.
type Module struct {
	// Version is that of the PTX ISA, {8, 3} for example.
	Version [2]int
	// Targets are what .target lists: the architecture first.
	Targets []string
	// AddressSize is 32 or 64.
	AddressSize int
	// Files are what .file names: Files[i].Number is what .loc uses.
	Files []File
	// Decls are variables, functions and the rest in the order of the text.
	Decls []Decl
}

// File is a source file of the program that PTX was made from.
type File struct {
	Number int32
	Name   string
}

// Pos is a place in the text, counted from 1, and what the last .loc said of
// the program's source there (File is a File.Number; 0: nothing).
type Pos struct {
	Line, Col     int32
	File, SrcLine int32
}

// Decl is what a module has: *Var, *Func, *Alias or *Pragma.
type Decl interface{ decl() }

// Stmt is what a function's body has: *Instr, *Label, *Scope, *Regs, *Var,
// *Prototype, *TargetList, *Loc or *Pragma.
type Stmt interface{ stmt() }

// Linkage is a set of linking directives.
type Linkage uint8

// The linking directives.
const (
	Visible Linkage = 1 << iota
	Extern
	Weak
	Common
)

// Var is a variable or a parameter: one name of a declaration.
type Var struct {
	Pos     Pos
	Linkage Linkage
	// Space is "global", "const", "shared", "local", "param", "tex", or "reg" for
	// a parameter in a register.
	Space string
	Align int64  // 0: the type's own
	Vec   int    // 0: not a vector; 2, 4 or 8
	Type  string // "b32", "f16x2", "texref" ...
	Name  string // "_" and "" where a prototype gives none
	// Dims are an array's dimensions; -1 for one that the text leaves open.
	Dims []int64
	// Init is nil where there is none.
	Init *Init
	// Sampler is what a samplerref or texref is made with, "addr_mode_0 = wrap".
	Sampler []string
	// Attributes are the arguments of .attribute, "managed" for example.
	Attributes []string
	// Ptr tells of a parameter that is a pointer, which PtrSpace and PtrAlign
	// (each may be empty) describe.
	Ptr      bool
	PtrSpace string
	PtrAlign int64
}

// Init is an initializer: a list in braces (List, which may be empty but not
// nil), an address (Sym), or a number.
type Init struct {
	List []Init
	Sym  *InitSym
	Num  Number
}

// InitSym is an address in an initializer.
type InitSym struct {
	Pos     Pos
	Name    string
	Addend  int64
	Generic bool
	// Mask is the byte of the address that is meant, as 0xff shifted to its
	// place; 0: all of it.
	Mask uint64
}

// NumberKind tells how a literal was written, which decides what it can be.
type NumberKind uint8

// The kinds.
const (
	SignedInt   NumberKind = iota // Bits are two's complement
	UnsignedInt                   // it has a U, or does not fit into 63 bits
	Float32                       // 0f...: Bits are binary32's
	Float64                       // 0d..., or with a point or an exponent: binary64's
)

// Number is a literal, or the value of a constant expression.
type Number struct {
	Bits uint64
	Kind NumberKind
}

// Func is a kernel (.entry) or a function.
type Func struct {
	Pos     Pos
	Linkage Linkage
	Kernel  bool
	Name    string
	Results []*Var
	Params  []*Var
	// Directives are those between the parameters and the body.
	Directives []Directive
	// Body is nil for a declaration.
	Body *Scope
}

// Directive is a performance directive such as .maxntid or .noreturn.
type Directive struct {
	Name   string // without its dot
	Values []int64
	Words  []string // of .pragma and others with words
}

// Alias is .alias: Name is another name of the function Of.
type Alias struct {
	Pos      Pos
	Name, Of string
}

// Pragma is .pragma.
type Pragma struct {
	Pos   Pos
	Words []string
}

// Scope is a block in braces.
type Scope struct {
	Pos   Pos
	Stmts []Stmt
}

// Regs declares registers.
type Regs struct {
	Pos  Pos
	Vec  int // 0: not a vector
	Type string
	// Names are what is declared.
	Names []RegName
}

// RegName is one register, or Count of them: name0 to name(Count-1).
type RegName struct {
	Pos   Pos
	Name  string
	Count int64 // 0: one register of just that name; -1: name<0>, which is none
}

// Label is a place to branch to.
type Label struct {
	Pos  Pos
	Name string
}

// Prototype is .callprototype: what an indirect call passes.
type Prototype struct {
	Pos             Pos
	Name            string
	Results, Params []*Var
	Directives      []Directive
}

// TargetList is .branchtargets or .calltargets.
type TargetList struct {
	Pos   Pos
	Name  string
	Calls bool
	Names []string
}

// Loc is .loc. Instructions have its meaning in their Pos.
type Loc struct {
	File, Line, Col int32
}

// Instr is an instruction.
type Instr struct {
	Pos Pos
	// Guard is the predicate's name, "" without one.
	Guard    string
	GuardNot bool
	// Op is the opcode up to its first dot, Mods is what comes after, each
	// without its dot.
	Op   string
	Mods []string
	Args []Operand
	// Call is what a call has instead of Args.
	Call *Call
}

// Call is what a call says: (Results), Callee, (Args), Proto.
type Call struct {
	Results []Operand
	Callee  Operand
	Args    []Operand
	Proto   string // of an indirect call, a Prototype's or TargetList's name
}

// OperandKind tells what an Operand is.
type OperandKind uint8

// What an operand can be.
const (
	// Name is a register, variable, label or function, plus Num (an offset);
	// Suffix is a component of it ("x", and "h1" and the like of video instructions).
	Name OperandKind = iota
	// Num is a number.
	Num
	// Vector is {Elems}.
	Vector
	// Address is [Name + Num] or [Num]; Elems are what follows a comma in the
	// brackets. Suffix is "unified" for what ".unified" after it says.
	Address
	// Pair is Elems[0]|Elems[1].
	Pair
	// Sink is "_": a result that is dropped, or an argument that isn't there.
	Sink
)

// Operand is an argument of an instruction.
type Operand struct {
	Kind      OperandKind
	Not, Neg  bool // "!" or "-" before a name
	Line, Col int32
	Name      string
	Suffix    string
	Num       Number
	Elems     []Operand
}

func (*Var) decl()    {}
func (*Func) decl()   {}
func (*Alias) decl()  {}
func (*Pragma) decl() {}

func (*Instr) stmt()      {}
func (*Label) stmt()      {}
func (*Scope) stmt()      {}
func (*Regs) stmt()       {}
func (*Var) stmt()        {}
func (*Prototype) stmt()  {}
func (*TargetList) stmt() {}
func (*Loc) stmt()        {}
func (*Pragma) stmt()     {}
