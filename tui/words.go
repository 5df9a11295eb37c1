package tui

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
)

// dash stands for what there is not.
func dash(text string) string { return cmp.Or(text, "-") }

// yes is empty for false, so that a page leaves the field out.
func yes(is bool) string {
	if is {
		return "yes"
	}
	return ""
}

// counted is a number that says something unless it is zero.
func counted(n int, as tone) cell {
	if n == 0 {
		return cell{"-", quiet}
	}
	return cell{number(n), as}
}

// lower joins what a filter looks at.
func lower(texts ...string) string { return strings.ToLower(strings.Join(texts, " ")) }

// stamp writes a time and how far it is away; empty for none.
func stamp(now, t time.Time) string {
	switch {
	case t.IsZero():
		return ""
	case t.After(now):
		return t.UTC().Format(time.RFC3339) + ", in " + span(t.Sub(now))
	}
	return t.UTC().Format(time.RFC3339) + ", " + span(now.Sub(t)) + " ago"
}

// verdictOrder is the order in which people want to read the verdicts (DESIGN.md section 3).
var verdictOrder = []string{lost, stranded, unsure, "Returns", "GoesWithNode", "Static", "Finished"}

func verdictRank(verdict string) int {
	if i := slices.Index(verdictOrder, verdict); i >= 0 {
		return i
	}
	return len(verdictOrder)
}

func verdictCounts(counts map[string]int) string {
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(verdictRank(a), verdictRank(b)), cmp.Compare(a, b))
	})
	parts := make([]string, 0, len(names))
	for _, name := range names {
		if counts[name] > 0 {
			parts = append(parts, number(counts[name])+" "+name)
		}
	}
	return strings.Join(parts, ", ")
}

// verdictCell writes a verdict with its glyph.
func verdictCell(verdict string) cell {
	switch verdict {
	case lost:
		return cell{"! " + verdict, alarm}
	case stranded:
		return cell{"~ " + verdict, watch}
	case unsure:
		return cell{"? " + verdict, watch}
	case "Returns":
		return cell{"+ " + verdict, good}
	}
	return cell{". " + verdict, quiet}
}
