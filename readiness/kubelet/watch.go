package kubelet

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// rewatch is how soon a watch that failed is tried again.
const rewatch = 2 * time.Second

// watchPath signals until ctx ends whenever something may have changed at path or directly below it, also while path does
// not exist yet: then the nearest directory above it that exists is watched. Where the machine gives no watch (inotify's
// limits) it signals every two seconds instead. Signals are merged while nobody listens.
func watchPath(ctx context.Context, path string) <-chan struct{} {
	changes := make(chan struct{}, 1)
	go func() {
		for ctx.Err() == nil {
			watchOnce(ctx, path, changes)
			signal(changes)
			sleep(ctx, rewatch)
		}
	}()
	return changes
}

// watchOnce returns when the watch cannot go on.
func watchOnce(ctx context.Context, path string, changes chan<- struct{}) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return
	}
	defer w.Close()
	for {
		// Which directories exist may have changed; to add one again is harmless, and one that was removed and made anew
		// has lost its watch.
		above := nearest(path)
		if w.Add(above) != nil || above == filepath.Dir(path) && exists(path) && w.Add(path) != nil {
			return
		}
		signal(changes)
		select {
		case <-ctx.Done():
			return
		case _, ok := <-w.Events:
			if !ok {
				return
			}
		case <-w.Errors:
			return
		}
	}
}

// nearest returns the deepest existing directory above path.
func nearest(path string) string {
	dir := filepath.Dir(path)
	for dir != filepath.Dir(dir) && !exists(dir) {
		dir = filepath.Dir(dir)
	}
	return dir
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
