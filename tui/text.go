package tui

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
)

// longestText bounds, in bytes, what is looked at of one text: longer ones fill any screen.
const longestText = 2 << 10

// unruly are the characters that move, join, hide or turn round what stands beside them: formats, marks, separators of
// lines, private ones, and letters that are written from right to left. No name of the API has any.
var unruly = []*unicode.RangeTable{
	unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs, unicode.Zl, unicode.Zp, unicode.Mn, unicode.Me, unicode.Mc,
	{
		R16: []unicode.Range16{{Lo: 0x0590, Hi: 0x08ff, Stride: 1}, {Lo: 0xfb1d, Hi: 0xfdff, Stride: 1}, {Lo: 0xfe70, Hi: 0xfeff, Stride: 1}},
		R32: []unicode.Range32{{Lo: 0x10800, Hi: 0x10fff, Stride: 1}, {Lo: 0x1e800, Hi: 0x1efff, Stride: 1}},
	},
}

// clean returns the text in one line without anything that could steer a terminal or be measured wrongly.
func clean(text string) string {
	if len(text) > longestText {
		text = text[:longestText]
	}
	if isPlain(text) {
		return text
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t':
			return ' '
		case r == utf8.RuneError, unicode.In(r, unruly...):
			return '?'
		}
		return r
	}, text)
}

// isPlain tells whether the text is printable ASCII, which is one cell a byte.
func isPlain(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}

// cells returns how many cells a cleaned text takes.
func cells(text string) int {
	if isPlain(text) {
		return len(text)
	}
	return ansi.StringWidth(text)
}

// cut returns the cleaned text in at most width cells, and with tail as its end where it was longer.
func cut(text string, width int, tail string) string {
	if len(text) <= width || cells(text) <= width {
		return text
	}
	if isPlain(text) && len(tail) <= width {
		return text[:width-cells(tail)] + tail
	}
	return ansi.Truncate(text, width, tail)
}

// fit returns the cleaned text in exactly width cells.
func fit(text string, width int, right bool, tail string) string {
	text = cut(text, width, tail)
	pad := strings.Repeat(" ", max(0, width-cells(text)))
	if right {
		return pad + text
	}
	return text + pad
}

// wrap breaks a cleaned text between words into lines of at most width cells. A word that is longer is broken.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && cells(line)+1+cells(word) <= width {
			line += " " + word
			continue
		}
		if line != "" {
			lines = append(lines, line)
		}
		for cells(word) > width {
			head := ansi.Truncate(word, width, "")
			if head == "" { // not one character has room
				return lines
			}
			lines = append(lines, head)
			word = word[len(head):]
		}
		line = word
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

// span writes a duration in at most two units, whole seconds and upwards: 9s, 1m40s, 2h05m, 3d4h.
func span(d time.Duration) string {
	seconds := int64(max(0, d) / time.Second)
	minutes, hours := seconds/60, seconds/3600
	switch {
	case minutes == 0:
		return number(seconds) + "s"
	case hours == 0:
		return number(minutes) + "m" + twoDigits(seconds%60) + "s"
	case hours < 24:
		return number(hours) + "h" + twoDigits(minutes%60) + "m"
	}
	return number(hours/24) + "d" + number(hours%24) + "h"
}

// age writes how long ago t was; a dash for never.
func age(now, t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return span(now.Sub(t))
}

// countdown writes how long it is until t, or since.
func countdown(now, t time.Time) string {
	switch {
	case t.IsZero():
		return "-"
	case t.Before(now):
		return span(now.Sub(t)) + " ago"
	}
	return "in " + span(t.Sub(now))
}
