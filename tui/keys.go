package tui

import "github.com/charmbracelet/bubbles/key"

// An action is what a key does.
type action int

const (
	none action = iota
	moveUp
	moveDown
	pageUp
	pageDown
	toFirst
	toLast
	nextTab
	previousTab
	tab1 // and the next ones, in the tabs' order
	tab2
	tab3
	tab4
	tab5
	enter
	back
	inform
	find
	nextOrder
	reverseOrder
	wide
	pause
	copyName
	help
	suspend
	quit
)

// A binding is one line of the key table: the help on the screen, the footer and docs/ui.md are made of it.
type binding struct {
	action action
	key.Binding
	// footer has it in the last line of the screen, those of the lowest rank first; zero for never.
	footer int
}

func bind(does action, footer int, keys []string, shown, means string) binding {
	return binding{does, key.NewBinding(key.WithKeys(keys...), key.WithHelp(shown, means)), footer}
}

// A keyGroup is a part of the key table.
type keyGroup struct {
	title    string
	bindings []binding
}

// keymap is the key table, the only one.
var keymap = []keyGroup{
	{"Move", []binding{
		bind(moveUp, 0, []string{"up", "k"}, "up, k", "up one row"),
		bind(moveDown, 0, []string{"down", "j"}, "down, j", "down one row"),
		bind(pageUp, 0, []string{"pgup", "ctrl+b"}, "pgup", "up one screen"),
		bind(pageDown, 0, []string{"pgdown", "ctrl+f"}, "pgdn", "down one screen"),
		bind(toFirst, 0, []string{"g", "home"}, "g, home", "to the first row"),
		bind(toLast, 0, []string{"G", "end"}, "G, end", "to the last row"),
	}},
	{"Views", []binding{
		bind(enter, 2, []string{"enter"}, "enter", "open: a node's pods, or all there is to know of a row"),
		bind(back, 2, []string{"esc"}, "esc", "back; clears the filter first"),
		bind(inform, 0, []string{"i"}, "i", "all there is to know of a row"),
		bind(nextTab, 2, []string{"tab", "right", "l"}, "tab", "next view"),
		bind(previousTab, 0, []string{"shift+tab", "left", "h"}, "shift+tab", "previous view"),
		bind(tab1, 0, []string{"1"}, "1", "Going: nodes that go, the next kill first"),
		bind(tab2, 0, []string{"2"}, "2", "Coming: new nodes, and what holds them"),
		bind(tab3, 0, []string{"3"}, "3", "Queue: every key of the controller's workqueue"),
		bind(tab4, 0, []string{"4"}, "4", "Log: what the controller decided, and why"),
		bind(tab5, 0, []string{"5"}, "5", "Standing: who would be lost if a healthy node went"),
	}},
	{"Rows", []binding{
		bind(find, 2, []string{"/"}, "/", "show only rows with a text; enter keeps it, esc clears it"),
		bind(nextOrder, 2, []string{"s"}, "s", "sort by the next order"),
		bind(reverseOrder, 0, []string{"S"}, "S", "turn the order round"),
		bind(wide, 0, []string{"w"}, "w", "as many columns as fit, or the usual ones"),
		bind(copyName, 2, []string{"y"}, "y", "copy the name under the cursor (OSC 52)"),
	}},
	{"Program", []binding{
		bind(pause, 2, []string{"p", " "}, "p, space", "pause: what is shown stays until the next p"),
		bind(help, 1, []string{"?"}, "?", "help: this page"),
		bind(suspend, 0, []string{"ctrl+z"}, "ctrl+z", "back to the shell for a while; fg goes on"),
		bind(quit, 1, []string{"q", "ctrl+c"}, "q", "quit"),
	}},
}

// keyActions has the action of each key, by bubbletea's name of the key.
var keyActions = func() map[string]action {
	actions := map[string]action{}
	for _, group := range keymap {
		for _, b := range group.bindings {
			for _, name := range b.Keys() {
				actions[name] = b.action
			}
		}
	}
	return actions
}()

// A sign is a glyph and what it stands for.
type sign struct{ glyph, means string }

// legend has the glyphs that stand before words.
var legend = []sign{
	{"!", "someone is lost or soon will be; a failure; a connection that is not there"},
	{"~", "may still be undone, or waits"},
	{"?", "not sure, or a stale signal"},
	{"*", "at work now; connected"},
	{"+", "as it should be"},
	{".", "of no concern now"},
	{"-", "taken back; nothing"},
	{"=", "paused"},
}
