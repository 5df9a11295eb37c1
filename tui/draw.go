package tui

import (
	"strings"

	"github.com/rollcall-dev/rollcall/internal/stream"
)

// A view is a table on the screen, whatever its rows are: a listing.
type view interface {
	load(state *stream.State, reading bool) (notice string)
	release() (notice string)
	move(by int)
	toTop()
	toBottom()
	filter(text string)
	filtered() string
	sort(next bool)
	sorted() string
	position() (at, shown, all int)
	id() string
	name() string
	draw(m moment, rows, screen int, wide bool) []string
	strip(m moment, lines, screen int) []string
	page(m moment) (title string, fields []field)
}

// draw returns the table's header and as many lines as there are to be rows.
func (l *listing[T]) draw(m moment, rows, screen int, wide bool) []string {
	rooms := make([]room, len(l.spec.columns))
	for i, c := range l.spec.columns {
		rooms[i] = c.room
	}
	widths := share(rooms, screen, wide)
	lines := make([]string, 0, rows+1)
	lines = append(lines, l.drawHeader(m, widths))
	for i, row := range l.window(rows) {
		lines = append(lines, l.drawRow(m, widths, row, l.top+i == l.at))
	}
	if len(l.shown) == 0 {
		lines = append(lines, m.paint(quiet, cut("  "+l.nothing(), screen, m.tail)))
	}
	for len(lines) < rows+1 {
		lines = append(lines, "")
	}
	return lines
}

func (l *listing[T]) nothing() string {
	if len(l.all) > 0 {
		return "none of " + number(len(l.all)) + " matches the filter; esc clears it"
	}
	return l.spec.empty
}

func (l *listing[T]) drawHeader(m moment, widths []int) string {
	var b strings.Builder
	b.WriteString("  ")
	for i, c := range l.spec.columns {
		if widths[i] > 0 {
			b.WriteString(fit(c.title, widths[i], c.right, m.tail))
			b.WriteString("  ")
		}
	}
	return m.paint(strong, strings.TrimRight(b.String(), " "))
}

func (l *listing[T]) drawRow(m moment, widths []int, row T, chosenRow bool) string {
	var b strings.Builder
	pending := "  " // blanks that nothing follows are not written
	if chosenRow {
		pending = m.mark + " "
	}
	for i, c := range l.spec.columns {
		if widths[i] == 0 {
			continue
		}
		content := c.cell(row, m)
		text := fit(clean(content.text), widths[i], c.right, m.tail)
		trimmed := strings.TrimRight(text, " ")
		if trimmed == "" {
			pending += text + "  "
			continue
		}
		b.WriteString(pending)
		if chosenRow {
			b.WriteString(trimmed)
		} else {
			b.WriteString(m.paint(content.as, trimmed))
		}
		pending = text[len(trimmed):] + "  "
	}
	if chosenRow {
		return m.paint(chosen, b.String())
	}
	return b.String()
}

// strip tells more of the cursor's row than its columns have room for.
func (l *listing[T]) strip(m moment, lines, screen int) []string {
	strip := make([]string, lines)
	row, ok := l.selected()
	if !ok {
		return strip
	}
	words := wrap(clean(l.spec.detail(row, m)), screen-gutter)
	for i := range min(lines, len(words)) {
		line := words[i]
		if i == lines-1 && len(words) > lines {
			line = cut(line+" "+words[i+1], screen-gutter-1, "") + m.tail
		}
		strip[i] = m.paint(quiet, "  "+line)
	}
	return strip
}

// page tells all there is to know of the cursor's row.
func (l *listing[T]) page(m moment) (title string, fields []field) {
	row, ok := l.selected()
	if !ok {
		return "", nil
	}
	return l.spec.noun + " " + l.spec.name(row), l.spec.fields(row, m)
}
