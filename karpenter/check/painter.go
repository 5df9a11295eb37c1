package check

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rollcall-dev/rollcall/karpenter/fate"
)

// ANSI attributes.
const (
	bold    = "1"
	red     = "1;31"
	yellow  = "33"
	magenta = "35"
)

var verdictColors = map[fate.Verdict]string{fate.Lost: red, fate.Stranded: yellow, fate.Unsure: magenta}

// A painter writes text for people.
type painter struct {
	view View
	out  strings.Builder
}

func (p *painter) line(text string) {
	p.out.WriteString(strings.TrimRight(text, " "))
	p.out.WriteByte('\n')
}

func (p *painter) paint(attribute, text string) string {
	if !p.view.Color || attribute == "" {
		return text
	}
	return "\x1b[" + attribute + "m" + text + "\x1b[0m"
}

// A table is rows under a header; the last column may be long.
type table struct {
	title  string
	header []string
	rows   []row
}

type row struct {
	verdict fate.Verdict
	cells   []string
}

func (t *table) add(verdict fate.Verdict, cells ...string) {
	for i := range cells {
		cells[i] = clean(cells[i])
	}
	t.rows = append(t.rows, row{verdict, cells})
}

// indent stands before each row.
const indent = "  "

// table writes a table, after a blank line; nothing where it has no rows. The first column bears the verdict's colour.
func (p *painter) table(t table) {
	if len(t.rows) == 0 {
		return
	}
	p.line("")
	if t.title != "" {
		p.line(indent + t.title)
	}
	last := len(t.header) - 1
	widths := make([]int, last)
	for _, r := range append([]row{{cells: t.header}}, t.rows...) {
		for i := range widths {
			widths[i] = max(widths[i], utf8.RuneCountInString(r.cells[i]))
		}
	}
	margin := len(indent)
	for _, w := range widths {
		margin += w + 2
	}
	p.row(row{cells: t.header}, widths, margin)
	for _, r := range t.rows {
		p.row(r, widths, margin)
	}
}

func (p *painter) row(r row, widths []int, margin int) {
	var b strings.Builder
	b.WriteString(indent)
	for i, w := range widths {
		pad := strings.Repeat(" ", w-utf8.RuneCountInString(r.cells[i])+2)
		cell := r.cells[i]
		if i == 0 {
			cell = p.paint(verdictColors[r.verdict], cell)
		}
		b.WriteString(cell + pad)
	}
	lines := p.wrap(r.cells[len(widths)], margin)
	p.line(b.String() + lines[0])
	for _, more := range lines[1:] {
		p.line(strings.Repeat(" ", margin) + more)
	}
}

// minText is the least width that is worth breaking lines for.
const minText = 24

// wrap breaks the text between words so that it fits to the right of the margin.
func (p *painter) wrap(text string, margin int) []string {
	room := p.view.Width - margin
	if p.view.Width == 0 || room < minText {
		return []string{text}
	}
	var lines []string
	current := ""
	for word := range strings.FieldsSeq(text) {
		if current != "" && utf8.RuneCountInString(current)+1+utf8.RuneCountInString(word) > room {
			lines = append(lines, current)
			current = ""
		}
		if current != "" {
			current += " "
		}
		current += word
	}
	return append(lines, current)
}

// clean keeps names and messages from steering the terminal.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			return '?'
		}
		return r
	}, text)
}
