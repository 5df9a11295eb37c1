package karpenter

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// memory holds what was said of each disrupted node, so that times that can only be estimated are said once and then
// stay. After a restart the markers take its place. Safe for concurrent use.
type memory struct {
	mu    sync.Mutex
	nodes map[string]remembered // guarded by mu; nodes in a state other than None, or not yet announced to be
}

type remembered struct {
	uid       types.UID
	d         Disruption
	announced Disruption // what the nodes related to this one were last reconciled for
}

func newMemory() *memory { return &memory{nodes: map[string]remembered{}} }

// settle gives the disruption of a node its lasting signal time: as exact as the cluster tells, else the earliest that
// was said of the same signal, in this process or, where it remembers nothing, by the markers.
func (m *memory) settle(node *corev1.Node, d Disruption, markers func() []Marker, now time.Time) Disruption {
	m.mu.Lock()
	defer m.mu.Unlock()
	last, known := m.nodes[node.Name]
	if d.State == None {
		if known { // until it is announced
			last.d = d
			m.nodes[node.Name] = last
		}
		return d
	}
	if last.uid != node.UID {
		last, known = remembered{uid: node.UID}, false
	}
	switch exact := !d.Since.IsZero() && !d.SinceEstimated; {
	case exact:
	case known && last.d.Cause == d.Cause:
		d = d.FirstSeen(last.d.Since)
	default:
		d = d.FirstSeen(earliest(markers(), node, d.Cause, now))
	}
	last.d = d
	m.nodes[node.Name] = last
	return d
}

// earliest is the earliest plausible signal time in markers that name the node and cause; now where there is none. Times
// before the Node was made are forgeries.
func earliest(markers []Marker, node *corev1.Node, cause string, now time.Time) time.Time {
	first := now
	for _, marker := range markers {
		if marker.Node == node.Name && marker.Cause == cause &&
			marker.Since.Before(first) && !marker.Since.Before(node.CreationTimestamp.Time) {
			first = marker.Since
		}
	}
	return first
}

// vanished is the disruption of a node that no longer exists: what committed it before, by memory or by markers, else its
// deletion, first seen now.
func (m *memory) vanished(node string, markers func() []Marker, now time.Time) Disruption {
	m.mu.Lock()
	defer m.mu.Unlock()
	last, known := m.nodes[node]
	if known && last.d.State == Committed {
		return last.d
	}
	d := Disruption{State: Committed, Cause: NodeDeleted, Since: now, SinceEstimated: true}
	for _, marker := range markers() {
		if marker.Node == node && marker.State == Committed && marker.Since.Before(d.Since) {
			d.Cause, d.Since, d.Deadline = marker.Cause, marker.Since, marker.Deadline
		}
	}
	last.d = d
	m.nodes[node] = last
	return d
}

// announce tells whether the node's disruption changed since the last call, so that nodes related to it must be looked
// at again.
func (m *memory) announce(node string, d Disruption) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	last, known := m.nodes[node]
	d.Since, d.Deadline = seconds(d.Since), seconds(d.Deadline) // comparable with ==
	if !known || last.announced == d {
		return false
	}
	last.announced = d
	m.nodes[node] = last
	if d.State == None {
		delete(m.nodes, node)
	}
	return true
}

// states counts the remembered nodes by state, those in None aside.
func (m *memory) states() map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	counts := map[string]int{}
	for _, node := range m.nodes {
		if node.d.State != None {
			counts[string(node.d.State)]++
		}
	}
	return counts
}

// estimated tells whether the node's signal time is not known exactly.
func (m *memory) estimated(node string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	last, known := m.nodes[node]
	return !known || last.d.SinceEstimated
}

// forget drops what is remembered of a node.
func (m *memory) forget(node string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.nodes, node)
}
