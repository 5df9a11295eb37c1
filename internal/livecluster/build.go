package livecluster

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// keepUnused is how long a binary of older sources stays in the cache.
const keepUnused = 7 * 24 * time.Hour

// patience is how long a go command that is cut off may take to end: it finishes the packages that it compiles.
const patience = 30 * time.Second

// A Module is a directory below demo/ with a go.mod of its own that makes one binary of its name.
type Module struct {
	Name string
	// What it is and how long it takes from nothing on two cores, for those who wait.
	What, Takes string
}

var controlPlane = Module{Name: "cluster", What: "the control plane", Takes: "10 to 20 minutes"}

// Binary returns the path of the cluster's binary, built from demo/cluster if the cache holds none of the same content.
// The first build compiles all of Kubernetes' control plane and takes 10 to 20 minutes on two cores; progress is told
// about every ten seconds. Processes that want it at the same time wait for one build.
//
// optimised builds with the compiler's optimisation, which takes longer; benchmarks want it.
func Binary(ctx context.Context, progress io.Writer, optimised bool) (string, error) {
	return controlPlane.Binary(ctx, progress, optimised)
}

// Binary returns the path of the module's binary, built if the cache holds none of the same content.
func (m Module) Binary(ctx context.Context, progress io.Writer, optimised bool) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	source := filepath.Join(root, "demo", m.Name)
	key, err := contentKey(source, optimised)
	if err != nil {
		return "", fmt.Errorf("hashing %s: %w", source, err)
	}
	cache, err := cacheDir(m.Name)
	if err != nil {
		return "", err
	}
	unlock, err := lock(filepath.Join(cache, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	binary := filepath.Join(cache, key, m.Name)
	if _, err := os.Stat(binary); err == nil {
		now := time.Now()
		return binary, os.Chtimes(filepath.Dir(binary), now, now)
	}
	if err := m.build(ctx, source, binary, progress, optimised); err != nil {
		return "", err
	}
	return binary, dropUnused(cache)
}

// Root returns the directory of the repository that the working directory is in: tests run in their package's directory.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "demo", "cluster", "go.mod")); err == nil {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("no demo/cluster/go.mod in %s or above it: run this inside a clone of rollcall", dir)
		}
	}
}

// contentKey names what the binary is made of: its sources, its module versions, the compiler and the way of building.
func contentKey(source string, optimised bool) (string, error) {
	files, err := filepath.Glob(filepath.Join(source, "*"))
	if err != nil {
		return "", err
	}
	sort.Strings(files)
	version, err := exec.Command("go", "env", "GOVERSION", "GOOS", "GOARCH").Output()
	if err != nil {
		return "", fmt.Errorf("asking go for its version: %w", err)
	}
	hash := sha256.New()
	fmt.Fprintf(hash, "%s optimised=%t\n", version, optimised)
	for _, file := range files {
		name := filepath.Base(file)
		if strings.HasSuffix(name, "_test.go") || !(strings.HasSuffix(name, ".go") || strings.HasPrefix(name, "go.")) {
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(hash, "%s %d\n", name, len(data))
		hash.Write(data)
	}
	return fmt.Sprintf("%x", hash.Sum(nil)[:8]), nil
}

func cacheDir(name string) (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		base = os.TempDir()
	}
	dir := filepath.Join(base, "rollcall", name)
	return dir, os.MkdirAll(dir, 0o755)
}

// lock takes an advisory lock that the kernel lifts when the process ends.
func lock(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return func() { _ = file.Close() }, nil
}

func (m Module) build(ctx context.Context, source, binary string, progress io.Writer, optimised bool) error {
	if err := os.MkdirAll(filepath.Dir(binary), 0o755); err != nil {
		return err
	}
	fmt.Fprintf(progress, "%s: building %s from Go modules (once; from nothing it takes %s on two cores)\n", m.Name, m.What, m.Takes)
	start := time.Now()
	listed, err := moduleCommand(ctx, source, "list", "-deps", ".").Output()
	if ctx.Err() != nil {
		return m.cut(ctx, start)
	}
	if err != nil {
		return fmt.Errorf("listing the packages of %s: %w", m.What, withStderr(err))
	}
	args := []string{"build", "-v", "-ldflags=-s -w"}
	if !optimised {
		args = append(args, "-gcflags=all=-N -l")
	}
	unfinished := binary + ".unfinished"
	cmd := moduleCommand(ctx, source, append(args, "-o", unfinished, ".")...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting go build: %w", err)
	}
	failure := m.followBuild(stderr, progress, strings.Count(string(listed), "\n"), start)
	err = cmd.Wait()
	if err != nil && ctx.Err() != nil {
		return m.cut(ctx, start)
	}
	if err != nil {
		return fmt.Errorf("building %s: %w\n%s", m.What, err, failure)
	}
	fmt.Fprintf(progress, "%s: built in %s\n", m.Name, time.Since(start).Round(time.Second))
	return os.Rename(unfinished, binary)
}

// cut is the error of a build that was not let finish.
func (m Module) cut(ctx context.Context, start time.Time) error {
	return fmt.Errorf("the build of %s was cut off after %s: %w; what was compiled is kept, so that the next run goes on from there",
		m.What, time.Since(start).Round(time.Second), context.Cause(ctx))
}

// goCommand runs go in a directory. When the context ends it asks go to end, and kills it only where it does not.
func goCommand(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	// A group of its own: a Ctrl-C would be a second interrupt beside that of Cancel, and at the second go drops everything.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = patience
	cmd.Dir = dir
	return cmd
}

// moduleCommand runs go in a module of its own, which it must not change.
func moduleCommand(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := goCommand(ctx, dir, args...)
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly")
	return cmd
}

func withStderr(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	return err
}

// followBuild reads what 'go build -v' says, tells the progress every ten seconds, and returns the last lines, which name
// the error if there was one.
func (m Module) followBuild(said io.Reader, progress io.Writer, total int, start time.Time) string {
	var done atomic.Int64
	var last atomic.Value
	last.Store("")
	finished := make(chan struct{})
	defer close(finished)
	go func() {
		ticker := time.NewTicker(10 * time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-finished:
				return
			case <-ticker.C:
				fmt.Fprintf(progress, "%s: %s, %d packages compiled (%d in all, less what the build cache has), now %s\n",
					m.Name, time.Since(start).Round(time.Second), done.Load(), total, last.Load())
			}
		}
	}()
	var tail []string
	lines := bufio.NewScanner(said)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		done.Add(1)
		last.Store(lines.Text())
		if tail = append(tail, lines.Text()); len(tail) > 20 {
			tail = tail[1:]
		}
	}
	return strings.Join(tail, "\n")
}

// dropUnused removes binaries of older sources that nobody has used for a while.
func dropUnused(cache string) error {
	entries, err := os.ReadDir(cache)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err == nil && entry.IsDir() && time.Since(info.ModTime()) > keepUnused {
			if err := os.RemoveAll(filepath.Join(cache, entry.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}
