package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/rollcall-dev/rollcall/readiness/manifest"
)

// Times of the manifest directory.
const (
	// relist is the kubelet's own period (fileCheckFrequency): what a symlink outside the directory points at changes
	// without an event, for both.
	relist = 20 * time.Second
	// calm merges the events of one change; a file that is being written makes several.
	calm = 50 * time.Millisecond
	// fresh is how long after it was last written a file that is no pod is waited for: it may be half written. Without it
	// the set would lack a pod that the kubelet is about to run. Of two files of one pod it is the one touched last that the
	// kubelet runs at first, so that such a file is waited for, too.
	fresh = 3 * time.Second
)

// Manifests is the manifest directory, or the single manifest, of the kubelet.
type Manifests struct {
	Path string
	Node string
	// Optional makes an absent path an empty set, as it is for a kubelet. Otherwise it is no answer: it may be the wrong path.
	Optional bool
}

// Name implements Source.
func (m *Manifests) Name() string { return manifest.Source }

// Run implements Source.
func (m *Manifests) Run(ctx context.Context, report func(Answer)) {
	m.follow(ctx, watchPath(ctx, filepath.Clean(m.Path)), report)
}

// follow reads again after each change, and where none comes when that is due.
func (m *Manifests) follow(ctx context.Context, changes <-chan struct{}, report func(Answer)) {
	again := time.NewTimer(relist)
	defer again.Stop()
	for ctx.Err() == nil {
		answer, due := m.read(time.Now())
		report(answer)
		again.Reset(due)
		select {
		case <-ctx.Done():
		case <-again.C:
		case <-changes:
			sleep(ctx, calm)
		}
	}
}

// read returns what the path says at now, and after how long to read it again.
func (m *Manifests) read(now time.Time) (Answer, time.Duration) {
	listing, err := manifest.Read(m.Path, m.Node)
	switch {
	case err == nil:
		return m.answer(listing, now)
	case m.Optional && errors.Is(err, fs.ErrNotExist):
		return Answer{State: Known}, relist
	}
	return Answer{State: Waiting, Why: err.Error()}, relist
}

// answer waits where an ignored file is fresh. The ignored ones that are not are told all the same, for another source.
func (m *Manifests) answer(listing manifest.Listing, now time.Time) (Answer, time.Duration) {
	answer, due := Answer{State: Known, Pods: listing.Pods}, relist
	for _, file := range listing.Ignored {
		wait := m.freshFor(file.File, now)
		if wait <= 0 {
			answer.Ignored = append(answer.Ignored, file)
			continue
		}
		due = min(due, wait)
		answer.State, answer.Pods = Waiting, nil
		answer.Why = fmt.Sprintf("%s makes no pod (%s), but it was written just now and may not be complete", file.File, file.Why)
	}
	return answer, due
}

// freshFor returns how long the file is to be waited for. What is no file, or gone, is not; nor is one that is dated well
// ahead of the clock, for which a node would be held until then.
func (m *Manifests) freshFor(file string, now time.Time) time.Duration {
	info, err := os.Stat(filepath.Join(m.Path, file))
	if err != nil || !info.Mode().IsRegular() {
		return 0
	}
	age := now.Sub(info.ModTime())
	if age.Abs() >= fresh {
		return 0
	}
	return fresh - age
}
