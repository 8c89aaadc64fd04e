// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/hetgpu/containerd-shim-hetgpu/internal/memfile"
)

// emulator runs the little PTX that digest.ptx has, one thread block of it: it
// shows that the arithmetic is right. That a driver takes it only a GPU shows
// ("hetgpu-gpu selftest").
type emulator struct {
	t      *testing.T
	code   []instruction
	labels map[string]int
	params map[string]uint64
	global []byte
	shared []byte
}

type instruction struct {
	text string
	pred string
	op   string
	args []string
}

// ptxThread is one thread: where it is, and its registers, which all are 64 bits.
type ptxThread struct {
	index, pc int
	regs      map[string]uint64
	wait      string // the operation that it waits at for others
	done      bool
}

var (
	ptxComment = regexp.MustCompile(`//[^\n]*`)
	ptxLabel   = regexp.MustCompile(`^\s*(\w+):`)
	ptxOperand = regexp.MustCompile(`\{[^}]*\}|\[[^\]]*\]|[^,\s]+`)
)

func newEmulator(t *testing.T, source string) *emulator {
	t.Helper()
	e := &emulator{t: t, labels: map[string]int{}, params: map[string]uint64{}, shared: make([]byte, 192)}
	body := ptxComment.ReplaceAllString(source, "")
	body = body[strings.Index(body, ".maxntid"):]
	body = body[strings.Index(body, "{")+1 : strings.LastIndex(body, "}")]
	for statement := range strings.SplitSeq(body, ";") {
		for {
			label := ptxLabel.FindStringSubmatch(statement)
			if label == nil {
				break
			}
			e.labels[label[1]] = len(e.code)
			statement = statement[len(label[0]):]
		}
		statement = strings.TrimSpace(statement)
		if statement == "" || strings.HasPrefix(statement, ".") {
			continue
		}
		i := instruction{text: statement}
		if strings.HasPrefix(statement, "@") {
			pred, rest, _ := strings.Cut(statement[1:], " ")
			i.pred, statement = pred, rest
		}
		op, rest, _ := strings.Cut(statement, " ")
		i.op, i.args = op, ptxOperand.FindAllString(rest, -1)
		e.code = append(e.code, i)
	}
	return e
}

// run runs a thread block until all its threads have returned.
func (e *emulator) run(block int) {
	threads := make([]*ptxThread, digestThreads)
	for i := range threads {
		threads[i] = &ptxThread{index: i, regs: map[string]uint64{"%ctaid.x": uint64(block), "%tid.x": uint64(i)}}
	}
	for {
		alive := 0
		for _, th := range threads {
			for !th.done && th.wait == "" {
				e.step(th)
			}
			if !th.done {
				alive++
			}
		}
		if alive == 0 {
			return
		}
		for first := 0; first < len(threads); first += 32 {
			e.shuffle(threads[first : first+32])
		}
		e.barrier(threads)
	}
}

// shuffle goes on with a warp all of whose threads wait at the same shuffle.
func (e *emulator) shuffle(warp []*ptxThread) {
	for _, th := range warp {
		if th.done || th.wait != "shfl" || th.pc != warp[0].pc {
			return
		}
	}
	i := e.code[warp[0].pc]
	values := make([]uint64, len(warp))
	for lane, th := range warp {
		from := lane + int(e.value(th, i.args[2]))
		if from > 31 {
			from = lane
		}
		values[lane] = e.value(warp[from], i.args[1])
	}
	for lane, th := range warp {
		th.regs[i.args[0]] = values[lane]
		th.wait = ""
		th.pc++
	}
}

// barrier goes on when all threads wait there.
func (e *emulator) barrier(threads []*ptxThread) {
	for _, th := range threads {
		if !th.done && th.wait != "bar" {
			return
		}
	}
	for _, th := range threads {
		if !th.done {
			th.wait = ""
			th.pc++
		}
	}
}

func (e *emulator) step(th *ptxThread) {
	i := e.code[th.pc]
	a := i.args
	if i.pred != "" && th.regs[i.pred] == 0 {
		th.pc++
		return
	}
	v := func(n int) uint64 { return e.value(th, a[n]) }
	switch i.op {
	case "ret":
		th.done = true
		return
	case "bra":
		at, ok := e.labels[a[0]]
		if !ok {
			e.t.Fatalf("no label in %q", i.text)
		}
		th.pc = at
		return
	case "shfl.sync.down.b32":
		th.wait = "shfl"
		return
	case "bar.sync":
		th.wait = "bar"
		return
	case "mov.u64", "cvta.to.global.u64":
		th.regs[a[0]] = v(1)
	case "mov.u32":
		th.regs[a[0]] = v(1) & 0xffffffff
	case "mov.b64":
		if low, high, ok := ptxPair(a[0]); ok {
			th.regs[low], th.regs[high] = v(1)&0xffffffff, v(1)>>32
		} else {
			low, high, _ := ptxPair(a[1])
			th.regs[a[0]] = e.value(th, low)&0xffffffff | e.value(th, high)<<32
		}
	case "ld.param.u64":
		th.regs[a[0]] = e.params[strings.Trim(a[1], "[]")]
	case "ld.global.v2.u64", "ld.global.nc.v2.u64":
		low, high, _ := ptxPair(a[0])
		at := e.address(th, a[1])
		th.regs[low], th.regs[high] = binary.LittleEndian.Uint64(e.global[at:]), binary.LittleEndian.Uint64(e.global[at+8:])
	case "st.global.v2.u64":
		low, high, _ := ptxPair(a[1])
		at := e.address(th, a[0])
		binary.LittleEndian.PutUint64(e.global[at:], e.value(th, low))
		binary.LittleEndian.PutUint64(e.global[at+8:], e.value(th, high))
	case "ld.shared.u64":
		th.regs[a[0]] = binary.LittleEndian.Uint64(e.shared[e.address(th, a[1]):])
	case "st.shared.u64":
		binary.LittleEndian.PutUint64(e.shared[e.address(th, a[0]):], v(1))
	case "mul.wide.u32":
		th.regs[a[0]] = (v(1) & 0xffffffff) * (v(2) & 0xffffffff)
	case "mul.lo.u64":
		th.regs[a[0]] = v(1) * v(2)
	case "mad.lo.u32":
		th.regs[a[0]] = (v(1)*v(2) + v(3)) & 0xffffffff
	case "add.u64":
		th.regs[a[0]] = v(1) + v(2)
	case "sub.u64":
		th.regs[a[0]] = v(1) - v(2)
	case "shr.u64", "shr.u32":
		th.regs[a[0]] = v(1) >> v(2)
	case "xor.b64":
		th.regs[a[0]] = v(1) ^ v(2)
	case "or.b64":
		th.regs[a[0]] = v(1) | v(2)
	case "and.b32":
		th.regs[a[0]] = v(1) & v(2)
	case "setp.lt.u64":
		th.regs[a[0]] = ptxBool(v(1) < v(2))
	case "setp.ne.u32":
		th.regs[a[0]] = ptxBool(v(1) != v(2))
	default:
		e.t.Fatalf("unknown instruction %q", i.text)
	}
	th.pc++
}

func ptxBool(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

func ptxPair(s string) (low, high string, ok bool) {
	low, high, ok = strings.Cut(strings.Trim(s, "{}"), ",")
	return strings.TrimSpace(low), strings.TrimSpace(high), ok
}

func (e *emulator) address(th *ptxThread, operand string) uint64 {
	base, offset, plus := strings.Cut(strings.Trim(operand, "[]"), "+")
	at := e.value(th, base)
	if plus {
		at += e.value(th, offset)
	}
	return at
}

func (e *emulator) value(th *ptxThread, operand string) uint64 {
	if strings.HasPrefix(operand, "%") {
		v, ok := th.regs[operand]
		if !ok {
			e.t.Fatalf("register %s is read before it is written", operand)
		}
		return v
	}
	if operand == "parts" {
		return 0
	}
	n, err := strconv.ParseInt(operand, 10, 64)
	if err != nil {
		e.t.Fatalf("operand %q: %v", operand, err)
	}
	return uint64(n)
}

// The kernel computes what the format says, and uses no register that it has not
// declared.
func TestDigestKernel(t *testing.T) {
	random := make([]byte, 64<<10)
	_, _ = rand.NewChaCha8([32]byte{3}).Read(random)
	blocks := map[string][]byte{"4 KiB of zero": make([]byte, 4096), "64 KiB": random}
	for _, n := range []int{4096, 12288, 16384, 20480, 36864} {
		blocks[fmt.Sprint(n)] = random[n/2 : n/2+n]
	}
	e := newEmulator(t, digestPTX)
	e.params = map[string]uint64{"hetgpu_digest_list": 4096, "hetgpu_digest_results": 8192}
	for name, data := range blocks {
		const at, block = 16384, 5
		e.global = append(make([]byte, at), data...)
		binary.LittleEndian.PutUint64(e.global[4096+16*block:], at)
		binary.LittleEndian.PutUint64(e.global[4096+16*block+8:], uint64(len(data)))
		e.run(block)
		result := e.global[8192+32*block:]
		got := memfile.Digest(result[:16])
		seen := binary.LittleEndian.Uint64(result[16:])
		if want, zero := memfile.DigestOf(data); got != want || (seen == 0) != zero {
			t.Errorf("%s: %s, seen %#x; want %s, zero %v", name, got, seen, want, zero)
		}
	}
	declared := map[string]bool{"%ctaid": true, "%tid": true}
	for _, m := range regexp.MustCompile(`\.reg \.\w+ ([^;]*);`).FindAllStringSubmatch(digestPTX, -1) {
		for _, name := range regexp.MustCompile(`%\w+(<\d+>)?`).FindAllString(m[1], -1) {
			base, count, vector := strings.Cut(strings.TrimSuffix(name, ">"), "<")
			if !vector {
				declared[base] = true
				continue
			}
			n, err := strconv.Atoi(count)
			if err != nil {
				t.Fatal(err)
			}
			for i := range n {
				declared[base+strconv.Itoa(i)] = true
			}
		}
	}
	for _, name := range regexp.MustCompile(`%[a-z]\w*`).FindAllString(ptxComment.ReplaceAllString(digestPTX, ""), -1) {
		if !declared[name] && name != "%w" {
			t.Errorf("register %s is not declared", name)
		}
	}
}
