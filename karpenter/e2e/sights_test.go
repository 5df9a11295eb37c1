package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/rollcall-dev/rollcall/internal/domain"
	"github.com/rollcall-dev/rollcall/karpenter"
)

var (
	claimResource = schema.GroupVersionResource{Group: "karpenter.sh", Version: "v1", Resource: "nodeclaims"}
	poolResource  = schema.GroupVersionResource{Group: "karpenter.sh", Version: "v1", Resource: "nodepools"}
)

// A sight is one state of one object as a watch showed it. Revisions order the sights of all kinds: they are the API
// server's own.
type sight struct {
	at       time.Time
	revision uint64
	kind     string // NodeClaim, Node or Pod
	name     string
	on       string // of a Pod its node
	deleting bool
	gone     bool
	tainted  bool // of a Node: karpenter.sh/disrupted
	evicted  bool // of a Pod: condition DisruptionTarget, or deleting
	marker   karpenter.Marker
	marked   bool
}

// follow records what happens to the act's NodeClaims, Nodes and Pods until the test ends.
func (a *act) follow() {
	pool := metav1.ListOptions{LabelSelector: karpv1.NodePoolLabelKey + "=" + a.name}
	claims, err := a.dynamic.Resource(claimResource).Watch(a.Context(), pool)
	a.must(err)
	nodes, err := a.client.CoreV1().Nodes().Watch(a.Context(), pool)
	a.must(err)
	pods, err := a.client.CoreV1().Pods(a.name).Watch(a.Context(), metav1.ListOptions{})
	a.must(err)
	for _, stream := range []watch.Interface{claims, nodes, pods} {
		go func() {
			defer stream.Stop()
			for {
				select {
				case <-a.Context().Done():
					return
				case event, open := <-stream.ResultChan():
					if !open {
						return
					}
					a.see(event)
				}
			}
		}()
	}
}

func (a *act) see(event watch.Event) {
	s := sight{at: time.Now(), gone: event.Type == watch.Deleted}
	switch o := event.Object.(type) {
	case *unstructured.Unstructured:
		s.kind = "NodeClaim"
	case *corev1.Node:
		s.kind = "Node"
		for _, taint := range o.Spec.Taints {
			s.tainted = s.tainted || taint.Key == karpv1.DisruptedTaintKey
		}
	case *corev1.Pod:
		s.kind, s.on = "Pod", o.Spec.NodeName
		s.marker, s.marked = karpenter.ParseMarker(o.Annotations[domain.AtRisk])
		s.evicted = o.DeletionTimestamp != nil
		for _, condition := range o.Status.Conditions {
			s.evicted = s.evicted || condition.Type == corev1.DisruptionTarget && condition.Status == corev1.ConditionTrue
		}
	}
	object, ok := event.Object.(metav1.Object)
	if !ok {
		return
	}
	s.name, s.deleting = object.GetName(), object.GetDeletionTimestamp() != nil
	s.revision, _ = strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.seen = append(a.seen, s)
}

// first is the first sight that is one of those, if there was any.
func (a *act) first(is func(sight) bool) (sight, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.seen {
		if is(s) {
			return s, true
		}
	}
	return sight{}, false
}

// await waits for such a sight.
func (a *act) await(what string, is func(sight) bool) (found sight) {
	a.Helper()
	a.eventually(what, func() bool {
		var ok bool
		found, ok = a.first(is)
		return ok
	})
	return found
}

// latest is how the object was seen last.
func (a *act) latest(kind, name string) (last sight) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.seen {
		if s.kind == kind && s.name == name {
			last = s
		}
	}
	return last
}

// takenBack is how often Karpenter took its taint off the node again.
func (a *act) takenBack(node string) (times int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var last sight
	for _, s := range a.seen {
		if s.kind != "Node" || s.name != node {
			continue
		}
		if last.tainted && !s.tainted {
			times++
		}
		last = s
	}
	return times
}

// markers is the story of a pod's markers: each state and cause once, as it changed; "-" for none.
func (a *act) markers(pod string) (story []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.seen {
		if s.kind != "Pod" || s.name != pod || s.gone {
			continue
		}
		text := "-"
		switch {
		case s.marked && s.marker.State == karpenter.Committed:
			text = "Committed" // by whichever of Karpenter's two deletions was heard of first
		case s.marked:
			text = fmt.Sprintf("%s %s", s.marker.State, s.marker.Cause)
		}
		if len(story) == 0 || story[len(story)-1] != text {
			story = append(story, text)
		}
	}
	return story
}

// story tells all that was seen, for a test that failed.
func (a *act) story() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var text strings.Builder
	for _, s := range a.seen {
		fmt.Fprintf(&text, "%s %s %s on=%q deleting=%v gone=%v tainted=%v evicted=%v marked=%v %s %s\n",
			s.at.Format("15:04:05.000"), s.kind, s.name, s.on, s.deleting, s.gone, s.tainted, s.evicted, s.marked, s.marker.State, s.marker.Cause)
	}
	return text.String()
}
