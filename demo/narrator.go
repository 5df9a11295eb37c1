package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// narrator tells what happens, each step with the time since the start.
type narrator struct {
	out   io.Writer
	start time.Time
}

func newNarrator(out io.Writer) *narrator { return &narrator{out: out, start: time.Now()} }

// on is one that goes on elsewhere, by the same clock.
func (n *narrator) on(out io.Writer) *narrator { return &narrator{out: out, start: n.start} }

func (n *narrator) step(format string, args ...any) {
	fmt.Fprintf(n.out, "%6.1fs  %s\n", time.Since(n.start).Seconds(), fmt.Sprintf(format, args...))
}

// table prints rows under a header, indented below the last step.
func (n *narrator) table(header []string, rows [][]string) {
	fmt.Fprintln(n.out)
	w := tabwriter.NewWriter(n.out, 0, 8, 2, ' ', 0)
	for _, row := range append([][]string{header}, rows...) {
		fmt.Fprintf(w, "         %s\n", strings.Join(row, "\t"))
	}
	_ = w.Flush()
	fmt.Fprintln(n.out)
}

// show prints what a command printed, indented like a table.
func (n *narrator) show(text []byte) {
	fmt.Fprintln(n.out)
	for line := range strings.Lines(string(text)) {
		if line != "\n" {
			line = "         " + line
		}
		fmt.Fprint(n.out, line)
	}
	fmt.Fprintln(n.out)
}
