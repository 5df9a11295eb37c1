package tui

import (
	"io"
	"strconv"

	"github.com/charmbracelet/lipgloss"
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
	ascii  bool
	styles [tones]lipgloss.Style
	tail   string // of a text that was cut
	mark   string // of the cursor's row
	sparks []string
}

// newTheme takes a palette of blue and orange, which people tell apart who do not tell red from green.
func newTheme(profile termenv.Profile, ascii bool) *theme {
	r := lipgloss.NewRenderer(io.Discard, termenv.WithProfile(profile))
	r.SetColorProfile(profile)
	r.SetHasDarkBackground(true) // never asked for: the palette does for both
	t := &theme{ascii: ascii, tail: "…", mark: "»", sparks: []string{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"}}
	if ascii {
		t.tail, t.mark, t.sparks = "~", ">", []string{"_", ".", "-", "=", "+", "*", "#", "@"}
	}
	t.styles = [tones]lipgloss.Style{
		plain:  r.NewStyle(),
		quiet:  r.NewStyle().Faint(true),
		strong: r.NewStyle().Bold(true),
		alarm:  r.NewStyle().Bold(true).Foreground(lipgloss.Color("208")),
		watch:  r.NewStyle().Foreground(lipgloss.Color("178")),
		good:   r.NewStyle().Foreground(lipgloss.Color("39")),
		chosen: r.NewStyle().Reverse(true),
	}
	return t
}

func (t *theme) paint(as tone, text string) string {
	if as == plain || text == "" {
		return text
	}
	return t.styles[as].Inline(true).Render(text)
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
