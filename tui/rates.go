package tui

import (
	"slices"
	"time"

	"github.com/rollcall-dev/rollcall/internal/stream"
)

const (
	// ratesOver is what a rate is taken over.
	ratesOver = 10 * time.Second
	// sparkLength is how many seconds of depth are drawn.
	sparkLength = 20
)

// A sample is the queue's totals at a moment, by both clocks: the controller's says what a rate is, and runs fast in a
// recording that is played fast; this machine's says how long a person waited.
type sample struct {
	at, seen time.Time
	totals   stream.Totals
}

// rates remembers what the queue did lately. It belongs to the model.
type rates struct {
	boot    string
	samples []sample // one each second, the oldest first
	depths  []int    // the highest in each second
	now     int      // the highest in this one
}

// take takes the depth of a state.
func (r *rates) take(s *stream.State) {
	if s.Server.Boot != r.boot {
		*r = rates{boot: s.Server.Boot}
	}
	r.now = max(r.now, s.Queue.Depth)
}

// second ends a second in which the connection was there. An idle queue sends nothing, and that is news too: each second is
// a sample, whether anything came or not.
func (r *rates) second(now time.Time, f stream.Frame) {
	s := f.State
	at := s.Time.Add(max(0, now.Sub(f.Received)))
	if n := len(r.samples); n == 0 || at.After(r.samples[n-1].at) {
		r.samples = append(r.samples, sample{at, now, s.Queue})
	}
	const late = time.Second / 2 // of a clock that does not tick exactly
	r.samples = slices.DeleteFunc(r.samples, func(s sample) bool { return now.Sub(s.seen) > ratesOver+late })
	r.depths = append(r.depths, r.now)
	if len(r.depths) > sparkLength {
		r.depths = r.depths[1:]
	}
	r.now = s.Queue.Depth
}

// perSecond returns the rate of one of the counts; false while that is not known.
func (r *rates) perSecond(count func(stream.Totals) int64) (rate float64, known bool) {
	if len(r.samples) < 2 {
		return 0, false
	}
	first, last := r.samples[0], r.samples[len(r.samples)-1]
	return float64(count(last.totals)-count(first.totals)) / last.at.Sub(first.at).Seconds(), true
}
