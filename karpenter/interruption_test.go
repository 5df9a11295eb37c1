package karpenter

import (
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/rollcall-dev/rollcall/internal/refusals"
)

func claimEvent(reason string, at time.Time) corev1.Event {
	return corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "default", Name: reason},
		InvolvedObject: corev1.ObjectReference{Kind: "NodeClaim", Name: "c", UID: "claim-uid"},
		Reason:         reason, LastTimestamp: metav1.NewTime(at),
	}
}

func nodeEvent(reason string, at time.Time, uid types.UID) corev1.Event {
	event := claimEvent(reason, at)
	event.Name, event.InvolvedObject = "on-node-"+reason, corev1.ObjectReference{Kind: "Node", Name: "n", UID: uid}
	return event
}

func TestInterruption(t *testing.T) {
	claim := aClaim("", now)
	claim.UID = "claim-uid"
	node := machine("n", "i")
	node.UID = "node-uid"
	recreated := claimEvent("SpotInterrupted", now)
	recreated.InvolvedObject.UID = "former"
	onNode, onFormerNode := nodeEvent("InstanceStopping", now, "node-uid"), nodeEvent("InstanceStopping", now, "former")
	for name, tc := range map[string]struct {
		events []corev1.Event
		want   string
	}{
		"none":                   {},
		"spot":                   {[]corev1.Event{claimEvent("SpotInterrupted", now)}, "SpotInterrupted"},
		"the most telling":       {[]corev1.Event{claimEvent("TerminatingOnInterruption", now), claimEvent("InstanceStopping", now.Add(-time.Second))}, "InstanceStopping"},
		"only that":              {[]corev1.Event{claimEvent("TerminatingOnInterruption", now)}, "TerminatingOnInterruption"},
		"a little after":         {[]corev1.Event{claimEvent("SpotInterrupted", now.Add(time.Second))}, "SpotInterrupted"},
		"an old story":           {[]corev1.Event{claimEvent("SpotInterrupted", now.Add(-30*time.Minute))}, ""},
		"upon which none acts":   {[]corev1.Event{claimEvent("SpotRebalanceRecommendation", now)}, ""},
		"of Karpenter's routine": {[]corev1.Event{claimEvent("DisruptionTerminating", now)}, ""},
		"of a namesake":          {[]corev1.Event{recreated}, ""},
		"on the Node":            {[]corev1.Event{onNode}, "InstanceStopping"},
		"on both":                {[]corev1.Event{claimEvent("TerminatingOnInterruption", now), onNode}, "InstanceStopping"},
		"on a former Node":       {[]corev1.Event{onFormerNode}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := interruption(tc.events, claim, node); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// Events are read once for each NodeClaim and its Node, also where that is refused.
func TestInterruptionIsAskedOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"read":    {nil, "SpotInterrupted"},
		"refused": {apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "", nil), ""},
		"trouble": {errors.New("no route to host"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			event := claimEvent("SpotInterrupted", now)
			client := fake.NewClientset(&event)
			client.PrependReactor("list", "events", func(clienttesting.Action) (bool, runtime.Object, error) { return tc.err != nil, nil, tc.err })
			clock := func() time.Time { return now }
			i := newInterruptions(client, refusals.New(clock))
			claim := aClaim("", now)
			claim.UID, claim.Name = "claim-uid", "c"
			if _, asked := i.of(claim); asked {
				t.Error("asked before it was")
			}
			for range 3 {
				if got := i.ask(t.Context(), claim, machine("n", "i")); got != tc.want {
					t.Errorf("got %q, want %q", got, tc.want)
				}
			}
			var asked []string
			for _, action := range client.Actions() {
				asked = append(asked, action.(clienttesting.ListAction).GetListRestrictions().Fields.String())
			}
			want := []string{"involvedObject.kind=NodeClaim,involvedObject.name=c", "involvedObject.kind=Node,involvedObject.name=n"}
			if !slices.Equal(asked, want) {
				t.Errorf("asked for %q, want %q", asked, want)
			}
		})
	}
}

func TestShown(t *testing.T) {
	if got := (Disruption{Cause: NodeClaimDeleted, Detail: "SpotInterrupted"}).Shown(); got != "NodeClaimDeleted: SpotInterrupted" {
		t.Error(got)
	}
	if got := (Disruption{Cause: NodeClaimDeleted}).Shown(); got != "NodeClaimDeleted" {
		t.Error(got)
	}
}

func TestInterruptedRefines(t *testing.T) {
	committed := Disruption{State: Committed, Cause: NodeClaimDeleted, Since: now}
	withDeadline := committed
	withDeadline.Deadline, withDeadline.DeadlineFrom = now.Add(time.Minute), FromNodeClaim
	for name, tc := range map[string]struct {
		d      Disruption
		reason string
		notice time.Duration // of SpotInterrupted
		want   time.Time
		from   DeadlineSource
		detail string
	}{
		"no reason":           {d: committed, notice: time.Minute},
		"no notice":           {d: committed, reason: "SpotInterrupted", detail: "SpotInterrupted"},
		"notice":              {d: committed, reason: "SpotInterrupted", notice: 2 * time.Minute, want: now.Add(2 * time.Minute), from: FromNotice, detail: "SpotInterrupted"},
		"later than known":    {d: withDeadline, reason: "SpotInterrupted", notice: 2 * time.Minute, want: now.Add(time.Minute), from: FromNodeClaim, detail: "SpotInterrupted"},
		"earlier than known":  {d: withDeadline, reason: "SpotInterrupted", notice: 30 * time.Second, want: now.Add(30 * time.Second), from: FromNotice, detail: "SpotInterrupted"},
		"nothing to refine":   {d: Disruption{State: Pending, Cause: "x", Since: now}, reason: "SpotInterrupted", notice: time.Minute},
		"notice of the cause": {d: Disruption{State: Committed, Since: now, Notice: time.Minute, Deadline: now.Add(time.Minute), DeadlineFrom: FromNotice}, reason: "SpotInterrupted", notice: 2 * time.Minute, want: now.Add(time.Minute), from: FromNotice, detail: "SpotInterrupted"},
	} {
		t.Run(name, func(t *testing.T) {
			config := DefaultConfig()
			config.Notice["SpotInterrupted"] = tc.notice
			if err := config.Validate(); err != nil {
				t.Fatal(err)
			}
			got := config.Interrupted(tc.d, tc.reason)
			if got.State != tc.d.State || got.Cause != tc.d.Cause {
				t.Errorf("changed the state or cause to %s %s", got.State, got.Cause)
			}
			if !got.Deadline.Equal(tc.want) || got.DeadlineFrom != tc.from || got.Detail != tc.detail {
				t.Errorf("got %v from %q, detail %q", got.Deadline, got.DeadlineFrom, got.Detail)
			}
		})
	}
}
