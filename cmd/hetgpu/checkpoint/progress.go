// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/containerd/containerd/v2/pkg/progress"
	"golang.org/x/sys/unix"

	"github.com/hetgpu/containerd-shim-hetgpu/shim/shortstop"
)

// Progress is where it is told how far a checkpoint is.
type Progress struct {
	// To is a terminal, a file, or nil for nobody.
	To io.Writer
	// Bar says that it is a terminal, whose last line is written again and again.
	Bar bool
}

// Terminal returns the progress for a standard stream: a bar on a terminal;
// elsewhere lines, or nothing if it is to be quiet.
func Terminal(f *os.File, quiet bool) Progress {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	switch {
	case err == nil:
		return Progress{To: f, Bar: true}
	case quiet:
		return Progress{}
	}
	return Progress{To: f}
}

const (
	// redraw is how often a bar is drawn.
	redraw   = 200 * time.Millisecond
	barWidth = 30
)

// watcher tells what a shim does.
type watcher struct {
	Progress
	dir   string
	lines *bufio.Reader
	// partial is the beginning of a line that is being written.
	partial []byte

	start  time.Time
	phase  string
	expect uint64
	// last is how much there was at the time before.
	last     int64
	lastTime time.Time

	stop, done chan struct{}
}

// watchProgress follows the shim's events in a file, and what it writes.
func watchProgress(dir string, events io.Reader, to Progress) *watcher {
	w := &watcher{Progress: to, dir: dir, lines: bufio.NewReader(events), start: time.Now(), lastTime: time.Now(), stop: make(chan struct{}), done: make(chan struct{})}
	if to.To == nil {
		close(w.done)
		return w
	}
	go w.follow()
	return w
}

func (w *watcher) end() {
	close(w.stop)
	<-w.done
}

func (w *watcher) follow() {
	defer close(w.done)
	tick := time.NewTicker(redraw)
	defer tick.Stop()
	for {
		select {
		case <-w.stop:
			w.read()
			if w.Bar {
				fmt.Fprint(w.To, "\r\x1b[K")
			}
			return
		case <-tick.C:
			w.read()
			if w.Bar {
				w.draw()
			}
		}
	}
}

// read takes in the events that are new.
func (w *watcher) read() {
	for {
		line, err := w.lines.ReadBytes('\n')
		w.partial = append(w.partial, line...)
		if err != nil {
			return // the rest is still to come
		}
		var e shortstop.Event
		err = json.Unmarshal(w.partial, &e)
		w.partial = w.partial[:0]
		if err != nil {
			continue // of a newer shim
		}
		if e.Expect > 0 {
			w.expect = e.Expect
		}
		if e.Phase != "" {
			w.phase = e.Phase
			if !w.Bar {
				fmt.Fprintf(w.To, "%6.1fs %s\n", time.Since(w.start).Seconds(), e.Phase)
			}
		}
	}
}

func (w *watcher) draw() {
	bytes := written(w.dir)
	now := time.Now()
	rate := float64(bytes-w.last) / now.Sub(w.lastTime).Seconds()
	w.last, w.lastTime = bytes, now
	text := fmt.Sprintf("\r\x1b[K%5.1fs %-12s ", time.Since(w.start).Seconds(), w.phase)
	if w.expect > 0 {
		text += fmt.Sprintf("%*r ", barWidth, progress.Bar(float64(bytes)/float64(w.expect)))
	}
	fmt.Fprintf(w.To, "%s%s %s/s", text, size(bytes), size(int64(max(rate, 0))))
}

// written is how much has been written of a directory's files.
func written(dir string) int64 {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0
	}
	var sum int64
	for _, e := range entries {
		var st unix.Stat_t
		if err := unix.Lstat(dir+"/"+e.Name(), &st); err == nil && e.Name() != shortstop.ProgressName {
			sum += min(st.Size, st.Blocks*512) // a file may get its size first
		}
	}
	return sum
}

// size is a number of bytes for people.
func size(n int64) string { return progress.Bytes(n).String() }

// start tells of what is done here, when the shim is done.
func start(to Progress, what string) {
	end := "\n"
	if to.Bar {
		end = "\r"
	}
	fmt.Fprintf(to.To, "        %s%s", what, end)
}
