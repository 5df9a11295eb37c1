package inventory

import (
	"fmt"
	"strings"
)

// An InputError is a mistake in what the user handed in: where it is, what it is, and the way out.
type InputError struct {
	// Where names file, document and item.
	Where string
	// Problem says what is wrong.
	Problem string
	// Advice is the way out; empty where there is nothing to add.
	Advice string
	// Err is the cause, or nil.
	Err error
}

// Error gives place and problem in one line.
func (e *InputError) Error() string { return e.Where + ": " + e.Problem }

// Hint returns the way out.
func (e *InputError) Hint() string { return e.Advice }

// Unwrap returns the cause.
func (e *InputError) Unwrap() error { return e.Err }

// A place says where in the input something stands. Documents and items count from 1; 0 means that there is only the
// one, or none yet.
type place struct {
	file string
	doc  int32
	// line is the line that the document begins at, from 1.
	line int32
	// item counts through the items of a List; those of a List in a List keep the outer number.
	item int32
}

// String names the place as people look for it: "pods.yaml, document 3 (line 120), item 7".
func (p place) String() string {
	var b strings.Builder
	b.WriteString(p.file)
	if p.doc > 0 {
		fmt.Fprintf(&b, ", document %d", p.doc)
		if p.line > 1 {
			fmt.Fprintf(&b, " (line %d)", p.line)
		}
	}
	if p.item > 0 {
		fmt.Fprintf(&b, ", item %d", p.item)
	}
	return b.String()
}
