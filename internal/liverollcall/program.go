package liverollcall

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// restartAfter is how long a program that ended by itself stays away.
const restartAfter = time.Second

// Program is one of rollcall's programs as a child of this process. One that ends by itself is started again, as a kubelet
// does: a controller that lost its Lease ends so.
type Program struct {
	name string
	path string
	args []string
	log  string
	stop chan struct{} // closed by Stop
	done chan struct{} // closed once it is gone for good

	mu    sync.Mutex
	child *os.Process // guarded by mu; nil while none runs
	ends  int         // guarded by mu; how often it ended by itself
	once  sync.Once
}

// Start runs the program with its output in a log of that name, anew, and waits for nothing.
func (b *Binaries) Start(binary, name string, args ...string) (*Program, error) {
	p := &Program{
		name: name, path: filepath.Join(b.Dir, binary), args: args, log: filepath.Join(b.Dir, name+".log"),
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	if err := os.RemoveAll(p.log); err != nil {
		return nil, err
	}
	started := make(chan error)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	return p, nil
}

// run keeps the program running until Stop, and says once whether it could be started. It ends when this process does, also
// when that crashes: the kernel sends a signal when the thread that forked ends, so that thread is kept.
func (p *Program) run(started chan<- error) {
	defer close(p.done)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	command, err := p.launch()
	started <- err
	for err == nil && command != nil {
		_ = command.Wait()
		p.mu.Lock()
		p.child = nil
		p.ends++
		p.mu.Unlock()
		select {
		case <-p.stop:
			return
		case <-time.After(restartAfter):
		}
		command, err = p.launch()
	}
}

// launch starts the program, or returns nil where Stop was called before.
func (p *Program) launch() (*exec.Cmd, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.stop:
		return nil, nil
	default:
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	command := exec.Command(p.path, p.args...)
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := command.Start(); err != nil {
		return nil, err
	}
	p.child = command.Process
	return command, nil
}

// ended tells whether the program has ended by itself since it was started.
func (p *Program) ended() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ends > 0
}

// Stop ends the program with SIGTERM and waits until it is gone. It may be called more than once.
func (p *Program) Stop() { p.end(syscall.SIGTERM) }

// Kill ends the program for good with SIGKILL, as a machine that dies does, and waits until it is gone.
func (p *Program) Kill() { p.end(syscall.SIGKILL) }

func (p *Program) end(signal syscall.Signal) {
	p.once.Do(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		close(p.stop)
		if p.child != nil {
			_ = p.child.Signal(signal)
		}
	})
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
