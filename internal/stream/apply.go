package stream

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// keepDecisions is how many decisions a client keeps.
const keepDecisions = 2000

// A session is what a client knows of one connection.
type session struct {
	last *State // nil before any; of an earlier connection before the first record of this one
	live bool   // the snapshot came
}

// What a server may say that ends a session.
var (
	errNoSnapshot = errors.New("the stream does not begin with a snapshot")
	errFellBehind = errors.New("the controller cut this client for being too slow")
)

// apply returns the state after a record. It never changes a state that it returned before. The record's rows become part
// of the state; what a terminal would obey is taken out of them.
func (s *session) apply(r *Record) (*State, error) {
	r.tidy()
	switch {
	case r.Kind == Snapshot:
		return s.begin(r)
	case r.Kind == FellBehind:
		if r.Message != "" {
			return nil, fmt.Errorf("%w: %s", errFellBehind, r.Message)
		}
		return nil, errFellBehind
	case !s.live:
		return nil, errNoSnapshot
	case r.Sequence != s.last.Sequence+1:
		return nil, fmt.Errorf("record %d came after %d: something is missing", r.Sequence, s.last.Sequence)
	}
	next := *s.last
	next.Sequence, next.Time = r.Sequence, r.Time
	next.merge(&r.Content)
	s.last = &next
	return s.last, nil
}

// begin takes a snapshot.
func (s *session) begin(r *Record) (*State, error) {
	switch {
	case r.Server == nil:
		return nil, errors.New("a snapshot does not say whose it is")
	case r.Server.Version != Version:
		return nil, &ConnectError{
			Problem: fmt.Sprintf("the controller speaks version %d of the stream, and this program version %d", r.Server.Version, Version),
			Advice:  "use the kubectl-rollcall of the controller's version: " + r.Server.Program, Lasting: true,
		}
	}
	next := &State{Server: *r.Server, Sequence: r.Sequence, Time: r.Time}
	// Out of bounds, heartbeats would be waited for for ever, or never.
	next.Server.HeartbeatSeconds = min(max(1, next.Server.HeartbeatSeconds), 60)
	if s.last != nil && s.last.Server.Boot == next.Server.Boot {
		next.Decisions, next.LostDecisions = s.last.Decisions, s.last.LostDecisions
	}
	next.merge(&r.Content)
	s.last, s.live = next, true
	return next, nil
}

// merge puts the rows of a record in place, in new slices.
func (s *State) merge(c *Content) {
	var gone Gone
	if c.Gone != nil {
		gone = *c.Gone
	}
	if c.Queue != nil {
		s.Queue = *c.Queue
	}
	s.Keys = merged(s.Keys, c.Keys, gone.Keys)
	s.Going = merged(s.Going, c.Going, gone.Going)
	s.Coming = merged(s.Coming, c.Coming, gone.Coming)
	s.Standing = merged(s.Standing, c.Standing, gone.Standing)
	if len(c.Pods) > 0 || len(gone.Pods) > 0 {
		s.pods = merged(s.pods, c.Pods, gone.Pods)
		s.Pods = byNode(s.pods)
	}
	s.decide(c.Decisions)
	if len(c.Left) > 0 {
		left := maps.Clone(s.Left)
		if left == nil {
			left = map[string]int{}
		}
		maps.Copy(left, c.Left)
		maps.DeleteFunc(left, func(_ string, n int) bool { return n <= 0 })
		s.Left = left
	}
}

// decide appends decisions, and counts those that are missing between them and what was known.
func (s *State) decide(decisions []*Decision) {
	if len(decisions) == 0 {
		return
	}
	all := slices.Clip(s.Decisions) // appending copies
	for _, d := range decisions {
		if len(all) > 0 {
			last := all[len(all)-1].Sequence
			if d.Sequence <= last {
				continue // known already
			}
			s.LostDecisions += d.Sequence - last - 1
		}
		all = append(all, d)
	}
	if beyond := len(all) - keepDecisions; beyond > 0 {
		all = all[beyond:]
	}
	s.Decisions = all
}

// merged returns the rows, which are sorted by identity, with changed ones put in and those gone left out. It costs a pass
// over the rows and no sorting of them: a storm changes few of many, ten times a second.
func merged[R row](rows, changed []R, gone []string) []R {
	if len(changed) == 0 && len(gone) == 0 {
		return rows
	}
	changed, gone = slices.Clone(changed), slices.Clone(gone)
	slices.SortStableFunc(changed, func(a, b R) int { return cmp.Compare(a.identity(), b.identity()) })
	slices.Sort(gone)
	next := make([]R, 0, len(rows)+len(changed))
	for _, r := range rows {
		id := r.identity()
		for len(changed) > 0 && changed[0].identity() < id {
			next, changed = putLast(next, changed)
		}
		for len(gone) > 0 && gone[0] < id {
			gone = gone[1:]
		}
		switch {
		case len(changed) > 0 && changed[0].identity() == id:
			next, changed = putLast(next, changed)
		case len(gone) == 0 || gone[0] != id:
			next = append(next, r)
		}
	}
	for len(changed) > 0 {
		next, changed = putLast(next, changed)
	}
	return next
}

// putLast moves the first rows of changed, which have one identity, to the end of next: the last of them counts.
func putLast[R row](next, changed []R) (more, rest []R) {
	same := 1
	for same < len(changed) && changed[same].identity() == changed[0].identity() {
		same++
	}
	return append(next, changed[same-1]), changed[same:]
}

// byNode groups pods by the going node, in their order.
func byNode(pods []*Pod) map[string][]*Pod {
	sizes := map[string]int{}
	for _, p := range pods {
		sizes[p.Node]++
	}
	groups := make(map[string][]*Pod, len(sizes))
	for _, p := range pods {
		if groups[p.Node] == nil {
			groups[p.Node] = make([]*Pod, 0, sizes[p.Node])
		}
		groups[p.Node] = append(groups[p.Node], p)
	}
	return groups
}
