package tui

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/charmbracelet/x/ansi"
	"github.com/muesli/termenv"
	"k8s.io/klog/v2"

	"github.com/rollcall-dev/rollcall/internal/stream"
)

// styled are the sequences that the theme itself writes: attributes and colours.
var styled = regexp.MustCompile(`\x1b\[[0-9;]*m`)

func steers(r rune) bool { return r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) }

func TestClean(t *testing.T) {
	for text, want := range map[string]string{
		"plain text":              "plain text",
		"a\nb\tc":                 "a b c",
		"\x1b[31mred":             "?[31mred",
		"a\u202eb":                "a?b",
		"zero\u200bwidth":         "zero?width",
		"שלום":                    "????",
		"e\u0301":                 "e?",
		"\xff":                    "?",
		"日本":                      "日本",
		"für":                     "für",
		strings.Repeat("a", 9000): strings.Repeat("a", longestText),
	} {
		if got := clean(text); got != want {
			t.Errorf("clean(%.40q) is %.40q, want %.40q", text, got, want)
		}
	}
}

func TestFit(t *testing.T) {
	for _, tc := range []struct {
		text  string
		width int
		right bool
		want  string
	}{
		{"ab", 4, false, "ab  "},
		{"ab", 4, true, "  ab"},
		{"abcd", 4, false, "abcd"},
		{"abcde", 4, false, "abc…"},
		{"日本", 4, false, "日本"},
		{"日本語", 4, false, "日… "},
		{"日本語", 5, true, "日本…"},
		{"", 3, false, "   "},
		{"ab", 1, false, "…"},
	} {
		if got := fit(tc.text, tc.width, tc.right, "…"); got != tc.want {
			t.Errorf("fit(%q, %d, %t) is %q, want %q", tc.text, tc.width, tc.right, got, tc.want)
		}
	}
}

func TestWrap(t *testing.T) {
	for _, tc := range []struct {
		text  string
		width int
		want  []string
	}{
		{"", 5, nil},
		{"one two three", 7, []string{"one two", "three"}},
		{"  one   two ", 7, []string{"one two"}},
		{"abcdefgh ij", 3, []string{"abc", "def", "gh", "ij"}},
		{"日本語", 4, []string{"日本", "語"}},
		{"日", 1, nil},
	} {
		if got := wrap(tc.text, tc.width); !slices.Equal(got, tc.want) {
			t.Errorf("wrap(%q, %d) is %q, want %q", tc.text, tc.width, got, tc.want)
		}
	}
}

func FuzzText(f *testing.F) {
	for _, text := range hostile {
		f.Add(text, 7)
	}
	f.Fuzz(func(t *testing.T, text string, width int) {
		if width < 1 || width > 300 {
			return
		}
		c := clean(text)
		if strings.ContainsFunc(c, func(r rune) bool { return r == '\n' || steers(r) }) {
			t.Errorf("%q is not clean", c)
		}
		if got := ansi.StringWidth(fit(c, width, false, "…")); got != width {
			t.Errorf("%q fitted into %d takes %d", c, width, got)
		}
		for _, line := range wrap(c, width) {
			if ansi.StringWidth(line) > width {
				t.Errorf("%q is wider than %d", line, width)
			}
		}
	})
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 999 * time.Millisecond: "0s", 59 * time.Second: "59s", 100 * time.Second: "1m40s",
		time.Hour: "1h00m", 125 * time.Minute: "2h05m", 76 * time.Hour: "3d4h",
	} {
		if got := span(d); got != want {
			t.Errorf("span(%v) is %q, want %q", d, got, want)
		}
	}
}

func TestShare(t *testing.T) {
	rooms := []room{fixed(narrow, 10), growing(narrow, 20, 40, 2), growing(narrow, 20, 30, 1), fixed(usual, 10), fixed(ample, 10)}
	for _, tc := range []struct {
		screen int
		wide   bool
		want   []int
	}{
		{60, false, []int{10, 23, 21, 0, 0}},
		{80, false, []int{10, 28, 24, 10, 0}},
		{120, false, []int{10, 40, 30, 10, 0}},
		{120, true, []int{10, 40, 30, 10, 10}},
		{80, true, []int{10, 20, 20, 10, 10}},
		{200, false, []int{10, 40, 30, 10, 10}},
	} {
		if got := share(rooms, tc.screen, tc.wide); !slices.Equal(got, tc.want) {
			t.Errorf("share(%d, %t) is %v, want %v", tc.screen, tc.wide, got, tc.want)
		}
	}
}

// Without colours nothing is lost, and --ascii is ASCII.
func TestTheme(t *testing.T) {
	s := newStage(200, 50)
	s.live(oneNode())
	s.wait(3 * time.Second)
	bare := s.View()
	s.theme = newTheme(termenv.TrueColor, false)
	s.stale = true
	if painted := s.View(); !styled.MatchString(painted) || styled.ReplaceAllString(painted, "") != bare {
		t.Errorf("colours change the words:\n%s\n%s", bare, painted)
	}
	s.theme = newTheme(termenv.Ascii, true)
	for name, keys := range pictures {
		s.press(keys...)
		s.wait(time.Second)
		if !isPlain(strings.ReplaceAll(s.View(), "\n", "")) {
			t.Errorf("%s: --ascii has other characters:\n%s", name, s.View())
		}
		s.press("esc", "esc", "esc")
	}
}

// --ascii is ASCII whatever the data is, and the columns stay where they were.
func TestASCIIWithOtherData(t *testing.T) {
	state := oneNode()
	for i, name := range []string{"日本語のノード", "für-née", "\U0001f1e9\U0001f1ea", "한국", "ﬀ", "☁"} {
		state.Going = append(state.Going, &stream.GoingNode{Name: name, State: committed, Cause: "原因 é", Since: ago(time.Duration(i) * time.Second), Pods: 4321})
		state.Keys = append(state.Keys, &stream.Key{ID: "node " + name, LastError: "größer " + name})
		state.Pods[name] = []*stream.Pod{{UID: name, Namespace: name, Name: name, Verdict: lost, Message: name}}
	}
	state.Server.Identity = "größe-日本"
	for _, size := range sizes {
		for name, keys := range pictures {
			s, wide := newStage(size[0], size[1]), newStage(size[0], size[1])
			s.theme = newTheme(termenv.Ascii, true)
			for _, one := range []*stage{s, wide} {
				one.options.Context = "日本"
				one.live(state)
				one.press(append(keys, "j")...)
				one.wait(time.Second)
			}
			if !isPlain(strings.ReplaceAll(s.View(), "\n", "")) {
				t.Errorf("%s: --ascii has other characters:\n%s", name, s.View())
			}
			fits(t, s.View(), size[0], size[1])
			other := strings.Split(wide.text(), "\n")
			for i, line := range strings.Split(s.text(), "\n") {
				if got, want := widthOf(line), widthOf(other[i]); got != want {
					t.Errorf("%s: a line has %d cells, and with all characters %d:\n%s\n%s", name, got, want, line, other[i])
				}
			}
		}
	}
	s := newStage(80, 24)
	s.theme = newTheme(termenv.TrueColor, true)
	s.live(state)
	s.shows(t, "??????????????") // two for each wide one
	s.press("/", "é")
	if s.View(); s.typed != "é" {
		t.Errorf("what is typed became %q", s.typed)
	}
}

// cheatsheet returns the key table as a table in Markdown, for docs/ui.md.
func cheatsheet() string {
	var b strings.Builder
	b.WriteString("| key | what it does |\n| --- | --- |\n")
	for _, group := range keymap {
		for _, k := range group.bindings {
			b.WriteString("| `" + k.Help().Key + "` | " + k.Help().Desc + " |\n")
		}
	}
	return b.String()
}

// docs/ui.md has the key table as the program has it.
func TestCheatsheet(t *testing.T) {
	path := filepath.Join("..", "docs", "ui.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- keys -->\n", "<!-- end of keys -->"
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, also := strings.Cut(rest, end)
	if !ok || !also {
		t.Fatalf("%s has no place for the keys", path)
	}
	want := before + begin + cheatsheet() + end + after
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if string(text) != want {
		t.Errorf("%s differs from the key table (go test -update writes it)", path)
	}
}

// What the Kubernetes client logs and what plugins say goes to the file.
func TestQuiet(t *testing.T) {
	file, err := os.CreateTemp(t.TempDir(), "log")
	if err != nil {
		t.Fatal(err)
	}
	stdin, stderr := os.Stdin, os.Stderr
	restore := Quiet(file)
	if n, err := os.Stdin.Read(make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) || os.Stdin == stdin {
		t.Errorf("a plugin reads %d bytes (%v) of what is typed for the UI", n, err)
	}
	klog.Error("reflector: failed to list")
	if _, err := os.Stderr.WriteString("plugin: log in first\n"); err != nil {
		t.Fatal(err)
	}
	klog.Flush()
	restore()
	if os.Stdin != stdin || os.Stderr != stderr {
		t.Error("standard input or error is not given back")
	}
	text, err := os.ReadFile(file.Name())
	if err != nil || !strings.Contains(string(text), "failed to list") || !strings.Contains(string(text), "log in first") {
		t.Errorf("the file has %q (%v)", text, err)
	}
}
