package tui

import (
	"time"

	"github.com/rollcall-dev/rollcall/internal/stream"
)

const (
	// ratesOver is how many seconds a rate is taken over.
	ratesOver = 10
	// sparkLength is how many seconds of depth are drawn.
	sparkLength = 20
)

// A sample is the queue's totals at a moment of the controller's clock.
type sample struct {
	at     time.Time
	totals stream.Totals
}

// rates remembers what the queue did lately. It belongs to the model.
type rates struct {
	boot    string
	samples []sample // the oldest first, no two within a second
	depths  []int    // the highest in each second
	now     int      // the highest in this one
}

// take takes the totals of a state.
func (r *rates) take(s *stream.State) {
	if s.Server.Boot != r.boot {
		*r = rates{boot: s.Server.Boot}
	}
	r.now = max(r.now, s.Queue.Depth)
	n := len(r.samples)
	if n > 0 && s.Time.Sub(r.samples[n-1].at) < time.Second {
		return
	}
	r.samples = append(r.samples, sample{s.Time, s.Queue})
	if len(r.samples) > ratesOver+1 {
		r.samples = r.samples[1:]
	}
}

// second ends one second of depths.
func (r *rates) second(s *stream.State) {
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
