package readiness

import "time"

// Holding remembers since when a node has been held. Its zero value is ready; it is not for concurrent use.
type Holding struct{ since time.Time }

// See takes whether the node is held, and since when as far as the caller can tell. Of one time of being held the first
// answer stays.
func (h *Holding) See(held bool, since time.Time) {
	switch {
	case !held:
		h.since = time.Time{}
	case h.since.IsZero():
		h.since = since
	}
}

// Beyond tells whether the node has been held for the limit or longer at now, and until when that is to be waited for;
// zero for both where it is not held or there is no limit.
func (h *Holding) Beyond(limit time.Duration, now time.Time) (beyond bool, wait time.Duration) {
	if h.since.IsZero() || limit <= 0 {
		return false, 0
	}
	wait = limit - now.Sub(h.since)
	return wait <= 0, max(wait, 0)
}

// Since is when the node began to be held; zero where it is not.
func (h *Holding) Since() time.Time { return h.since }
