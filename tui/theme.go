package tui

import (
	"io"
	"strconv"
	"strings"

	"github.com/charmbracelet/lipgloss"
	"github.com/charmbracelet/x/ansi"
	"github.com/muesli/termenv"
)

// A tone is what a text says by its colour, beside its glyph and its word.
type tone int

const (
	plain  tone = iota
	quiet       // of no concern now
	strong      // a title
	alarm       // someone is lost, or soon will be
	watch       // worth an eye
	good        // as it should be
	chosen      // the cursor's row, the open view
	tones       // how many there are
)

// A theme is how this terminal is written to.
type theme struct {
	styles [tones]brush
	tail   string // of a text that was cut
	mark   string // of the cursor's row
	sparks []string
	ascii  bool // the terminal has no other characters
}

// A brush is what stands round a text to give it a tone; nothing where the terminal has no such thing.
type brush struct{ before, after string }

// newBrush has the style rendered once: looking a colour up costs more than a row.
func newBrush(style lipgloss.Style) brush {
	before, after, _ := strings.Cut(style.Render("x"), "x")
	return brush{before, after}
}

// newTheme takes a palette of blue and orange, which people tell apart who do not tell red from green.
func newTheme(profile termenv.Profile, ascii bool) *theme {
	r := lipgloss.NewRenderer(io.Discard, termenv.WithProfile(profile))
	r.SetColorProfile(profile)
	r.SetHasDarkBackground(true) // never asked for: the palette does for both
	t := &theme{tail: "…", mark: "»", sparks: []string{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"}}
	t.ascii = ascii
	if ascii {
		t.tail, t.mark, t.sparks = "~", ">", []string{"_", ".", "-", "=", "+", "*", "#", "@"}
	}
	t.styles = [tones]brush{
		quiet:  newBrush(r.NewStyle().Faint(true)),
		strong: newBrush(r.NewStyle().Bold(true)),
		alarm:  newBrush(r.NewStyle().Bold(true).Foreground(lipgloss.Color("208"))),
		watch:  newBrush(r.NewStyle().Foreground(lipgloss.Color("178"))),
		good:   newBrush(r.NewStyle().Foreground(lipgloss.Color("39"))),
		chosen: newBrush(r.NewStyle().Reverse(true)),
	}
	return t
}

func (t *theme) paint(as tone, text string) string {
	if as == plain || text == "" {
		return text
	}
	return t.styles[as].before + text + t.styles[as].after
}

// speak writes a line of the screen in the terminal's characters. Where those are ASCII, every other one is as many question
// marks as it has cells, so that the columns stay. It is the last step: what is copied keeps its characters.
func (t *theme) speak(line string) string {
	if !t.ascii || !strings.ContainsFunc(line, func(r rune) bool { return r > '~' }) {
		return line
	}
	var b strings.Builder
	for len(line) > 0 {
		cluster, width := ansi.FirstGraphemeCluster(line, ansi.GraphemeWidth)
		if strings.ContainsFunc(cluster, func(r rune) bool { return r > '~' }) {
			b.WriteString(strings.Repeat("?", width))
		} else {
			b.WriteString(cluster)
		}
		line = line[len(cluster):]
	}
	return b.String()
}

// spark draws numbers, the highest at full height.
func (t *theme) spark(values []int) string {
	highest := 0
	for _, v := range values {
		highest = max(highest, v)
	}
	drawn := ""
	for _, v := range values {
		step := 0
		if highest > 0 {
			step = (v*(len(t.sparks)-1) + highest - 1) / highest
		}
		drawn += t.sparks[step]
	}
	return drawn
}

func number[N int | int64 | uint64](n N) string { return strconv.FormatInt(int64(n), 10) }

func twoDigits(n int64) string {
	if n < 10 {
		return "0" + number(n)
	}
	return number(n)
}
