package tui

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/rollcall-dev/rollcall/internal/stream"
)

// many is a state with 30 rows in each view; those of Going are n00, n01, … by deadline, and of n00 there are 30
// pods, in Standing too.
func many() *stream.State {
	s := serverState()
	s.Pods = map[string][]*stream.Pod{}
	for i := range 30 {
		name := string([]byte{'n', byte('0' + i/10), byte('0' + i%10)})
		s.Going = append(s.Going, &stream.GoingNode{Name: name, State: committed, Cause: "spot-interruption", Since: ago(time.Duration(i) * time.Second), Deadline: start.Add(time.Duration(60+i) * time.Second), Verdicts: map[string]int{lost: i % 4}})
		s.Pods["n00"] = append(s.Pods["n00"], &stream.Pod{UID: "u-" + name, Namespace: "shop", Name: "p-" + name, Node: "n00", Verdict: lost, Reason: "NoController"})
		s.Coming = append(s.Coming, &stream.ComingNode{ID: "c-" + name, Node: "c-" + name, Created: ago(time.Duration(30-i) * time.Second)})
		s.Keys = append(s.Keys, &stream.Key{ID: "node " + name, State: stream.Queued, Since: ago(time.Duration(30-i) * time.Second)})
		s.Decisions = append(s.Decisions, &stream.Decision{Sequence: uint64(i + 1), Time: ago(time.Duration(30-i) * time.Second), What: "mark", Object: "shop/p-" + name})
		s.Standing = append(s.Standing, &stream.Standing{Node: name, CapacityType: spot, Verdicts: map[string]int{lost: 1},
			Pods: []*stream.StandingPod{{Namespace: "shop", Name: "a-" + name, Verdict: lost}, {Namespace: "shop", Name: "b-" + name, Verdict: lost}}})
	}
	for i := range 28 {
		s.Standing[0].Pods = append(s.Standing[0].Pods, &stream.StandingPod{Namespace: "shop", Name: fmt.Sprintf("c-n%02d", i), Verdict: lost})
	}
	return s
}

// views are the keys that lead to each view of many.
var views = map[string][]string{
	"going": {"1"}, "pods": {"1", "enter"}, "coming": {"2"}, "queue": {"3"}, "log": {"4"}, "standing": {"5"}, "standing pods": {"5", "enter"},
}

// Every key does the same in every view. A screen of 80x24 has 17 rows, 16 with the summary of the queue.
func TestKeysInEveryView(t *testing.T) {
	for view, way := range views {
		t.Run(view, func(t *testing.T) {
			screen := 17
			if view == "queue" {
				screen = 16
			}
			for name, tc := range map[string]struct {
				keys []string
				want int // the cursor's row
			}{
				"start":               {nil, 0},
				"down":                {[]string{"down"}, 1},
				"j":                   {[]string{"j", "j"}, 2},
				"up":                  {[]string{"j", "j", "up"}, 1},
				"k":                   {[]string{"j", "k"}, 0},
				"up at the top":       {[]string{"k", "up"}, 0},
				"pgdn":                {[]string{"pgdown"}, screen - 1},
				"ctrl+f":              {[]string{"ctrl+f"}, screen - 1},
				"pgup":                {[]string{"G", "pgup"}, 29 - (screen - 1)},
				"ctrl+b":              {[]string{"pgdown", "ctrl+b"}, 0},
				"G":                   {[]string{"G"}, 29},
				"end":                 {[]string{"end"}, 29},
				"down at the end":     {[]string{"G", "j", "pgdown"}, 29},
				"g":                   {[]string{"G", "g"}, 0},
				"home":                {[]string{"G", "home"}, 0},
				"a page and back":     {[]string{"j", "i", "esc"}, 1},
				"keys on a page":      {[]string{"j", "i", "j", "G", "s", "esc"}, 1},
				"help and back":       {[]string{"j", "?", "?"}, 1},
				"pause and back":      {[]string{"j", "p", "p"}, 1},
				"space":               {[]string{"j", " ", " "}, 1},
				"wide":                {[]string{"j", "w"}, 1},
				"copy":                {[]string{"j", "y"}, 1},
				"a filter and back":   {[]string{"j", "/", "n", "enter", "esc"}, 1},
				"unknown":             {[]string{"j", "Z", "ctrl+u"}, 1},
				"another tab":         {[]string{"j", "tab", "shift+tab"}, 1},
				"another tab, arrows": {[]string{"j", "right", "left"}, 1},
				"another tab, letter": {[]string{"j", "l", "h"}, 1},
			} {
				t.Run(name, func(t *testing.T) {
					s := newStage(80, 24)
					s.live(many())
					s.press(way...)
					s.press(tc.keys...)
					if at, shown, _ := s.view().position(); at != tc.want+1 || shown != 30 {
						t.Errorf("after %q the cursor is on row %d of %d, want %d of 30:\n%s", tc.keys, at-1, shown, tc.want, s.text())
					}
					if s.cursorOn() == "" {
						t.Errorf("no row bears the cursor:\n%s", s.text())
					}
					fits(t, s.View(), 80, 24)
				})
			}
		})
	}
}

func TestKeysOfSingleViews(t *testing.T) {
	for name, tc := range map[string]struct {
		keys []string
		want string // on the screen
	}{
		"tab":                          {[]string{"tab"}, "[2 Coming]"},
		"tab from the last":            {[]string{"5", "tab"}, "[1 Going]"},
		"shift+tab":                    {[]string{"shift+tab"}, "[5 Standing]"},
		"1":                            {[]string{"3", "1"}, "[1 Going]"},
		"2":                            {[]string{"2"}, "[2 Coming]"},
		"3":                            {[]string{"3"}, "[3 Queue]"},
		"4":                            {[]string{"4"}, "[4 Log]"},
		"5":                            {[]string{"5"}, "[5 Standing]"},
		"open a node":                  {[]string{"enter"}, "[1 Going] 2 Coming  3 Queue  4 Log  5 Standing  » n00"},
		"open another":                 {[]string{"j", "enter"}, "nothing is known of pods of n01"},
		"open its pod":                 {[]string{"enter", "j", "enter"}, "  pod shop/p-n01"},
		"back from the pod":            {[]string{"enter", "enter", "esc"}, "» ! Lost          shop/p-n00"},
		"back from the node":           {[]string{"j", "enter", "esc"}, "» ! committed  n01"},
		"back at the top changes none": {[]string{"esc", "esc"}, "» ! committed  n00"},
		"inform on a node":             {[]string{"i"}, "  node n00"},
		"a coming node":                {[]string{"2", "enter"}, "  node c-n00"},
		"a key":                        {[]string{"3", "enter"}, "  key node n00"},
		"a decision":                   {[]string{"4", "enter"}, "  decision on shop/p-n29"},
		"a standing node":              {[]string{"5", "j", "enter"}, "» ! Lost          shop/a-n01"},
		"back from a standing node":    {[]string{"5", "enter", "esc"}, "[5 Standing]"},
		"a view keeps what it opened":  {[]string{"enter", "2", "1"}, "» n00"},
		"sort":                         {[]string{"s"}, "» ! committed  n00"},
		"sorted by lost":               {[]string{"s", "g"}, "» ! committed  n03"},
		"reversed":                     {[]string{"S", "g"}, "» ! committed  n29"},
		"the notice of sorting":        {[]string{"s", "S"}, "sorted by lost reversed"},
		"sorting comes round":          {[]string{"s", "s", "s", "s"}, "sorted by deadline"},
		"find":                         {[]string{"/", "n", "1"}, "/n1_"},
		"find shows":                   {[]string{"/", "n", "1", "enter"}, "/n1  1 of 10 (30)"},
		"find is case-blind":           {[]string{"/", "N", "1", "enter"}, "/n1  1 of 10 (30)"},
		"find the cause":               {[]string{"/", "s", "p", "o", "t", "-", "enter"}, "/spot-  1 of 30 (30)"},
		"find nothing":                 {[]string{"/", "x", "y", "enter"}, "none of 30 matches the filter; esc clears it"},
		"find, space":                  {[]string{"/", "0", " ", "0", "enter"}, "none of 30 matches"},
		"find, taken back":             {[]string{"/", "x", "backspace", "enter"}, "1 of 30"},
		"find, backspace on nothing":   {[]string{"/", "backspace", "enter"}, "1 of 30"},
		"find, line cleared":           {[]string{"/", "x", "y", "ctrl+u", "enter"}, "1 of 30"},
		"find, esc":                    {[]string{"/", "x", "esc"}, "1 of 30"},
		"keys are text in find":        {[]string{"/", "q", "?", "j"}, "/q?j_"},
		"find goes on":                 {[]string{"/", "n", "enter", "/", "2", "enter"}, "/n2  1 of 10 (30)"},
		"esc clears the filter first":  {[]string{"enter", "/", "9", "enter", "esc"}, "» n00"},
		"esc goes back then":           {[]string{"enter", "/", "9", "enter", "esc", "esc"}, "» ! committed  n00"},
		"filters are the view's own":   {[]string{"/", "n", "1", "enter", "2"}, "1 of 30"},
		"wide":                         {[]string{"w"}, "MARKED"},
		"wide and back":                {[]string{"w", "w"}, "PODS\n"},
		"help":                         {[]string{"?"}, "  Move"},
		"help, lower part":             {[]string{"?", "G"}, "someone is lost"},
		"help, scrolled":               {[]string{"?", "j", "j", "k"}, "lines 2-21 of"},
		"help, screens":                {[]string{"?", "pgdown", "pgup"}, "lines 1-20 of"},
		"help, first":                  {[]string{"?", "G", "g"}, "lines 1-20 of"},
		"help closes":                  {[]string{"?", "esc"}, "» ! committed  n00"},
		"paused":                       {[]string{"p"}, "= paused"},
		"copied":                       {[]string{"j", "y"}, "sent to the terminal's clipboard: n01"},
		"copied of a standing pod":     {[]string{"5", "enter", "j", "y"}, "clipboard: shop/b-n00"},
		"sorted standing pods":         {[]string{"5", "enter", "s"}, "sorted by name"},
		"reversed standing pods":       {[]string{"5", "enter", "s", "S", "g"}, "» ! Lost          shop/c-n27"},
		"a standing pod":               {[]string{"5", "enter", "enter"}, "  pod shop/a-n00"},
		"back from a standing pod":     {[]string{"5", "enter", "j", "enter", "esc"}, "» ! Lost          shop/b-n00"},
		"inform on a standing node":    {[]string{"5", "i"}, "  node n00"},
		"standing pods with a text":    {[]string{"5", "enter", "/", "c", "-", "enter"}, "/c-  1 of 28 (30)"},
		"standing pods stay opened":    {[]string{"5", "enter", "tab", "5"}, "» n00"},
		"keys of the queue's order":    {[]string{"3", "s"}, "sorted by queue order"},
		"copied of a key":              {[]string{"3", "y"}, "sent to the terminal's clipboard: node n00"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(80, 24)
			s.live(many())
			s.press(tc.keys...)
			s.shows(t, tc.want)
			fits(t, s.View(), 80, 24)
		})
	}
}

// pages are the keys that lead to each kind of page, what stands on it, and the name that y copies there.
var pages = map[string]struct {
	way         []string
	shows, name string
	tab         int
}{
	"node":          {[]string{"1", "j", "i"}, "  node n01", "n01", 1},
	"pod":           {[]string{"1", "enter", "enter"}, "  pod shop/p-n00", "shop/p-n00", 1},
	"coming":        {[]string{"2", "enter"}, "  node c-n00", "c-n00", 2},
	"key":           {[]string{"3", "enter"}, "  key node n00", "node n00", 3},
	"decision":      {[]string{"4", "enter"}, "  decision on shop/p-n29", "shop/p-n29", 4},
	"standing node": {[]string{"5", "i"}, "  node n00", "n00", 5},
	"standing pod":  {[]string{"5", "enter", "enter"}, "  pod shop/a-n00", "shop/a-n00", 5},
	"help":          {[]string{"?"}, "up one row", "", 1},
}

func TestKeysOnPages(t *testing.T) {
	const stays, closes, helps = "stays", "closes", "helps"
	turnTo := func(tab int) string { return "[" + number(tab) + " " }
	for page, p := range pages {
		for key, want := range map[string]string{
			"up": stays, "k": stays, "down": stays, "j": stays, "pgup": stays, "pgdown": stays, "g": stays, "home": stays, "G": stays, "end": stays,
			"s": stays, "S": stays, "w": stays, "/": stays, "Z": stays, "p": "= paused", " ": "= paused", "y": "clipboard: " + p.name,
			"esc": closes, "enter": closes, "i": closes, "?": helps,
			"1": turnTo(1), "2": turnTo(2), "3": turnTo(3), "4": turnTo(4), "5": turnTo(5),
			"tab": turnTo(p.tab%5 + 1), "right": turnTo(p.tab%5 + 1), "l": turnTo(p.tab%5 + 1),
			"shift+tab": turnTo((p.tab+3)%5 + 1), "left": turnTo((p.tab+3)%5 + 1), "h": turnTo((p.tab+3)%5 + 1),
		} {
			t.Run(page+"/"+key, func(t *testing.T) {
				s := newStage(80, 60)
				s.live(many())
				s.press(p.way...)
				s.shows(t, p.shows)
				before := s.text()
				s.press(key)
				switch {
				case want == stays || key == "y" && p.name == "":
					if got := s.text(); got != before {
						t.Errorf("the screen changed:\n%s", got)
					}
				case want == helps && page != "help":
					s.shows(t, "up one row")
				case want == helps || want == closes || strings.HasPrefix(want, "["):
					if s.page != nil {
						t.Errorf("the page is there still:\n%s", s.text())
					}
					if strings.HasPrefix(want, "[") {
						s.shows(t, want)
					}
				default:
					s.shows(t, want)
					s.shows(t, p.shows)
				}
				fits(t, s.View(), 80, 60)
			})
		}
	}
}

// The last line offers a key if and only if it does something there.
func TestFooterOffersWhatWorks(t *testing.T) {
	ways := map[string][]string{"filtered": {"1", "/", "n", "enter"}}
	for name, way := range views {
		ways["view of "+name] = way
	}
	for name, p := range pages {
		ways["page of "+name] = p.way
	}
	for name, way := range ways {
		for _, group := range keymap {
			for _, b := range group.bindings {
				if b.footer == 0 {
					continue
				}
				s := newStage(200, 24)
				s.live(many())
				s.press(way...)
				before, page := s.text(), s.page
				key, _, _ := strings.Cut(b.Help().Key, ",")
				offered := strings.Contains(s.footer(), key+" "+footerWord(b))
				_, cmd := s.Update(keyMsg(b.Keys()[0]))
				works := cmd != nil || s.text() != before
				if page != nil && (b.action == enter || b.action == help && page.of == "") {
					works = false // it goes back, as the last line says of esc
				}
				if offered != works {
					t.Errorf("%s: %s is offered: %t, works: %t:\n%s", name, key, offered, works, before)
				}
			}
		}
	}
}

// ctrl+z stops the program everywhere, where there is a shell that makes it go on.
func TestSuspend(t *testing.T) {
	for _, keys := range [][]string{nil, {"?"}, {"enter", "i"}, {"/", "n"}} {
		s := newStage(80, 24)
		s.live(many())
		s.press(keys...)
		_, cmd := s.Update(keyMsg("ctrl+z"))
		if cmd == nil {
			t.Fatalf("after %q nothing is suspended", keys)
		}
		if _, ok := cmd().(tea.SuspendMsg); !ok {
			t.Errorf("after %q nothing is suspended", keys)
		}
	}
	s := newStage(80, 24)
	s.shell = false
	s.live(many())
	if _, cmd := s.Update(keyMsg("ctrl+z")); cmd != nil {
		t.Error("the program is stopped where nobody makes it go on")
	}
	s.shows(t, "there is no shell here to go back to")
}

// Each key of the table does something that can be seen, but for moves that have nowhere to go.
func TestEveryKeyOfTheTableIsBound(t *testing.T) {
	seen := map[action]bool{}
	names := map[string]bool{}
	for _, group := range keymap {
		for _, b := range group.bindings {
			if seen[b.action] || b.action == none {
				t.Errorf("%s: its action is another's", b.Help().Key)
			}
			seen[b.action] = true
			for _, name := range b.Keys() {
				if names[name] {
					t.Errorf("the key %q is bound twice", name)
				}
				names[name] = true
			}
		}
	}
	for does := none + 1; does <= quit; does++ {
		if !seen[does] {
			t.Errorf("action %d has no key", does)
		}
	}
}

// Keys that were read at once are keys one after the other; what is pasted is text where text is asked for.
func TestKeysReadAtOnce(t *testing.T) {
	s := newStage(80, 24)
	s.live(many())
	s.Update(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("jjj/n0")})
	s.shows(t, "/n0_")
	s.press("enter")
	s.shows(t, "4 of 10 (30)")
	s.Update(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("jj?q"), Paste: true})
	s.shows(t, "4 of 10 (30)")
	s.Update(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("2"), Alt: true}) // clears the filter, and turns to Coming
	s.shows(t, "[2 Coming]")
	s.press("1", "/")
	s.Update(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("\x1b[2J7\n"), Paste: true})
	s.shows(t, "/?[2J7 _")
}

func TestQuit(t *testing.T) {
	for _, keys := range [][]string{{"q"}, {"ctrl+c"}, {"?", "q"}, {"enter", "i", "q"}, {"/", "q", "ctrl+c"}} {
		s := newStage(80, 24)
		s.live(many())
		s.press(keys[:len(keys)-1]...)
		_, cmd := s.Update(keyMsg(keys[len(keys)-1]))
		if cmd == nil {
			t.Fatalf("%q does not quit", keys)
		}
		if _, ok := cmd().(tea.QuitMsg); !ok {
			t.Errorf("%q does not quit", keys)
		}
	}
}

// y writes the name under the cursor as OSC 52, in tmux also for tmux to pass through, and nothing that the name may hide.
func TestCopy(t *testing.T) {
	for name, tc := range map[string]struct {
		tmux, object, want string
	}{
		"plain":   {"", "n00", "\x1b]52;c;" + b64("n00") + "\x07"},
		"tmux":    {"/tmp/tmux", "n00", "\x1b]52;c;" + b64("n00") + "\x07\x1bPtmux;\x1b\x1b]52;c;" + b64("n00") + "\x07\x1b\\"},
		"hostile": {"", "a\x1b]0;b\x07\nc", "\x1b]52;c;" + b64("a?]0;b? c") + "\x07"},
		"huge":    {"", strings.Repeat("x", longestCopy+1), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TMUX", tc.tmux)
			var out bytes.Buffer
			s := newStage(80, 24)
			s.out = &out
			state := serverState()
			state.Going = []*stream.GoingNode{{Name: tc.object, State: committed}}
			s.live(state)
			s.press("y")
			if out.String() != tc.want {
				t.Errorf("wrote %q, want %q", out.String(), tc.want)
			}
		})
	}
	s := newStage(80, 24)
	s.live(serverState())
	s.press("y", "i", "enter") // nothing is there, and nothing happens
	s.shows(t, "no node goes")
}

func b64(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

// The footer's and the help's words are of the table.
func TestHelpIsTheKeyTable(t *testing.T) {
	s := newStage(200, 60)
	s.live(many())
	s.press("?")
	for _, group := range keymap {
		for _, b := range group.bindings {
			s.shows(t, b.Help().Desc)
		}
	}
	for _, g := range legend {
		s.shows(t, g.means)
	}
}
