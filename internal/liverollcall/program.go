package liverollcall

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
)

// Program is one of rollcall's programs as a child of this process.
type Program struct {
	name string
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed once it has ended
}

// Start runs the program with its output in a log of that name, and waits for nothing.
func (b *Binaries) Start(binary, name string, args ...string) (*Program, error) {
	p := &Program{name: name, log: filepath.Join(b.Dir, name+".log"), done: make(chan struct{})}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd = exec.Command(filepath.Join(b.Dir, binary), args...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.run(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	return p, nil
}

// run starts the process so that it ends when this one does, also when that crashes. The kernel sends the signal when the
// thread that forked ends, so that thread is kept until the process has ended.
func (p *Program) run() error {
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	started := make(chan error)
	go func() {
		defer close(p.done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait()
		}
	}()
	return <-started
}

// Stop ends the program with SIGTERM and waits until it is gone. It may be called more than once.
func (p *Program) Stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	<-p.done
}

// Said returns all that the program has printed so far.
func (p *Program) Said() (string, error) {
	words, err := os.ReadFile(p.log)
	if err != nil {
		return "", fmt.Errorf("reading what %s said: %w", p.name, err)
	}
	return string(words), nil
}

// Explain adds the program's own words to an error that it may have caused.
func (p *Program) Explain(err error) error {
	words, readErr := p.Said()
	if err == nil || readErr != nil {
		return err
	}
	return fmt.Errorf("%w; %s said:\n%s", err, p.name, words)
}
