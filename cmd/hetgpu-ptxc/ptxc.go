// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/hetgpu/containerd-shim-hetgpu/compiler"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ir"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/pause"
	"github.com/hetgpu/containerd-shim-hetgpu/compiler/ptx"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/fatbin"
	"github.com/hetgpu/containerd-shim-hetgpu/internal/version"
)

// maxInput is what a file can have: programs with fatbins are large, but not
// larger than this.
const maxInput = 4 << 30

// errUsage means that the usage is in the output already.
var errUsage = errors.New("wrong usage")

const usage = `usage: hetgpu-ptxc [-target %s] [-o FILE] [-explain] [-layout FILE] [-module N] [-leave KERNEL]... [-loops] IN

Compile PTX to a form that can be paused on one device and go on on another.
IN is a file of PTX, a fatbin, or a program or library that has fatbins in it, of
which the PTX for the newest architecture is taken. For IN and FILE, "-" is
standard input or output. Without -explain and -layout, -o is "-".

`

// options are what the command line says.
type options struct {
	target, out, layout string
	explain, version    bool
	loops               bool
	module              int
	leave               []string
	in                  string
}

// parse reads the command line. Its options have one dash, as a compiler's do.
func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	targets := strings.Join(compiler.Targets(), "|")
	flags := flag.NewFlagSet("hetgpu-ptxc", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.target, "target", "ptx", "`language` to compile to: "+targets)
	flags.StringVar(&o.out, "o", "", "`file` for the program")
	flags.BoolVar(&o.explain, "explain", false, "print how each kernel is paused, why, and where in its source")
	flags.StringVar(&o.layout, "layout", "", "`file` for what is saved of each kernel, as JSON")
	flags.IntVar(&o.module, "module", -1, "`number` of the module, of those in a file with several")
	flags.Func("leave", "name of a `kernel` that is not to be paused, and to be left as it is in PTX; as often as needed", func(name string) error {
		o.leave = append(o.leave, name)
		return nil
	})
	flags.BoolVar(&o.loops, "loops", false, "in kernels with barriers, stop in the loops between these too; NVIDIA's devices run some of these kernels slower then")
	flags.BoolVar(&o.version, "version", false, "print the version of this program")
	flags.Usage = func() {
		fmt.Fprintf(stderr, usage, targets)
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil, err
		}
		return nil, errUsage
	}
	if flags.NArg() != 1 && !o.version {
		flags.Usage()
		return nil, errUsage
	}
	o.in = flags.Arg(0)
	if o.out == "" && !o.explain && o.layout == "" {
		o.out = "-"
	}
	return o, nil
}

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if o.version {
		_, err := fmt.Fprintln(stdout, "hetgpu-ptxc", version.Version)
		return err
	}
	text, err := read(o, stdin)
	if err != nil {
		return err
	}
	var changes []func(*ir.Module)
	if o.loops {
		changes = append(changes, pause.Prepare)
	}
	p, err := compiler.Load(text, changes...)
	if e := (*ptx.Error)(nil); errors.As(err, &e) {
		return fmt.Errorf("%s:%w", o.in, err) // FILE:LINE:COLUMN, as compilers say it
	} else if err != nil {
		return fmt.Errorf("%s: %w", o.in, err)
	}
	for _, kernel := range o.leave {
		if err := p.Leave(kernel); err != nil {
			return fmt.Errorf("%s: %w", o.in, err)
		}
	}
	return write(o, p, stdout, stderr)
}

// read returns the PTX of the input.
func read(o *options, stdin io.Reader) (string, error) {
	in := stdin
	if o.in != "-" {
		f, err := os.Open(o.in)
		if err != nil {
			return "", err
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, maxInput))
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", o.in, err)
	}
	if !fatbin.Is(data) {
		if o.module > 0 {
			return "", fmt.Errorf("%s is PTX, of one module: there is no module %d", o.in, o.module)
		}
		return string(data), nil
	}
	text, err := fromFatbin(data, o.module)
	if err != nil {
		return "", fmt.Errorf("%s: %w", o.in, err)
	}
	return text, nil
}

func fromFatbin(data []byte, module int) (string, error) {
	images, err := fatbin.Images(data)
	if errors.Is(err, fatbin.ErrNoPTX) {
		return "", fmt.Errorf("%w: it was built for fixed devices only (nvcc -gencode arch=compute_80,code=[sm_80,compute_80] adds PTX)", err)
	} else if err != nil {
		return "", err
	}
	best := fatbin.Best(images)
	switch {
	case module < 0 && len(best) > 1:
		return "", fmt.Errorf("it has %d modules with PTX: say which with -module, from 0 to %d", len(best), len(best)-1)
	case module >= len(best):
		return "", fmt.Errorf("it has %d modules with PTX: there is no module %d", len(best), module)
	}
	return best[max(module, 0)].Text()
}

// write puts out what was asked for, when all of it has been made.
func write(o *options, p *compiler.Program, stdout, stderr io.Writer) error {
	var code string
	var layout []byte
	var err error
	if o.out != "" {
		if code, err = p.Emit(o.target); err != nil {
			return err
		}
	}
	if o.layout != "" {
		if layout, err = p.Layout(); err != nil {
			return err
		}
	}
	if o.explain {
		// What goes to standard output goes there alone.
		to := stdout
		if o.out == "-" || o.layout == "-" {
			to = stderr
		}
		if _, err := io.WriteString(to, p.Explain()); err != nil {
			return err
		}
	}
	if o.layout != "" {
		if err := put(o.layout, layout, stdout); err != nil {
			return err
		}
	}
	if o.out == "" {
		return nil
	}
	return put(o.out, []byte(code), stdout)
}

func put(name string, data []byte, stdout io.Writer) error {
	if name == "-" {
		_, err := stdout.Write(data)
		return err
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666) //nolint:gosec // who may read a compiler's output is the umask's business
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}
