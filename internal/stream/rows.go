package stream

import (
	"maps"
	"slices"
	"strings"
)

// maxList is the most elements of a list, or of a map, within one row.
const maxList = 32

// A row is one of a table.
type row interface {
	identity() string
	// tidy makes the row's texts printable and its lists short.
	tidy()
	// size is about how many bytes the row's texts have.
	size() int
	// precious rows push out others where a table is full.
	precious() bool
}

func (k *Key) identity() string        { return k.ID }
func (n *GoingNode) identity() string  { return n.Name }
func (p *Pod) identity() string        { return p.UID }
func (n *ComingNode) identity() string { return n.ID }
func (s *Standing) identity() string   { return s.Node }

// precious keys are those that fail.
func (k *Key) precious() bool { return k.Failures > 0 }

// precious going nodes are all.
func (n *GoingNode) precious() bool { return true }

// precious pods are those that may not come back.
func (p *Pod) precious() bool {
	return p.Verdict == "Lost" || p.Verdict == "Stranded" || p.Verdict == "Unsure"
}

// precious coming nodes are those that are held.
func (n *ComingNode) precious() bool { return n.Held }

// precious standing nodes are those that go without being asked. The rest are a sample.
func (s *Standing) precious() bool { return strings.EqualFold(s.CapacityType, "spot") }

// rowOverhead is about what a row's numbers, times and field names take.
const rowOverhead = 200

func (k *Key) size() int { return rowOverhead + length(k.texts()) }

func (n *GoingNode) size() int { return rowOverhead + length(n.texts()) + 24*len(n.Verdicts) }

func (p *Pod) size() int { return rowOverhead + length(p.texts()) + total(p.Flags) }

func (n *ComingNode) size() int { return rowOverhead + length(n.texts()) + total(n.Missing) }

func (s *Standing) size() int {
	n := rowOverhead + length(s.texts()) + 24*len(s.Verdicts)
	for _, p := range s.Pods {
		n += length(p.texts()) + 64
	}
	return n
}

func (k *Key) tidy() { tidy(k.texts()) }

func (n *GoingNode) tidy() {
	tidy(n.texts())
	n.Verdicts = tidyCounts(n.Verdicts)
}

func (p *Pod) tidy() {
	tidy(p.texts())
	p.Flags = tidyList(p.Flags)
}

func (n *ComingNode) tidy() {
	tidy(n.texts())
	n.Missing = tidyList(n.Missing)
}

func (s *Standing) tidy() {
	tidy(s.texts())
	s.Verdicts = tidyCounts(s.Verdicts)
	s.Pods = present(s.Pods)
	if len(s.Pods) > maxList {
		s.Pods = s.Pods[:maxList]
	}
	for _, p := range s.Pods {
		tidy(p.texts())
	}
}

func (d *Decision) tidy() { tidy(d.texts()) }

// The texts of each kind of row, for tidy and size.

func (s *Server) texts() []*string { return []*string{&s.Boot, &s.Identity, &s.Program} }

func (k *Key) texts() []*string {
	return []*string{&k.ID, &k.Kind, (*string)(&k.State), &k.Class, &k.LastError}
}

func (n *GoingNode) texts() []*string {
	return []*string{&n.Name, &n.State, &n.Cause, &n.Shown, &n.CapacityType, &n.NodePool, &n.NodeClaim, &n.WaitsFor, &n.WaitsWhy}
}

func (p *Pod) texts() []*string {
	return []*string{&p.UID, &p.Namespace, &p.Name, &p.Node, &p.On, &p.Verdict, &p.Reason, &p.Certainty, &p.Placement, &p.Message}
}

func (n *ComingNode) texts() []*string {
	return []*string{&n.ID, &n.Node, &n.NodeClaim, &n.NodePool, &n.CapacityType, &n.WaitsFor, &n.WaitsWhy, &n.Status, &n.Reason, &n.Message}
}

func (s *Standing) texts() []*string { return []*string{&s.Node, &s.CapacityType} }

func (p *StandingPod) texts() []*string {
	return []*string{&p.Namespace, &p.Name, &p.Verdict, &p.Reason, &p.Message}
}

func (d *Decision) texts() []*string {
	return []*string{&d.What, &d.Object, &d.Node, &d.Verdict, &d.Reason, &d.Cause, &d.Why}
}

// tidy makes a record fit to be kept: no rows that are null, nothing that a terminal would obey.
func (r *Record) tidy() {
	r.Message = printable(r.Message)
	if r.Server != nil {
		tidy(r.Server.texts())
	}
	c := &r.Content
	c.Keys, c.Going, c.Pods = tidied(c.Keys), tidied(c.Going), tidied(c.Pods)
	c.Coming, c.Standing = tidied(c.Coming), tidied(c.Standing)
	c.Decisions = present(c.Decisions)
	for _, d := range c.Decisions {
		d.tidy()
	}
	if g := c.Gone; g != nil {
		for _, ids := range [][]string{g.Keys, g.Going, g.Pods, g.Coming, g.Standing} {
			for i := range ids {
				ids[i] = printable(ids[i])
			}
		}
	}
	c.Left = tidyCounts(c.Left)
}

func tidied[R interface {
	comparable
	row
}](rows []R) []R {
	rows = present(rows)
	for _, r := range rows {
		r.tidy()
	}
	return rows
}

// present returns the rows that are not null.
func present[R comparable](rows []R) []R {
	var null R
	return slices.DeleteFunc(rows, func(r R) bool { return r == null })
}

func tidy(texts []*string) {
	for _, text := range texts {
		*text = printable(*text)
	}
}

func tidyList(list []string) []string {
	if len(list) > maxList {
		list = list[:maxList]
	}
	for i, text := range list {
		if clean := printable(text); clean != text {
			list = slices.Clone(list)
			list[i] = clean
		}
	}
	return list
}

// tidyCounts returns the map with printable keys, and of a long one some of it.
func tidyCounts(counts map[string]int) map[string]int {
	fine := len(counts) <= maxList
	for key := range counts {
		fine = fine && printable(key) == key
	}
	if fine {
		return counts
	}
	clean := map[string]int{}
	for _, key := range slices.Sorted(maps.Keys(counts))[:min(len(counts), maxList)] {
		clean[printable(key)] += counts[key]
	}
	return clean
}

func length(texts []*string) (n int) {
	for _, text := range texts {
		n += len(*text)
	}
	return n
}

func total(list []string) (n int) {
	for _, text := range list {
		n += len(text)
	}
	return n
}
