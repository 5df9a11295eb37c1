package tui

import "strings"

// SpeaksUTF8 tells whether the locale in an environment, such as os.Getenv's, has more than ASCII, as the C library decides
// it. No locale at all is taken for UTF-8, which is what terminals speak.
func SpeaksUTF8(env func(string) string) bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if locale := env(name); locale != "" {
			locale = strings.ToLower(locale)
			return strings.Contains(locale, "utf-8") || strings.Contains(locale, "utf8")
		}
	}
	return true
}
