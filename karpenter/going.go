package karpenter

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A going node is one in a state other than None.
type goingNode struct {
	node *corev1.Node
	d    Disruption
}

// node returns the Node, from the server where only that has it: it may be newer than the cache. One that no longer
// exists is an empty Node of that name, and nil, and forgotten, once it has no pods either.
func (c *Controller) node(ctx context.Context, name string) (*corev1.Node, error) {
	populated := len(c.informers.PodsOn(name)) > 0
	node, err := c.informers.Core().V1().Nodes().Lister().Get(name)
	if apierrors.IsNotFound(err) && populated {
		ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
		defer cancel()
		node, err = c.clients.Typed.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	}
	gone := apierrors.IsNotFound(err)
	if err != nil && !gone {
		return nil, fmt.Errorf("reading node %s: %w", name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !gone:
		delete(c.lost, name)
		return node, nil
	case populated:
		c.lost[name] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		return c.lost[name], nil
	}
	delete(c.lost, name)
	c.memory.forget(name)
	return nil, nil
}

func (c *Controller) isLost(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost[name] != nil
}

// going evaluates the disruption of all nodes and returns those in a state other than None.
func (c *Controller) going(now time.Time) map[string]goingNode {
	going := map[string]goingNode{}
	for _, node := range c.candidates() {
		d := c.disrupt(node, now)
		if d = c.memory.settle(node, d, c.markersOf(node.Name), now); d.State != None {
			going[node.Name] = goingNode{node, d}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, node := range c.lost {
		if _, err := c.informers.Core().V1().Nodes().Lister().Get(name); err == nil {
			continue // it is back, and its own key will say so
		}
		going[name] = goingNode{node, c.memory.vanished(name, c.markersOf(name), now)}
	}
	return going
}

// candidates are the nodes that may be in a state other than None.
func (c *Controller) candidates() []*corev1.Node {
	var nodes []*corev1.Node
	objects, _ := c.informers.Nodes().GetIndexer().ByIndex(signalledNode, anySignalled) // fails only for an unknown index
	for _, object := range objects {
		nodes = append(nodes, object.(*corev1.Node))
	}
	if c.options.Claims == nil {
		return nodes
	}
	for _, name := range c.options.Claims.Deleting() {
		node, err := c.informers.Core().V1().Nodes().Lister().Get(name)
		if err == nil && !slices.Contains(nodes, node) {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// leaving are the names of the nodes that may be in a state other than None, those that no longer exist among them.
func (c *Controller) leaving() []string {
	var names []string
	for _, node := range c.candidates() {
		names = append(names, node.Name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.lost {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// disrupt is what the node and its NodeClaim say, refined by what Karpenter said of the interruption.
func (c *Controller) disrupt(node *corev1.Node, now time.Time) Disruption {
	claim := c.claimOf(node)
	d := c.options.Disruption.Disrupt(node, claim, now)
	if claim == nil || !isDeleting(claim) {
		return d
	}
	reason, _ := c.interruptions.of(claim)
	return c.options.Disruption.Interrupted(d, reason)
}

// markersOf reads, when asked, the valid markers that name the node.
func (c *Controller) markersOf(node string) func() []Marker {
	return func() []Marker {
		var markers []Marker
		for _, pod := range c.informers.PodsBy(markedFor, node) {
			text, _ := markOf(pod)
			if marker, ok := ParseMarker(text); ok {
				markers = append(markers, marker)
			}
		}
		return markers
	}
}
