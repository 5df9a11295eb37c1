package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/rollcall-dev/rollcall/karpenter"
	"github.com/rollcall-dev/rollcall/karpenter/inventory"
)

// A Selection says which nodes are reported. The zero value selects all.
type Selection struct {
	// Names are nodes that must exist.
	Names []string
	// Labels, where not nil, keeps the nodes that it matches; of one that has vanished nobody knows the labels.
	Labels labels.Selector
	// Disrupted keeps the nodes that are not in state None.
	Disrupted bool
}

// A SelectionError is a node that does not exist.
type SelectionError struct {
	Name string
	// Advice names the nodes that may have been meant.
	Advice string
}

// Error names the node.
func (e *SelectionError) Error() string { return fmt.Sprintf("there is no node %q", e.Name) }

// Hint names the nodes that may have been meant.
func (e *SelectionError) Hint() string { return e.Advice }

// Select returns the nodes of the inventory to report, each once. The error is a *SelectionError.
func (s Selection) Select(inv *inventory.Inventory, q Question) ([]*corev1.Node, error) {
	nodes := slices.Concat(inv.Nodes(), inv.Vanished())
	if len(s.Names) > 0 {
		var err error
		if nodes, err = named(nodes, s.Names); err != nil {
			return nil, err
		}
	}
	var selected []*corev1.Node
	for _, node := range nodes {
		switch {
		case s.Labels != nil && (inv.Node(node.Name) == nil || !s.Labels.Matches(labels.Set(node.Labels))):
		case s.Disrupted && disruption(inv, q, node).State == karpenter.None:
		default:
			selected = append(selected, node)
		}
	}
	return selected, nil
}

// named returns the nodes of these names, each once.
func named(all []*corev1.Node, names []string) ([]*corev1.Node, error) {
	var nodes []*corev1.Node
	for _, name := range names {
		at := slices.IndexFunc(all, func(node *corev1.Node) bool { return node.Name == name })
		if at < 0 {
			return nil, &SelectionError{name, nearest(name, all)}
		}
		if !slices.Contains(nodes, all[at]) {
			nodes = append(nodes, all[at])
		}
	}
	return nodes, nil
}

// nearest suggests up to three nodes whose names are like the one that was given.
func nearest(name string, nodes []*corev1.Node) string {
	if len(nodes) == 0 {
		return "there are no nodes at all"
	}
	names := make([]string, 0, len(nodes))
	for _, node := range nodes {
		names = append(names, node.Name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(distance(name, a), distance(name, b)), cmp.Compare(a, b))
	})
	names = names[:min(3, len(names))]
	return "did you mean " + strings.Join(names, ", ") + "?"
}

// distance is the number of single-character edits between two names (Levenshtein); a part of the other's name is near.
func distance(a, b string) int {
	if strings.Contains(b, a) {
		return 0
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
