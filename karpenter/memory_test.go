package karpenter

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func memoryNode() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u-1", CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))}}
}

func TestSettle(t *testing.T) {
	estimate := func(at time.Time) Disruption {
		return Disruption{State: Committed, Cause: "spot-interruption", Since: at, SinceEstimated: !at.IsZero(), Notice: 2 * time.Minute}.withNotice()
	}
	exact := Disruption{State: Committed, Cause: "spot-interruption", Since: now.Add(-time.Second)}
	mark := func(cause string, since time.Time) Marker {
		return Marker{Node: "n1", Cause: cause, State: Committed, Since: since}
	}
	early := now.Add(-10 * time.Minute)
	for name, tc := range map[string]struct {
		before  []Disruption // settled earlier
		d       Disruption
		markers []Marker
		since   time.Time
	}{
		"first seen now":                        {d: estimate(time.Time{}), since: now},
		"estimated":                             {d: estimate(early), since: early},
		"estimate moved on":                     {before: []Disruption{estimate(early)}, d: estimate(now), since: early},
		"seen before":                           {before: []Disruption{estimate(early)}, d: estimate(time.Time{}), since: early},
		"exact":                                 {before: []Disruption{estimate(early)}, d: exact, since: exact.Since},
		"exact, whatever the markers say":       {d: exact, markers: []Marker{mark("spot-interruption", early)}, since: exact.Since},
		"after a restart":                       {d: estimate(now), markers: []Marker{mark("spot-interruption", now.Add(-time.Second)), mark("spot-interruption", early)}, since: early},
		"markers of another cause":              {d: estimate(now), markers: []Marker{mark("medik8s.io/drain", early)}, since: now},
		"forged, older than the node":           {d: estimate(now), markers: []Marker{mark("spot-interruption", now.Add(-2*time.Hour))}, since: now},
		"forged, from the future":               {d: estimate(now), markers: []Marker{mark("spot-interruption", now.Add(time.Hour))}, since: now},
		"memory is believed before the markers": {before: []Disruption{estimate(now)}, d: estimate(now), markers: []Marker{mark("spot-interruption", early)}, since: now},
		"another cause before":                  {before: []Disruption{{State: Pending, Cause: "decommission-pending", Since: early, SinceEstimated: true}}, d: estimate(now), since: now},
		"gone and back":                         {before: []Disruption{estimate(early), {State: None}}, d: estimate(now), since: now},
		"gone and back before the marks were":   {before: []Disruption{estimate(early), {State: None}}, d: estimate(now), markers: []Marker{mark("spot-interruption", early)}, since: early},
		"nothing":                               {d: Disruption{State: None}},
	} {
		t.Run(name, func(t *testing.T) {
			m, node := newMemory(), memoryNode()
			markers := func() []Marker { return nil }
			for _, d := range tc.before {
				m.settle(node, d, markers, now)
			}
			got := m.settle(node, tc.d, func() []Marker { return tc.markers }, now)
			if !got.Since.Equal(tc.since) {
				t.Errorf("since %v, want %v", got.Since, tc.since)
			}
			if tc.d.Notice != 0 && !got.Deadline.Equal(tc.since.Add(tc.d.Notice)) {
				t.Errorf("deadline %v does not follow since %v", got.Deadline, got.Since)
			}
		})
	}
}

// A node of the same name with another UID is another node.
func TestSettleForgetsFormerNode(t *testing.T) {
	m, node := newMemory(), memoryNode()
	d := Disruption{State: Committed, Cause: "medik8s.io/drain"}
	none := func() []Marker { return nil }
	m.settle(node, d, none, now.Add(-time.Minute))
	node.UID = "u-2"
	if got := m.settle(node, d, none, now); !got.Since.Equal(now) {
		t.Errorf("since %v, want now", got.Since)
	}
}

func TestVanished(t *testing.T) {
	early := now.Add(-time.Minute)
	committed := Disruption{State: Committed, Cause: "spot-interruption", Since: early, Deadline: early.Add(2 * time.Minute)}
	for name, tc := range map[string]struct {
		before  Disruption
		markers []Marker
		cause   string
		since   time.Time
	}{
		"unknown":             {cause: NodeDeleted, since: now},
		"pending before":      {before: Disruption{State: Pending, Cause: "decommission-pending", Since: early}, cause: NodeDeleted, since: now},
		"committed before":    {before: committed, cause: "spot-interruption", since: early},
		"committed, markers":  {markers: []Marker{{Node: "n1", State: Committed, Cause: "spot-interruption", Since: early}}, cause: "spot-interruption", since: early},
		"pending, markers":    {markers: []Marker{{Node: "n1", State: Pending, Cause: "decommission-pending", Since: early}}, cause: NodeDeleted, since: now},
		"markers for another": {markers: []Marker{{Node: "n2", State: Committed, Cause: "spot-interruption", Since: early}}, cause: NodeDeleted, since: now},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMemory()
			if tc.before.State != "" {
				m.settle(memoryNode(), tc.before, func() []Marker { return nil }, early)
			}
			for range 2 { // the second answer is the first
				d := m.vanished("n1", func() []Marker { return tc.markers }, now)
				if d.State != Committed || d.Cause != tc.cause || !d.Since.Equal(tc.since) {
					t.Errorf("got %+v, want %s since %v", d, tc.cause, tc.since)
				}
			}
		})
	}
}

func TestAnnounce(t *testing.T) {
	m, node := newMemory(), memoryNode()
	none := func() []Marker { return nil }
	say := func(d Disruption) bool { return m.announce("n1", m.settle(node, d, none, now)) }
	going := Disruption{State: Committed, Cause: NodeClaimDeleted, Since: now}
	elsewhere := going
	elsewhere.Since = now.In(time.FixedZone("", 3600)) // the same moment
	for i, step := range []struct {
		d    Disruption
		want bool
	}{
		{Disruption{State: None}, false}, // never was anything else
		{going, true},
		{going, false},
		{elsewhere, false},
		{Disruption{State: None}, true},
		{Disruption{State: None}, false},
	} {
		if got := say(step.d); got != step.want {
			t.Errorf("step %d: announced %v, want %v", i, got, step.want)
		}
	}
	if len(m.nodes) != 0 {
		t.Errorf("remembers %v of a healthy node", m.nodes)
	}
}
