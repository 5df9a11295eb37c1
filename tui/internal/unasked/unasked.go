// Package unasked keeps bubbletea from asking the terminal for its background while the program is initialised: commands
// that draw nothing would wait for the answer too, for seconds where the terminal has none, and a late answer would be
// taken for keys (bubbletea v1.3.10 tea_init.go; facts/terminal-ui.md A1.11).
//
// It imports nothing but os, so that Go initialises it before bubbletea: of the packages whose imports are ready, the first
// by path goes first (Go specification, "Program initialization"), and bubbletea needs os/signal, whose path is a later one.
package unasked

import "os"

const term = "TERM"

// before is what TERM was.
var before, had = os.LookupEnv(term)

// A dumb terminal is asked nothing (termenv v0.16.0 termStatusReport).
func init() { _ = os.Setenv(term, "dumb") } // it fails for malformed names only

// Done gives TERM back. Call it once bubbletea is initialised.
func Done() {
	if !had {
		_ = os.Unsetenv(term)
		return
	}
	_ = os.Setenv(term, before)
}
