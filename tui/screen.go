package tui

import (
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// View returns the screen. bubbletea asks after every message, so it is drawn only when something changed.
func (m *model) View() string {
	if m.stale {
		m.screen, m.stale = m.drawScreen(), false
	}
	return m.screen
}

// drawScreen returns as many lines as the terminal has, none wider than it.
func (m *model) drawScreen() string {
	if m.width <= 0 || m.height <= 0 {
		return "" // the terminal has not said yet
	}
	if tooSmall(m.width, m.height) {
		text := "terminal too small (need " + number(leastWidth) + "x" + number(leastHeight) + ")"
		return cut(text, m.width, m.tail) + strings.Repeat("\n", m.height-1)
	}
	l := m.layout()
	lines := make([]string, 0, m.height)
	lines = append(lines, m.connectionLine(), m.countsLine())
	if l.banner {
		lines = append(lines, m.paint(alarm, cut(clean(m.bannerText()), m.width, m.tail)))
	}
	lines = append(lines, m.tabsLine())
	lines = append(lines, m.drawBody(l)...)
	lines = append(lines, m.footer())
	for i, line := range lines {
		lines[i] = ansi.Truncate(m.speak(line), m.width, "")
	}
	return strings.Join(lines, "\n")
}

func (m *model) layout() layout {
	summary := m.tab().summary != nil && m.state != nil
	return newLayout(m.width, m.height, m.bannerText() != "", summary)
}

// drawBody returns what is between the tabs and the footer.
func (m *model) drawBody(l layout) []string {
	switch {
	case m.page != nil:
		return m.drawPage()
	case m.state == nil:
		return m.drawWaiting(l)
	}
	var lines []string
	if l.summary {
		lines = append(lines, "  "+cut(m.tab().summary(m), l.width-gutter, m.tail))
	}
	at := m.moment()
	lines = append(lines, m.view().draw(at, l.rows, l.width, m.wide)...)
	return append(lines, m.view().strip(at, l.strip, l.width)...)
}

// drawWaiting says what is waited for, before there is anything to show.
func (m *model) drawWaiting(l layout) []string {
	lines := []string{""}
	for _, line := range wrap(clean(m.whyNotLive()), l.width-2*gutter) {
		lines = append(lines, "  "+line)
	}
	if m.frame.Peer != "" {
		lines = append(lines, "  "+cut("to "+clean(m.frame.Peer), l.width-2*gutter, m.tail))
	}
	return exactly(lines, m.pageRows())
}

// exactly cuts lines, or adds empty ones.
func exactly(lines []string, count int) []string {
	if len(lines) > count {
		return lines[:count]
	}
	return append(lines, make([]string, count-len(lines))...)
}

// tabsLine names the views, with what was opened.
func (m *model) tabsLine() string {
	var b strings.Builder
	for i, t := range m.tabs {
		text := number(i+1) + " " + t.title
		if m.state != nil && m.width >= usual+10 {
			text += " " + number(t.count(m.state))
		}
		if i == m.on {
			b.WriteString(m.paint(chosen, "["+text+"]"))
		} else {
			b.WriteString(" " + text + " ")
		}
	}
	if t := m.tab(); t.opened != nil {
		b.WriteString(" " + m.paint(strong, m.mark+" "+clean(t.openedOn)))
	}
	return b.String()
}

// footer is the notice, the filter that is typed, or the position and the keys.
func (m *model) footer() string {
	if m.typing {
		return m.paint(strong, "/"+cut(m.typed, m.width-30, m.tail)+"_") + "  enter keeps it, esc clears it"
	}
	if m.notice != "" {
		return m.paint(watch, cut("  "+clean(m.notice), m.width, m.tail))
	}
	segments := m.whereabouts()
	for _, group := range keymap {
		for _, b := range group.bindings {
			if b.footer > 0 && m.offers(b.action) {
				key, _, _ := strings.Cut(b.Help().Key, ",")
				segments = append(segments, segment{text: key + " " + footerWord(b), as: quiet, rank: b.footer})
			}
		}
	}
	return m.join(segments)
}

// offers tells whether the footer has a key: one that works here and does what its word says. On a page enter and, in the
// help, ? go back; esc says so.
func (m *model) offers(does action) bool {
	if m.page != nil && (does == enter || does == help && m.page.of == "") {
		return false
	}
	return m.works(does)
}

// whereabouts says where in the table or the page the screen is.
func (m *model) whereabouts() []segment {
	if m.page != nil {
		all, rows := len(m.pageLines()), m.pageRows()
		if all <= rows {
			return nil
		}
		return []segment{{text: "lines " + number(m.page.top+1) + "-" + number(min(all, m.page.top+rows)) + " of " + number(all), as: strong}}
	}
	if m.state == nil {
		return nil
	}
	at, shown, all := m.view().position()
	text := number(at) + " of " + number(shown)
	if needle := m.view().filtered(); needle != "" {
		text = "/" + cut(clean(needle), 20, m.tail) + "  " + text + " (" + number(all) + ")"
	}
	segments := []segment{{text: text, as: strong}, {text: "by " + m.view().sorted(), rank: 1}}
	if left := m.state.Left[m.tab().left]; left > 0 && m.tab().opened == nil {
		segments = append(segments, segment{text: "and " + number(left) + " that are not sent", as: watch})
	}
	return segments
}

// footerWord is the first word of what a key does.
func footerWord(b binding) string {
	word, _, _ := strings.Cut(b.Help().Desc, " ")
	return strings.TrimRight(word, ":;,")
}
