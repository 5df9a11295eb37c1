package tui

import (
	"strings"

	"github.com/rollcall-dev/rollcall/internal/stream"
)

// A tally counts what the header says of a state.
type tally struct {
	committed, pending, lost, stranded, elsewhere, held int
}

func newTally(s *stream.State) (t tally) {
	for _, n := range s.Going {
		switch n.State {
		case committed:
			t.committed++
		case pending:
			t.pending++
		}
		t.lost += n.Verdicts[lost]
		t.stranded += n.Verdicts[stranded]
		t.elsewhere += n.Collateral
	}
	for _, n := range s.Coming {
		if n.Held && n.Released.IsZero() {
			t.held++
		}
	}
	return t
}

// A segment is a part of a line of the header. Where the line is too short, those of the highest rank go first.
type segment struct {
	text string
	as   tone
	rank int
}

// join puts as many segments on a line as fit.
func (m *model) join(segments []segment) string {
	keep := make([]bool, len(segments))
	room := m.width
	for rank := range 10 {
		for i, s := range segments {
			if need := cells(s.text) + gap; s.rank == rank && s.text != "" && need <= room+gap {
				keep[i] = true
				room -= need
			}
		}
	}
	var parts []string
	for i, s := range segments {
		if keep[i] {
			parts = append(parts, m.paint(s.as, s.text))
		}
	}
	return strings.Join(parts, "  ")
}

// connectionLine says what the screen shows, and how old that is.
func (m *model) connectionLine() string {
	segments := []segment{{"rollcall", strong, 0}, {cut(clean(m.options.Context), 28, m.tail), plain, 2}, m.phase(), m.dataAge()}
	if m.paused {
		segments = append(segments, segment{"= paused", watch, 0})
	}
	if m.state != nil {
		segments = append(segments, segment{"leader " + cut(leaderOf(m.state), 40, m.tail), plain, 3})
		if m.state.Server.DryRun {
			segments = append(segments, segment{"read-only", watch, 3})
		}
	}
	segments = append(segments, segment{clean(m.options.Mode), plain, 4})
	if m.frame.FellBehind > 0 {
		segments = append(segments, segment{"fell behind " + times(m.frame.FellBehind), watch, 5})
	}
	if m.returns > 0 {
		segments = append(segments, segment{"reconnected " + times(m.returns), quiet, 6})
	}
	if m.frame.Peer != "" {
		segments = append(segments, segment{"via " + cut(clean(m.frame.Peer), 40, m.tail), quiet, 7})
	}
	return m.join(segments)
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return number(n) + " times"
}

// leaderOf names the controller without what makes it unique.
func leaderOf(s *stream.State) string {
	name, _, _ := strings.Cut(s.Server.Identity, "_")
	return dash(clean(name))
}

func (m *model) phase() segment {
	switch m.frame.Phase {
	case stream.Live:
		return segment{"* live", good, 0}
	case stream.Disconnected:
		return segment{"! disconnected", alarm, 0}
	case stream.Ended:
		return segment{". ended", quiet, 0}
	}
	return segment{"~ connecting", watch, 0}
}

func (m *model) dataAge() segment {
	if m.state == nil {
		return segment{"no data yet", quiet, 0}
	}
	as := plain
	if m.frame.Phase != stream.Live {
		as = alarm
	}
	return segment{"data " + age(m.now, m.received) + " old", as, 1}
}

// countsLine is the state in numbers.
func (m *model) countsLine() string {
	if m.state == nil {
		return ""
	}
	t, s := m.tally, m.state
	segments := []segment{{"going " + number(len(s.Going)), plain, 0}}
	segments = append(segments, segment{number(t.committed) + " committed", toneOf(t.committed, alarm), 3})
	segments = append(segments, segment{number(t.pending) + " pending", toneOf(t.pending, watch), 4})
	segments = append(segments, segment{"lost " + number(t.lost), toneOf(t.lost, alarm), 0})
	if t.elsewhere > 0 {
		segments = append(segments, segment{"elsewhere " + number(t.elsewhere), alarm, 2})
	}
	segments = append(segments, segment{"stranded " + number(t.stranded), toneOf(t.stranded, watch), 1})
	segments = append(segments, segment{"coming " + number(len(s.Coming)), plain, 1})
	segments = append(segments, segment{"held " + number(t.held), toneOf(t.held, watch), 1})
	segments = append(segments, segment{"queue " + number(s.Queue.Depth), plain, 0})
	if s.LostDecisions > 0 {
		segments = append(segments, segment{"decisions missed " + number(s.LostDecisions), watch, 2})
	}
	segments = append(segments, segment{m.spark(m.rates.depths), good, 5}) // last: its width is not the same everywhere
	return m.join(segments)
}

func toneOf(n int, as tone) tone {
	if n == 0 {
		return plain
	}
	return as
}

// bannerText says why the connection is as it is; empty while all is well.
func (m *model) bannerText() string {
	if m.state == nil {
		return "" // the body says it
	}
	switch m.frame.Phase {
	case stream.Live:
		return m.frame.Notice
	case stream.Ended:
		return ". the recording has ended; what is shown is its last state"
	}
	return m.whyNotLive()
}

func (m *model) whyNotLive() string {
	text := "~ connecting for " + age(m.now, m.frame.Since)
	if m.frame.Phase == stream.Disconnected {
		text = "! disconnected " + age(m.now, m.frame.Since) + " ago"
	}
	if m.frame.Phase == stream.Disconnected && m.frame.Retry.After(m.now) {
		text += ", next try " + countdown(m.now, m.frame.Retry)
	}
	if m.state != nil {
		text += ", shown is what was known " + age(m.now, m.received) + " ago"
	}
	if m.frame.Notice != "" {
		text += ": " + m.frame.Notice
	}
	return text
}

// queueSummary is the queue as a whole.
func queueSummary(m *model) string {
	q := m.state.Queue
	text := "running " + number(q.Running) + " of " + number(q.Workers) + "  backing off " + number(q.BackingOff) + "  waiting " + number(q.Waiting) +
		"  known " + number(q.Known)
	if !q.Oldest.IsZero() && q.Depth > 0 {
		text += "  oldest " + age(m.moment().now, q.Oldest)
	}
	for _, r := range []struct {
		name  string
		count func(stream.Totals) int64
	}{
		{"done", func(t stream.Totals) int64 { return t.Done }},
		{"added", func(t stream.Totals) int64 { return t.Added }},
		{"deduped", func(t stream.Totals) int64 { return t.Deduped }},
		{"failed", func(t stream.Totals) int64 { return t.Failed }},
	} {
		if rate, known := m.rates.perSecond(r.count); known {
			text += "  " + r.name + " " + perSecond(rate)
		}
	}
	if q.Forgotten > 0 {
		text += "  forgotten " + number(q.Forgotten)
	}
	return text
}

func perSecond(rate float64) string {
	tenths := int64(rate*10 + 0.5)
	if tenths >= 100 || tenths%10 == 0 {
		return number(tenths/10) + "/s"
	}
	return number(tenths/10) + "." + number(tenths%10) + "/s"
}
