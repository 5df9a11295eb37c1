package tui

import (
	"cmp"
	"time"

	"github.com/rollcall-dev/rollcall/internal/stream"
)

func newWorkqueue() *listing[*stream.Key] {
	return newListing(spec[*stream.Key]{
		noun:  "key",
		id:    func(k *stream.Key) string { return k.ID },
		name:  func(k *stream.Key) string { return k.ID },
		rows:  func(s *stream.State) []*stream.Key { return s.Keys },
		empty: "the queue has seen no key yet",
		text:  func(k *stream.Key) string { return lower(k.ID, string(k.State), k.Class, k.LastError) },
		orders: []order[*stream.Key]{
			{"state", func(a, b *stream.Key) int {
				return cmp.Or(cmp.Compare(keyRank(a), keyRank(b)), a.Since.Compare(b.Since))
			}},
			{"queue order", byTurn},
			{"tries", func(a, b *stream.Key) int { return cmp.Compare(b.Started, a.Started) }},
			{"failures", func(a, b *stream.Key) int {
				return cmp.Or(cmp.Compare(b.Failures, a.Failures), cmp.Compare(b.Failed, a.Failed))
			}},
			{"next try", func(a, b *stream.Key) int { return byLaterIfNever(a.Until, b.Until) }},
			{"deduped", func(a, b *stream.Key) int { return cmp.Compare(deduped(b), deduped(a)) }},
			{"key", func(a, b *stream.Key) int { return cmp.Compare(a.ID, b.ID) }},
		},
		columns: keyColumns(),
		detail:  keyDetail,
		fields:  keyFields,
	})
}

// keyRank puts first what moves.
func keyRank(k *stream.Key) int {
	switch k.State {
	case stream.Running:
		return 0
	case stream.Queued:
		return 1
	case stream.BackingOff:
		return 2
	case stream.Waiting:
		return 3
	}
	return 4
}

// byTurn is the order in which queued keys are taken, but for every eighth (internal/queue/order.go): by class, by the next
// possible kill, by arrival. Keys that are not queued have no turn and come last.
func byTurn(a, b *stream.Key) int {
	class := func(k *stream.Key) int {
		switch {
		case k.State != stream.Queued:
			return 3
		case k.Class == committed:
			return 0
		case k.Class == pending:
			return 1
		}
		return 2
	}
	kill := func(k *stream.Key) time.Time {
		switch {
		case k.Class != committed:
			return time.Time{}
		case k.Kill.IsZero(): // it may happen now: since the key is queued
			return k.Since
		}
		return k.Kill
	}
	return cmp.Or(cmp.Compare(class(a), class(b)), kill(a).Compare(kill(b)), a.Since.Compare(b.Since))
}

// byLaterIfNever compares times, of which a zero one is never.
func byLaterIfNever(a, b time.Time) int {
	if a.IsZero() != b.IsZero() {
		if a.IsZero() {
			return 1
		}
		return -1
	}
	return a.Compare(b)
}

func deduped(k *stream.Key) int64 { return k.DedupedQueued + k.DedupedRun }

func keyState(k *stream.Key) cell {
	switch k.State {
	case stream.Running:
		return cell{"* running", good}
	case stream.Queued:
		return cell{". queued", plain}
	case stream.BackingOff:
		return cell{"! backing off", alarm}
	case stream.Waiting:
		return cell{"~ waiting", quiet}
	case stream.Idle:
		return cell{"  idle", quiet}
	}
	return cell{"? " + string(k.State), plain}
}

func keyColumns() []column[*stream.Key] {
	type key = *stream.Key
	return []column[key]{
		{"STATE", fixed(narrow, 13), false, func(k key, _ moment) cell { return keyState(k) }},
		{"KEY", growing(narrow, 18, 56, 2), false, func(k key, _ moment) cell { return cell{k.ID, plain} }},
		{"SINCE", fixed(narrow, 6), false, func(k key, m moment) cell { return cell{age(m.now, k.Since), plain} }},
		{"TRIES", fixed(narrow, 5), true, func(k key, _ moment) cell { return counted(int(k.Started), plain) }},
		{"NEXT TRY", fixed(narrow, 8), false, func(k key, m moment) cell { return cell{nextTry(k, m.now), plain} }},
		{"FAILED", fixed(usual, 6), true, func(k key, _ moment) cell { return counted(int(k.Failed), watch) }},
		{"DEDUPED", fixed(roomy, 7), true, func(k key, _ moment) cell { return counted(int(deduped(k)), plain) }},
		{"TOOK", fixed(roomy, 6), true, func(k key, _ moment) cell { return cell{took(k.LastDuration), plain} }},
		{"LAST ERROR", growing(roomy, 16, 80, 1), false, func(k key, _ moment) cell {
			if k.LastError == "" {
				return cell{"-", quiet}
			}
			return cell{k.LastError, alarm}
		}},
		{"NEXT KILL", fixed(ample, 10), false, func(k key, m moment) cell { return cell{nextKill(k, m.now), plain} }},
		{"IN ROW", fixed(ample, 6), true, func(k key, _ moment) cell { return counted(k.Failures, watch) }},
		{"ADDED", fixed(ample, 7), true, func(k key, _ moment) cell { return counted(int(k.Added), plain) }},
	}
}

// nextKill is when a pod behind the key may be killed next. Where a node goes and its deadline is not known, that is now.
func nextKill(k *stream.Key, now time.Time) string {
	if k.Class == committed && k.Kill.IsZero() {
		return "now"
	}
	return countdown(now, k.Kill)
}

// nextTry is when a key that backs off or waits is looked at again, about.
func nextTry(k *stream.Key, now time.Time) string {
	switch {
	case k.State == stream.Running && k.Again:
		return "at once"
	case k.State == stream.Queued:
		return "now"
	case k.Until.IsZero():
		return "-"
	case k.Until.Before(now):
		return "now"
	}
	return countdown(now, k.Until)
}

// took writes how long a run took, in a unit that a person reads.
func took(d time.Duration) string {
	switch {
	case d <= 0:
		return "-"
	case d < time.Millisecond:
		return number(int64(d/time.Microsecond)) + "us"
	case d < 10*time.Second:
		return number(int64(d/time.Millisecond)) + "ms"
	}
	return span(d)
}

func keyDetail(k *stream.Key, m moment) string {
	text := "Asked for " + number(k.Added) + " times"
	if n := deduped(k); n > 0 {
		text += ", " + number(n) + " of them while it was queued or running already"
	}
	text += "; run " + number(k.Started) + " times"
	if k.Failures > 0 {
		text += "; failed " + number(k.Failures) + " times in a row"
	}
	if k.Again {
		text += "; asked for again while it runs"
	}
	if k.LastError != "" {
		text += "; last error: " + k.LastError
	}
	return text
}

func keyFields(k *stream.Key, m moment) []field {
	kill := stamp(m.now, k.Kill)
	if kill == "" && k.Class == committed {
		kill = "now, for all that is known"
	}
	return []field{
		{"kind", k.Kind}, {"class", k.Class}, {"state", string(k.State)}, {"since", stamp(m.now, k.Since)}, {"next try, about", stamp(m.now, k.Until)},
		{"next possible kill", kill}, {"asked for again", yes(k.Again)},
		{"asked for", number(k.Added)}, {"while queued", number(k.DedupedQueued)}, {"while running", number(k.DedupedRun)},
		{"runs", number(k.Started)}, {"failed runs", number(k.Failed)}, {"failed in a row", number(k.Failures)},
		{"last run took", took(k.LastDuration)}, {"last error", k.LastError},
	}
}
