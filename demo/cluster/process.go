package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// process is one component that this supervisor started.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string
	// done is closed once the process has ended; err says how and may be read after that.
	done chan struct{}
	err  error
}

// startProcess runs this same binary as a component. The child gets the reading end of the lifeline as its file descriptor
// 3 and a process group of its own, so that a Ctrl-C reaches the supervisor alone, which then stops things in order.
func startProcess(dir string, lifeline *os.File, name string, component string, args ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	logPath := filepath.Join(dir, name+".log")
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(self, append([]string{"component", component}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{lifeline}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	p := &process{name: name, cmd: cmd, log: logPath, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// kill ends the process at once and waits until it is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// Ports are chosen below those that systems give to outgoing connections (from 32768 on Linux, 49152 elsewhere), and below
// NodePorts: between freePorts and the start of who listens, a connection could else be given one of them.
const firstPort, endOfPorts = 10_000, 30_000

// freePorts returns n ports of 127.0.0.1 that nobody uses. They are held together while they are chosen, so that none is
// chosen twice, and chosen at random, so that clusters started at once do not choose the same.
func freePorts(n int) ([]int, error) {
	ports := make([]int, 0, n)
	for range 100 + n {
		port := firstPort + rand.IntN(endOfPorts-firstPort)
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("looking for a free port: %w", err)
		}
		defer listener.Close()
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("no %d ports of 127.0.0.1 between %d and %d are free", n, firstPort, endOfPorts)
}
