// Package tui is the live terminal UI of rollcall. It owns the screen, the keys and the copy of what a client of the stream
// last knew; it shows stream.Frames and nothing else. It asks no cluster, decides nothing and writes nothing but to the
// terminal. It is the only package that imports terminal libraries: importing them may query the terminal at start.
//
// The rules of the screen (facts/terminal-ui.md A6):
//
//   - Meaning is a glyph and a word first and a colour third, so that NO_COLOR and --ascii lose nothing.
//   - A row is its object: the cursor, what is opened and what is copied go by identity, never by a row's number.
//   - Nothing is drawn while nothing changes. Frames come conflated; the one free tick is the clock of ages, once a second.
//   - Only rows that can be seen are rendered; rows are filtered and sorted when the data or the setting changed.
//   - The screen has exactly as many lines as the terminal. Columns are dropped or cut by their priority, never wrapped.
//   - Whatever comes over the stream is text of strangers: it is cleaned before it is measured.
//   - A lost connection ends nothing. What is known stays, with its age beside it.
package tui
