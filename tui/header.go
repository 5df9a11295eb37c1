package tui

import (
	"cmp"
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
		if n.Held {
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
	// short says the same in less room; empty where nothing does.
	short string
}

// spare is the rank from which segments have only the room that the others, written out, leave.
const spare = 5

// join puts as many segments on a line as fit, in their short forms rather than not at all.
func (m *model) join(segments []segment) string {
	texts := make([]string, len(segments)) // as they are on the line, empty for those that are not
	left := m.width + gap
	keep := func(from, until int) {
		for rank := from; rank < until; rank++ {
			for i, s := range segments {
				text := cmp.Or(s.short, s.text)
				if need := cells(text) + gap; s.rank == rank && text != "" && need <= left {
					texts[i] = text
					left -= need
				}
			}
		}
	}
	keep(0, spare)
	for i, s := range segments {
		if more := cells(s.text) - cells(texts[i]); texts[i] != "" && more <= left {
			texts[i] = s.text
			left -= more
		}
	}
	keep(spare, spare+5)
	var parts []string
	for i, text := range texts {
		if text != "" {
			parts = append(parts, m.paint(segments[i].as, text))
		}
	}
	return strings.Join(parts, "  ")
}

// The modes of kubectl rollcall (Options.Mode) that have a short form.
const (
	ModeCluster   = "the cluster's controller"
	ModeLocal     = "a controller in this process"
	ModeRecording = "a recording"
)

var shortModes = map[string]string{ModeCluster: "in-cluster", ModeLocal: "local", ModeRecording: "recording"}

// connectionLine says what the screen shows, and how old that is.
func (m *model) connectionLine() string {
	cluster := clean(m.options.Context)
	segments := []segment{
		{text: "rollcall", as: strong, rank: spare},
		{text: cut(cluster, 28, m.tail), rank: 2, short: cut(cluster, 14, m.tail)},
		m.phase(), m.dataAge(),
	}
	if m.paused {
		segments = append(segments, segment{text: "= paused", as: watch})
	}
	if m.state != nil {
		segments = append(segments, m.leader())
		if m.state.Server.DryRun {
			segments = append(segments, segment{text: "read-only", as: watch, rank: 3})
		}
	}
	segments = append(segments, segment{text: clean(m.options.Mode), rank: 1, short: shortModes[m.options.Mode]})
	if m.frame.FellBehind > 0 {
		segments = append(segments, segment{text: "fell behind " + times(m.frame.FellBehind), as: watch, rank: 3, short: "fell behind"})
	}
	if m.returns > 0 {
		segments = append(segments, segment{text: "reconnected " + times(m.returns), as: quiet, rank: spare + 1})
	}
	if m.frame.Peer != "" {
		segments = append(segments, segment{text: "via " + cut(clean(m.frame.Peer), 40, m.tail), as: quiet, rank: spare + 2})
	}
	return m.join(segments)
}

// leader names who leads. In short that is the end of a pod's name, which is what tells it from the others.
func (m *model) leader() segment {
	name := leaderOf(m.state)
	s := segment{text: "leader " + cut(name, 40, m.tail), rank: 4}
	if dash := strings.LastIndex(name, "-"); dash >= 0 && dash < len(name)-1 {
		s.short = "leader " + m.tail + cut(name[dash+1:], 12, m.tail)
	}
	return s
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
		return segment{text: "* live", as: good}
	case stream.Disconnected:
		return segment{text: "! disconnected", as: alarm}
	case stream.Ended:
		return segment{text: ". ended", as: quiet}
	}
	return segment{text: "~ connecting", as: watch}
}

func (m *model) dataAge() segment {
	if m.state == nil {
		return segment{text: "no data yet", as: quiet}
	}
	as := plain
	if m.frame.Phase != stream.Live {
		as = alarm
	}
	return segment{text: "data " + age(m.now, m.received) + " old", as: as}
}

// countsLine is the state in numbers.
func (m *model) countsLine() string {
	if m.state == nil {
		return ""
	}
	t, s := m.tally, m.state
	segments := []segment{{text: "going " + number(len(s.Going))}}
	segments = append(segments, segment{text: number(t.committed) + " committed", as: toneOf(t.committed, alarm), rank: 3})
	segments = append(segments, segment{text: number(t.pending) + " pending", as: toneOf(t.pending, watch), rank: 4})
	segments = append(segments, segment{text: "lost " + number(t.lost), as: toneOf(t.lost, alarm), rank: 0})
	if t.elsewhere > 0 {
		segments = append(segments, segment{text: "elsewhere " + number(t.elsewhere), as: alarm, rank: 2})
	}
	segments = append(segments, segment{text: "stranded " + number(t.stranded), as: toneOf(t.stranded, watch), rank: 1})
	segments = append(segments, segment{text: "coming " + number(len(s.Coming)), as: plain, rank: 1})
	segments = append(segments, segment{text: "held " + number(t.held), as: toneOf(t.held, watch), rank: 1})
	segments = append(segments, segment{text: "queue " + number(s.Queue.Depth), as: plain, rank: 0})
	if s.LostDecisions > 0 {
		segments = append(segments, segment{text: "decisions missed " + number(s.LostDecisions), as: watch, rank: 2})
	}
	segments = append(segments, segment{text: m.spark(m.rates.depths), as: good, rank: 5}) // last: its width is not the same everywhere
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
	glyph, since := m.sinceWhen()
	if m.frame.Notice == "" {
		return glyph + " " + since
	}
	// The line is cut at its end, and the reason is what the line above does not say.
	return glyph + " " + strings.TrimRight(m.frame.Notice, ".") + "; " + since
}

// whyNotLive says how the connection is and why, where there is room for both.
func (m *model) whyNotLive() string {
	glyph, text := m.sinceWhen()
	if m.frame.Notice != "" {
		text += ": " + m.frame.Notice
	}
	return glyph + " " + text
}

// sinceWhen says since when there is no connection, and when the next attempt is.
func (m *model) sinceWhen() (glyph, text string) {
	if m.frame.Phase != stream.Disconnected {
		return "~", "connecting for " + age(m.now, m.frame.Since)
	}
	text = "disconnected " + age(m.now, m.frame.Since) + " ago"
	if m.frame.Retry.After(m.now) {
		text += ", next try " + countdown(m.now, m.frame.Retry)
	}
	return "!", text
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
