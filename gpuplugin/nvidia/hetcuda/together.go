// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package hetcuda

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hetgpu/containerd-shim-hetgpu/gpuplugin/nvidia/helperapi"
)

const (
	// firstGrace is how long a device that is busy is given to come to rest when
	// those that were let on have; mostly it has by then. It becomes longer
	// where kernels take longer.
	firstGrace, maxGrace = time.Millisecond, 50 * time.Millisecond
	// firstPatience is how long nothing may happen before those that are busy
	// are let on, too.
	firstPatience, maxPatience = 20 * time.Millisecond, 500 * time.Millisecond
	// quiet is how much longer a process that may go on has time to do so: its
	// threads compute, or wait for those of another process.
	quiet = 3
	// firstLull is how many rounds of those that are behind may bring no other
	// device to rest.
	firstLull = 1000
	// maxStride is how many calls pass at once, at most.
	maxStride = 256
)

// stepper is a process as HoldTogether sees it; a [Conn] is one.
type stepper interface {
	PID() int
	Step(ctx context.Context, count uint32) (Status, error)
	Status(ctx context.Context, wait time.Duration) (Status, error)
	Hold(ctx context.Context, timeout time.Duration) error
}

// HoldTogether holds processes whose kernels may wait for one another: none is
// held while the kernel of another waits for what it has yet to launch. All of
// the clients have to be able to step. After an error the caller closes the
// connections, with which all go on; helperapi.ErrNotReady means that they did
// not come to rest in time. A process that has gone is left out.
//
// All are stepped first, with no step allowed. A device that comes to rest then
// stays so; one that does not waits for another process. So those that are at
// rest are let on, until the others have come to rest, too. docs/rationale.md
// says why that ends.
func HoldTogether(ctx context.Context, conns []*Conn, timeout time.Duration) error {
	all := make([]stepper, len(conns))
	for i, c := range conns {
		all[i] = c
	}
	return holdTogether(ctx, all, timeout)
}

func holdTogether(ctx context.Context, all []stepper, timeout time.Duration) error {
	g := &group{end: time.Now().Add(timeout)}
	for _, m := range all {
		g.members = append(g.members, &member{stepper: m})
	}
	err := g.settle(ctx)
	if err == nil {
		err = g.each(ctx, g.members, func(ctx context.Context, m *member) error {
			return m.Hold(ctx, max(time.Until(g.end), firstPatience))
		})
	}
	if errors.Is(err, errLate) {
		err = g.late(timeout)
	}
	return err
}

// group is processes that are stepped together.
type group struct {
	members []*member
	end     time.Time
	// gone are those that were.
	gone []int
}

// member is one of them.
type member struct {
	stepper
	at Status
	// before is what it had passed when it was let on, and ahead that its device
	// was busy at that time.
	before uint64
	ahead  bool
	// rested says that its device was at rest once.
	rested bool
	gone   bool
}

// errLate means that the time is over.
var errLate = errors.New("not in time")

// stride is how many calls pass at once, and how long is waited for what. The
// first strides become longer, since a process may be far behind. Once one has
// overtaken those that waited for it they become shorter, down to single calls,
// of which none can.
type stride struct {
	count    uint32
	shorter  bool
	grace    time.Duration
	push     uint32
	patience time.Duration
}

// settle lets the processes on until all of their devices are at rest. Between
// its steps none of them may give a device work.
func (g *group) settle(ctx context.Context) error {
	if err := g.allow(ctx, g.members, 0); err != nil {
		return err
	}
	s := stride{count: 1, grace: firstGrace, push: 1, patience: firstPatience}
	if err := g.look(ctx, s.grace); err != nil {
		return err
	}
	for moved, rounds, lull := true, 0, firstLull; len(g.busy()) > 0; rounds++ {
		if time.Now().After(g.end) {
			return errLate
		}
		behind, count, turn := g.behind(), s.count, quiet*s.patience
		if len(behind) == 0 || !moved || rounds == lull {
			// Nobody is behind, or who is waits for a thread of another, or goes
			// on without being waited for. Work that takes long ends by itself.
			if err := g.look(ctx, s.patience); err != nil {
				return err
			}
			if len(g.busy()) == 0 {
				break
			}
			behind, count, turn = g.members, s.push, s.patience
			s.push, s.patience = min(2*s.push, maxStride), min(2*s.patience, maxPatience)
			rounds, lull = 0, 2*lull
		}
		for _, m := range g.members {
			m.ahead, m.before = m.at.Device == Busy, m.at.Passed
		}
		if err := g.round(ctx, behind, count, s.grace, turn); err != nil {
			return err
		}
		moved = slices.ContainsFunc(behind, func(m *member) bool { return m.at.Passed != m.before })
		rested := slices.ContainsFunc(g.members, func(m *member) bool { return m.ahead && m.at.Device == Idle })
		overtook := rested && slices.ContainsFunc(behind, func(m *member) bool { return !m.ahead && m.at.Device == Busy })
		if rested {
			rounds, lull = 0, firstLull
		}
		s = s.next(rested, overtook)
	}
	return nil
}

// next is the stride after one in which some device came to rest, and in which
// somebody went on so far that the others are behind now.
func (s stride) next(rested, overtook bool) stride {
	if rested {
		s.push, s.patience = 1, firstPatience
	}
	switch {
	case overtook && s.count > 1:
		s.count, s.shorter = max(s.count/4, 1), true
	case overtook:
		s.shorter, s.grace = true, min(2*s.grace, maxGrace)
	case !s.shorter:
		s.count = min(2*s.count, maxStride)
	}
	return s
}

// round lets some on, for as long as others are busy and the turn lasts, and
// takes back what they have not used.
func (g *group) round(ctx context.Context, some []*member, count uint32, grace, turn time.Duration) error {
	if err := g.allow(ctx, some, count); err != nil {
		return err
	}
	for end := time.Now().Add(turn); ; {
		if err := g.look(ctx, grace); err != nil {
			return err
		}
		using := slices.ContainsFunc(g.members, func(m *member) bool { return m.at.Left > 0 })
		if !using || time.Now().After(end) || time.Now().After(g.end) {
			break
		}
		// What is left to somebody hides whether its device is at rest.
		if !slices.ContainsFunc(g.members, func(m *member) bool { return m.at.Device == Busy && m.at.Left == 0 }) {
			break
		}
	}
	var using []*member
	for _, m := range g.members {
		if m.at.Left > 0 {
			using = append(using, m)
		}
	}
	if len(using) == 0 {
		return nil
	}
	if err := g.allow(ctx, using, 0); err != nil {
		return err
	}
	return g.look(ctx, grace)
}

// busy are those whose devices are not at rest.
func (g *group) busy() []*member {
	return slices.DeleteFunc(slices.Clone(g.members), func(m *member) bool { return m.at.Device == Idle })
}

// behind are those that others may wait for: what they have launched is done, or
// is yet to be launched.
func (g *group) behind() []*member {
	return slices.DeleteFunc(slices.Clone(g.members), func(m *member) bool { return m.at.Device == Busy })
}

func (g *group) allow(ctx context.Context, some []*member, count uint32) error {
	return g.each(ctx, some, func(ctx context.Context, m *member) (err error) {
		m.at, err = m.Step(ctx, count)
		return err
	})
}

// look asks all, and waits so long for those that are busy.
func (g *group) look(ctx context.Context, wait time.Duration) error {
	return g.each(ctx, g.members, func(ctx context.Context, m *member) (err error) {
		start := time.Now()
		m.at, err = m.Status(ctx, wait)
		m.rested = m.rested || m.at.Device == Idle
		if early := wait - time.Since(start); err == nil && m.at.Device != Idle && early > wait/2 {
			// So that a client that does not wait keeps nobody busy.
			select {
			case <-time.After(early):
			case <-ctx.Done():
			}
		}
		return err
	})
}

// each runs f for some at the same time. Those that have gone are no members any
// more. Of several errors those are returned that more time would not mend.
func (g *group) each(ctx context.Context, some []*member, f func(context.Context, *member) error) error {
	errs := make([]error, len(some))
	var wg sync.WaitGroup
	for i, m := range some {
		wg.Go(func() {
			err := f(ctx, m)
			if errors.Is(err, helperapi.ErrGone) {
				m.gone = true
			} else if err != nil {
				errs[i] = fmt.Errorf("process %d: %w", m.PID(), err)
			}
		})
	}
	wg.Wait()
	for _, m := range some {
		if m.gone && !slices.Contains(g.gone, m.PID()) {
			g.gone = append(g.gone, m.PID())
		}
	}
	g.members = slices.DeleteFunc(slices.Clone(g.members), func(m *member) bool { return m.gone })
	if hard := slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return err == nil || errors.Is(err, helperapi.ErrNotReady) }); len(hard) > 0 {
		return errors.Join(hard...)
	}
	return errors.Join(errs...)
}

// late says who kept whom waiting.
func (g *group) late(timeout time.Duration) error {
	var all []string
	for _, m := range g.members {
		what := "was busy all the time"
		switch {
		case m.at.Device == Capturing:
			what = fmt.Sprintf("was not asked, since a stream is being captured, after %d steps", m.at.Passed)
		case m.at.Device == Idle:
			what = fmt.Sprintf("was at rest after %d steps", m.at.Passed)
		case m.rested || m.at.Passed > 0:
			what = fmt.Sprintf("was busy after %d steps", m.at.Passed)
		}
		if m.at.Inside > 0 && m.at.Detail != "" {
			what += " (threads are in " + m.at.Detail + ")"
		}
		all = append(all, fmt.Sprintf("the GPU of process %d %s", m.PID(), what))
	}
	for _, pid := range g.gone {
		all = append(all, fmt.Sprintf("process %d had ended", pid))
	}
	return &helperapi.Error{
		Class: helperapi.Class_CLASS_NOT_READY, Call: "libhetcuda STEP",
		Detail: fmt.Sprintf("after %v %s", timeout.Round(time.Millisecond), strings.Join(all, ", ")),
	}
}
