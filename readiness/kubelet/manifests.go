package kubelet

import (
	"context"
	"errors"
	"io/fs"
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
	changes := watchPath(ctx, filepath.Clean(m.Path))
	again := time.NewTicker(relist)
	defer again.Stop()
	for ctx.Err() == nil {
		report(m.read())
		select {
		case <-ctx.Done():
		case <-again.C:
		case <-changes:
			sleep(ctx, calm)
		}
	}
}

func (m *Manifests) read() Answer {
	listing, err := manifest.Read(m.Path, m.Node)
	switch {
	case err == nil:
		return Answer{State: Known, Pods: listing.Pods, Ignored: listing.Ignored}
	case m.Optional && errors.Is(err, fs.ErrNotExist):
		return Answer{State: Known}
	}
	return Answer{State: Waiting, Why: err.Error()}
}
