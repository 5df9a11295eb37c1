package tui

import "testing"

func TestSpeaksUTF8(t *testing.T) {
	for _, tc := range []struct {
		env  map[string]string
		want bool
	}{
		{nil, true},
		{map[string]string{"LANG": "de_DE.UTF-8"}, true},
		{map[string]string{"LANG": "C.utf8"}, true},
		{map[string]string{"LANG": "C"}, false},
		{map[string]string{"LANG": "de_DE.ISO-8859-1"}, false},
		{map[string]string{"LC_ALL": "POSIX", "LANG": "de_DE.UTF-8"}, false},
		{map[string]string{"LC_ALL": "", "LC_CTYPE": "en_US.UTF-8", "LANG": "C"}, true},
	} {
		if got := SpeaksUTF8(func(key string) string { return tc.env[key] }); got != tc.want {
			t.Errorf("with %v: %t", tc.env, got)
		}
	}
}
