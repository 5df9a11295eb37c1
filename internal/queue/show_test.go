package queue

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"github.com/rollcall-dev/rollcall/internal/stream"
)

// What a source tells, look by look, adds up to what the queue knows: keys that come, change and are forgotten, and more
// of them than one look hands over.
func TestSourceAddsUp(t *testing.T) {
	clock := testclock.NewFakePassiveClock(time.Date(2026, 12, 1, 19, 0, 0, 0, time.UTC))
	q := &Queue{recorder: newRecorder(clock)}
	known := map[string]*stream.Key{}
	look := q.Source()
	read := func() *stream.Totals {
		content := look()
		for _, id := range content.Gone.Keys {
			delete(known, id)
		}
		for _, row := range content.Keys {
			known[row.ID] = row
		}
		return content.Queue
	}
	for i := range 2*showAtOnce + 7 {
		q.recorder.push(Key{Kind: "Node", Name: fmt.Sprint(i)}, false)
	}
	for range 3 {
		read()
	}
	if len(known) != 2*showAtOnce+7 {
		t.Fatalf("%d keys are shown", len(known))
	}
	key := q.recorder.pop()
	q.recorder.failed(key, 1)
	q.recorder.explain(key, errors.New("no"))
	q.recorder.wait(key, time.Second)
	q.recorder.done(key)
	totals := read()
	row := known[key.String()]
	if row.State != stream.BackingOff || row.LastError != "no" || row.Failures != 1 || row.Kind != "Node" || !row.Until.Equal(clock.Now().Add(time.Second)) || row.Class != "Rest" {
		t.Errorf("the key: %+v", row)
	}
	if totals.BackingOff != 1 || totals.Depth != 2*showAtOnce+6 || totals.Failed != 1 {
		t.Errorf("the totals: %+v", totals)
	}
	// Nobody looks while more is forgotten than is remembered: the next look tells it all the same.
	for q.recorder.total().Depth > 0 {
		q.recorder.done(q.recorder.pop())
	}
	clock.SetTime(clock.Now().Add(2 * idleFor))
	for looks := 0; len(known) > 1 && looks < showAtOnce; looks++ {
		read()
	}
	if ids := slices.Collect(maps.Keys(known)); !slices.Equal(ids, []string{key.String()}) {
		t.Errorf("still shown are %d keys", len(ids))
	}
}
