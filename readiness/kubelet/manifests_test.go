package kubelet

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const podFile = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, image: i}]}\n"

// put writes a file at a moment of the test's time.
func put(t *testing.T, file, content string, at time.Time) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(file, at, at); err != nil {
		t.Fatal(err)
	}
}

// A file that is made empty and filled a moment later is at no time an ignored one; one that stays as it is becomes one
// three seconds after it was written, without an event; an old one is one at once, and stays told meanwhile.
func TestHalfWrittenManifest(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		put(t, filepath.Join(dir, "old"), "", time.Now().Add(-fresh))
		file := filepath.Join(dir, "a.yaml")
		changes := make(chan struct{}, 1)
		var mu sync.Mutex
		var answers []Answer // guarded by mu
		last := func() Answer {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return answers[len(answers)-1]
		}
		change := func(content string) Answer {
			put(t, file, content, time.Now())
			signal(changes)
			time.Sleep(calm)
			return last()
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			(&Manifests{Path: dir, Node: "n1"}).follow(t.Context(), changes, func(a Answer) {
				mu.Lock()
				defer mu.Unlock()
				answers = append(answers, a)
			})
		}()
		t.Cleanup(func() { <-done })
		if got := last(); got.State != Known || len(got.Ignored) != 1 {
			t.Errorf("an old file: %+v", got)
		}
		if got := change(""); got.State != Waiting || !strings.Contains(got.Why, "a.yaml makes no pod") || len(got.Ignored) != 1 {
			t.Errorf("empty: %+v", got)
		}
		time.Sleep(200 * time.Millisecond)
		if got := change(podFile); got.State != Known || len(got.Pods) != 1 || len(got.Ignored) != 1 {
			t.Errorf("filled: %+v", got)
		}
		if got := change(podFile[:30]); got.State != Waiting {
			t.Errorf("broken: %+v", got)
		}
		time.Sleep(fresh - calm - time.Millisecond)
		if got := last(); got.State != Waiting {
			t.Errorf("broken for less than three seconds: %+v", got)
		}
		time.Sleep(time.Millisecond)
		if got := last(); got.State != Known || len(got.Pods) != 0 || len(got.Ignored) != 2 {
			t.Errorf("broken for three seconds: %+v", got)
		}
		mu.Lock()
		defer mu.Unlock()
		if len(answers) != 5 {
			t.Errorf("read %d times", len(answers))
		}
	})
}

// How long a file is waited for, by its date.
func TestFresh(t *testing.T) {
	dir := t.TempDir()
	now := time.Date(2026, 3, 10, 8, 0, 0, 0, time.UTC)
	for age, want := range map[time.Duration]time.Duration{
		0: fresh, time.Second: fresh - time.Second, fresh: 0, time.Hour: 0,
		-time.Second: fresh + time.Second, // the clock was set back a little
		-fresh:       0, -time.Hour: 0,
	} {
		put(t, filepath.Join(dir, "f"), "", now.Add(-age))
		if got := (&Manifests{Path: dir}).freshFor("f", now); got != want {
			t.Errorf("of age %s: %s, want %s", age, got, want)
		}
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink("nowhere", link); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"link", "gone", "."} {
		if got := (&Manifests{Path: dir}).freshFor(name, now); got != 0 {
			t.Errorf("%s is waited for %s", name, got)
		}
	}
}
