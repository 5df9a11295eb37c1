package karpenter

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/rollcall-dev/rollcall/internal/queue"
)

// TestKeysAreRankedByTheNextKill has keys added by the handlers' own way, and reads their ranks from the queue.
func TestKeysAreRankedByTheNextKill(t *testing.T) {
	tainted := func(name, key string) *corev1.Node {
		node := machine(name, "i-"+name)
		node.Spec.Taints = []corev1.Taint{{Key: key, Effect: corev1.TaintEffectNoSchedule, TimeAdded: &metav1.Time{Time: now}}}
		return node
	}
	lab := newClaimLab(t, false, []runtime.Object{
		machine("healthy", ""), machine("claimed", "i-claimed"), machine("graced", "i-graced"),
		tainted("spot", "aws-node-termination-handler/spot-itn"), tainted("asg", "aws-node-termination-handler/asg-lifecycle-termination"),
		tainted("voluntary", karpv1.DisruptedTaintKey),
	})
	deadline := now.Add(time.Hour).UTC()
	for _, name := range []string{"claimed", "graced"} {
		claim := linked(name, "i-"+name, name)
		claim.DeletionTimestamp = &metav1.Time{Time: now}
		if name == "graced" {
			claim.Annotations = map[string]string{karpv1.NodeClaimTerminationTimestampAnnotationKey: deadline.Format(time.RFC3339)}
		}
		lab.put(claim)
	}
	lab.eventually("the NodeClaims are cached", func() bool { return len(lab.Deleting()) == 2 })

	keys := queue.New(queue.Options{})
	t.Cleanup(func() {
		stop := make(chan struct{})
		close(stop)
		if err := keys.Run(t.Context(), stop, 0); err != nil {
			t.Error(err)
		}
	})
	c := &Controller{
		options:   Options{Disruption: DefaultConfig(), Claims: lab.Claims, Clock: func() time.Time { return now }},
		informers: lab.informers, queue: keys, reactions: newReactions(), interruptions: newInterruptions(nil, nil),
	}
	want := map[string]queue.Rank{
		"healthy":   {},
		"voluntary": {Class: queue.Pending},
		"asg":       {Class: queue.Committed},
		"claimed":   {Class: queue.Committed},
		"graced":    {Class: queue.Committed, Kill: deadline.Truncate(time.Second)},
		"spot":      {Class: queue.Committed, Kill: now.Add(2 * time.Minute)},
		"gone":      {Class: queue.Committed},
	}
	for name := range want {
		c.claimChanged(name) // adds both of the node's keys
	}
	views := keys.Changes(0).Views
	if len(views) != 2*len(want) {
		t.Errorf("%d keys were added, want %d", len(views), 2*len(want))
	}
	for _, view := range views {
		got, want := view.Rank, want[view.Key.Name]
		if got.Class != want.Class || !got.Kill.Equal(want.Kill) {
			t.Errorf("%s: rank %v, want %v", view.Key, got, want)
		}
	}

	// What is taken back is taken back in the order too.
	healthy, err := lab.informers.Core().V1().Nodes().Lister().Get("voluntary")
	if err != nil {
		t.Fatal(err)
	}
	cleared := healthy.DeepCopy()
	cleared.Spec.Taints = nil
	if err := lab.informers.Nodes().GetStore().Update(cleared); err != nil {
		t.Fatal(err)
	}
	c.nodeUpdated(healthy, cleared)
	for _, view := range keys.Changes(0).Views {
		if view.Key == (queue.Key{Kind: NodeKey, Name: "voluntary"}) && view.Rank != (queue.Rank{}) {
			t.Errorf("a node that no longer goes has a key of rank %v", view.Rank)
		}
	}
}
