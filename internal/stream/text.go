package stream

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxText is the most bytes of one string that is sent or kept. Kubernetes' names are shorter (253); messages are cut.
const maxText = 1024

// printable returns the text without anything that a terminal would obey or show out of order, and of at most maxText
// bytes. Text that is fine comes back as it is, without a copy.
func printable(text string) string {
	if len(text) <= maxText && plain(text) {
		return text
	}
	var b strings.Builder
	for _, r := range text { // invalid UTF-8 comes as U+FFFD
		if !shows(r) {
			r = utf8.RuneError
		}
		if b.Len()+utf8.RuneLen(r)+len("…") > maxText {
			b.WriteString("…")
			break
		}
		b.WriteRune(r)
	}
	return b.String()
}

// plain tells whether the text is printable ASCII, as nearly all is.
func plain(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}

// shows tells whether a terminal shows the rune where it stands: no control characters (C0, DEL, C1), nothing that turns
// the direction of what follows or is invisible (Cf), no line or paragraph separators.
func shows(r rune) bool {
	return r != utf8.RuneError && !unicode.Is(unicode.Cc, r) && !unicode.Is(unicode.Cf, r) && r != '\u2028' && r != '\u2029'
}
