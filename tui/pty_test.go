//go:build linux

package tui

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A screenTerminal is a pseudo-terminal: the UI has one end, the test the other.
type screenTerminal struct {
	near *os.File // the UI's
	far  *os.File

	mu      sync.Mutex
	written strings.Builder // guarded by mu; what the UI wrote since the last look
	came    chan struct{}   // something was written
	ended   chan struct{}
}

func newTerminal(t testing.TB, width, height uint16) *screenTerminal {
	t.Helper()
	far, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := far.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var number int
	var failed error
	err = raw.Control(func(fd uintptr) {
		if failed = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); failed != nil {
			return
		}
		if number, failed = unix.IoctlGetInt(int(fd), unix.TIOCGPTN); failed != nil {
			return
		}
		failed = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Col: width, Row: height})
	})
	if err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	near, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	s := &screenTerminal{near: near, far: far, came: make(chan struct{}, 1), ended: make(chan struct{})}
	go s.read()
	t.Cleanup(func() {
		_ = near.Close()
		<-s.ended
		_ = far.Close()
	})
	return s
}

// read keeps what the UI writes until its end is closed.
func (s *screenTerminal) read() {
	defer close(s.ended)
	buffer := make([]byte, 64<<10)
	for {
		n, err := s.far.Read(buffer)
		if err != nil {
			return
		}
		s.mu.Lock()
		s.written.Write(buffer[:n])
		s.mu.Unlock()
		select {
		case s.came <- struct{}{}:
		default:
		}
	}
}

// press sends keys as a keyboard does.
func (s *screenTerminal) press(t testing.TB, keys string) {
	t.Helper()
	s.mu.Lock()
	s.written.Reset()
	s.mu.Unlock()
	if _, err := s.far.WriteString(keys); err != nil {
		t.Fatal(err)
	}
}

// await waits until the UI has written the text since the last press.
func (s *screenTerminal) await(t testing.TB, text string) {
	t.Helper()
	s.awaitThat(t, fmt.Sprintf("%q", text), func(written string) bool { return strings.Contains(written, text) })
}

// awaitThat waits until what the UI has written since the last press is as it should be.
func (s *screenTerminal) awaitThat(t testing.TB, what string, is func(written string) bool) {
	t.Helper()
	patience := time.NewTimer(time.Minute)
	defer patience.Stop()
	for {
		s.mu.Lock()
		there := is(s.written.String())
		s.mu.Unlock()
		if there {
			return
		}
		select {
		case <-s.came:
		case <-patience.C:
			s.mu.Lock()
			defer s.mu.Unlock()
			last := s.written.String()
			t.Fatalf("the terminal does not show %s; the last it was sent is %q", what, last[max(0, len(last)-2000):])
		}
	}
}
