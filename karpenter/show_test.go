package karpenter

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/rollcall-dev/rollcall/internal/stream"
	"github.com/rollcall-dev/rollcall/karpenter/fate"
)

// watching is a hub with what a client knows of it.
type watching struct {
	*testing.T
	hub    *stream.Hub
	client *stream.Client
}

func watch(t *testing.T) *watching {
	t.Helper()
	w := &watching{t, stream.NewHub(stream.Server{Boot: "b"}, time.Now), nil}
	w.client = stream.NewClient(stream.InProcess{Hub: w.hub}, stream.ClientOptions{})
	done := make(chan error, 1)
	go func() { done <- w.client.Run(t.Context()) }()
	t.Cleanup(func() {
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return w
}

// until waits for a state and returns it.
func (w *watching) until(what string, enough func(*stream.State) bool) *stream.State {
	w.Helper()
	timeout := time.After(time.Minute)
	var last *stream.State
	for {
		select {
		case frame := <-w.client.Frames():
			if last = frame.State; last != nil && enough(last) {
				return last
			}
		case <-timeout:
			w.Fatalf("%s: not seen; the last is %+v", what, last)
		}
	}
}

func aFate(uid string, verdict fate.Verdict, by ...string) fate.Fate {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "p" + uid, UID: types.UID(uid)}}
	return fate.Fate{Pod: pod, Verdict: verdict, Reason: fate.NoController, Certainty: fate.Certain, By: by, Flags: []fate.Flag{fate.EmptyDirData}}
}

func aSight(name string, d Disruption, fates ...fate.Fate) sight {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		karpv1.NodePoolLabelKey: "pool", karpv1.CapacityTypeLabelKey: karpv1.CapacityTypeSpot,
	}}}
	return sight{node: node, d: d, fates: fates, marked: map[types.UID]Marker{}}
}

// Rows come with a disruption, follow it, and go with it: the node's, its pods' and those that it costs elsewhere.
func TestShowFollowsReconciles(t *testing.T) {
	w := watch(t)
	s := newShow(w.hub)
	committed := Disruption{State: Committed, Cause: "spot-interruption", Detail: "SpotInterrupted"}
	going := aSight("n1", committed, aFate("1", fate.Lost), aFate("2", fate.Returns), aFate("3", fate.Finished))
	going.marked["1"] = Marker{}
	going.life = Life{NodeClaim: "claim", Deleted: time.Now()}
	s.node(going)
	state := w.until("a node that goes", func(s *stream.State) bool { return len(s.Pods["n1"]) == 2 })
	node, lost := state.Going[0], state.Pods["n1"][0]
	if node.State != "Committed" || node.Shown != "spot-interruption: SpotInterrupted" || node.Pods != 2 || node.Marked != 1 || node.NodePool != "pool" ||
		node.CapacityType != "spot" || node.NodeClaim != "claim" || node.WaitsFor != karpv1.ConditionTypeDrained || !maps.Equal(node.Verdicts, map[string]int{"Lost": 1, "Returns": 1}) {
		t.Errorf("the node: %+v", node)
	}
	if lost.UID != "1" || !lost.Marked || lost.On != "" || lost.Certainty != "Certain" || !slices.Equal(lost.Flags, []string{"EmptyDirData"}) {
		t.Errorf("the pod: %+v", lost)
	}
	drained := Life{NodeClaim: "claim", Deleted: time.Now(), Drained: Stage{Status: metav1.ConditionTrue}, VolumesDetached: Stage{Reason: "Waiting", Message: "2 volumes"}}
	s.life("n1", drained)
	s.life("n9", drained) // it goes nowhere
	w.until("its drain is over", func(s *stream.State) bool {
		return len(s.Going) == 1 && s.Going[0].WaitsFor == karpv1.ConditionTypeVolumesDetached && s.Going[0].WaitsWhy == "Waiting: 2 volumes"
	})
	s.node(aSight("n2", Disruption{State: None}, aFate("4", fate.Lost, "n1")))
	state = w.until("collateral", func(s *stream.State) bool { return s.Going[0].Collateral == 1 && len(s.Pods["n1"]) == 3 })
	if pod := state.Pods["n1"][2]; pod.UID != "4" || pod.On != "n2" || len(state.Going) != 1 || state.Going[0].Pods != 2 {
		t.Errorf("collateral: %+v of %+v", pod, state.Going)
	}
	s.node(aSight("n2", Disruption{State: None}))
	w.until("no collateral any more", func(s *stream.State) bool { return s.Going[0].Collateral == 0 && len(s.Pods["n1"]) == 2 })
	s.node(aSight("n1", Disruption{State: None, Stale: true}))
	w.until("it stays, with a stale signal", func(s *stream.State) bool {
		return len(s.Pods) == 0 && len(s.Going) == 1 && s.Going[0].Stale && s.Going[0].State == "None"
	})
	s.node(aSight("n1", Disruption{State: None}))
	w.until("all is well", func(s *stream.State) bool { return len(s.Going) == 0 })
	s.node(going)
	w.until("it goes again", func(s *stream.State) bool { return len(s.Going) == 1 && len(s.Pods["n1"]) == 2 })
	s.gone("n1")
	w.until("it is gone", func(s *stream.State) bool { return len(s.Going) == 0 && len(s.Pods) == 0 })
	if n := len(s.going) + len(s.pods) + len(s.collateral) + len(s.lives); n != 0 {
		t.Errorf("%d remembered of what is gone", n)
	}
}

// The standing answer is replaced as a whole, and is of healthy nodes only.
func TestShowStands(t *testing.T) {
	w := watch(t)
	s := newShow(w.hub)
	rows := map[string]*stream.Standing{}
	for i := range standingShown + 2 {
		note(rows, aSight("n1", Disruption{}).node, aFate(fmt.Sprint(i), fate.Lost))
		note(rows, aSight("n2", Disruption{}).node, aFate(fmt.Sprint(i), fate.Returns))
		note(rows, aSight("n3", Disruption{}).node, aFate(fmt.Sprint(i), fate.Unsure))
	}
	s.stand(maps.Clone(rows))
	state := w.until("two nodes", func(s *stream.State) bool { return len(s.Standing) == 2 })
	if n1 := state.Standing[0]; n1.Node != "n1" || n1.Verdicts["Lost"] != standingShown+2 || len(n1.Pods) != standingShown || n1.CapacityType != "spot" {
		t.Errorf("n1: %+v", n1)
	}
	delete(rows, "n1")
	s.stand(maps.Clone(rows))
	w.until("one", func(s *stream.State) bool { return len(s.Standing) == 1 && s.Standing[0].Node == "n3" })
	s.node(aSight("n3", Disruption{State: Pending, Cause: "t"}))
	w.until("a node that goes stands no more", func(s *stream.State) bool { return len(s.Standing) == 0 && len(s.Going) == 1 })
	s.node(aSight("n3", Disruption{State: None}))
	s.stand(map[string]*stream.Standing{"n3": rows["n3"]})
	w.until("it stays after all", func(s *stream.State) bool { return len(s.Standing) == 1 })
	s.stand(nil)
	w.until("none", func(s *stream.State) bool { return len(s.Standing) == 0 })
}

// The row of a NodeClaim has the times of what Karpenter has done, and what it waits for.
func TestComingRow(t *testing.T) {
	at := metav1.NewTime(time.Date(2026, 12, 1, 19, 0, 0, 0, time.UTC))
	claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim", UID: "u", Labels: map[string]string{karpv1.NodePoolLabelKey: "pool"}}}
	claim.Status.NodeName = "n2"
	claim.StatusConditions().SetTrue(karpv1.ConditionTypeLaunched)
	claim.StatusConditions().SetUnknownWithReason(karpv1.ConditionTypeRegistered, "NodeNotFound", "Node not registered with cluster")
	for i := range claim.Status.Conditions {
		claim.Status.Conditions[i].LastTransitionTime = at
	}
	row := comingRow(claim, []string{"n1", "n2"}, LifeOf(claim))
	if row.ID != "u" || row.Node != "n2" || row.NodePool != "pool" || !row.Launched.Equal(at.Time) || !row.Registered.IsZero() || !row.Initialized.IsZero() ||
		row.WaitsFor != karpv1.ConditionTypeRegistered || row.WaitsWhy != "NodeNotFound: Node not registered with cluster" {
		t.Errorf("%+v", row)
	}
}

// BenchmarkShow is what showing a reconcile costs, of a node with 110 pods all of which have changed, and without a hub.
func BenchmarkShow(b *testing.B) {
	sights := [2]sight{}
	for i := range sights {
		sights[i] = aSight("n", Disruption{State: Committed, Cause: "spot-interruption"})
		for n := range 110 {
			f := aFate(fmt.Sprint(n), fate.Returns)
			f.Message = fmt.Sprint("ReplicaSet d/web makes it again ", i)
			sights[i].fates = append(sights[i].fates, f)
		}
	}
	for name, hub := range map[string]*stream.Hub{"hub": stream.NewHub(stream.Server{}, time.Now), "none": nil} {
		b.Run(name, func(b *testing.B) {
			s := newShow(hub)
			for i := range b.N {
				s.node(sights[i%2])
			}
		})
	}
}

// NodeClaims are shown from their making until they have come, with the node they get, and those that go with their node.
func TestShowClaims(t *testing.T) {
	lab := newClaimLab(t, false, []runtime.Object{machine("n1", "id-1")})
	w := watch(t)
	c := &Controller{show: newShow(w.hub)}
	if err := c.ShowClaims(lab.Claims, stream.NewArrivals(w.hub, time.Now)); err != nil {
		t.Fatal(err)
	}
	claim := linked("claim", "", "")
	claim.UID, claim.Finalizers = "u", []string{"karpenter.sh/termination"}
	lab.put(claim)
	w.until("a NodeClaim", func(s *stream.State) bool { return len(s.Coming) == 1 && s.Coming[0].Node == "" })
	claim.Status.ProviderID = "id-1"
	claim.StatusConditions().SetTrue(karpv1.ConditionTypeLaunched)
	lab.put(claim)
	w.until("its node", func(s *stream.State) bool {
		return len(s.Coming) == 1 && s.Coming[0].Node == "n1" && !s.Coming[0].Launched.IsZero() && s.Coming[0].WaitsFor == karpv1.ConditionTypeRegistered
	})
	c.show.node(aSight("n1", Disruption{State: Committed, Cause: NodeClaimDeleted}))
	now := metav1.Now()
	claim.DeletionTimestamp = &now
	lab.put(claim)
	w.until("it goes before it has come", func(s *stream.State) bool {
		return len(s.Coming) == 0 && len(s.Going) == 1 && s.Going[0].WaitsFor == karpv1.ConditionTypeDrained
	})
}

// Of more pods than are shown, the worst are, whatever order they come in.
func TestNoteShowsTheWorst(t *testing.T) {
	node := aSight("n", Disruption{}).node
	rows := map[string]*stream.Standing{}
	for i := range standingShown {
		note(rows, node, aFate(fmt.Sprint("a", i), fate.Unsure))
	}
	note(rows, node, aFate("m", fate.Stranded))
	note(rows, node, aFate("z2", fate.Lost))
	note(rows, node, aFate("z1", fate.Lost))
	var names []string
	for _, pod := range rows["n"].Pods {
		names = append(names, pod.Name)
	}
	if want := []string{"pz1", "pz2", "pm", "pa0", "pa1", "pa2", "pa3", "pa4", "pa5", "pa6"}; !slices.Equal(names, want) {
		t.Errorf("shown are %v, want %v", names, want)
	}
	if !maps.Equal(rows["n"].Verdicts, map[string]int{"Lost": 2, "Stranded": 1, "Unsure": standingShown}) {
		t.Errorf("counted are %v", rows["n"].Verdicts)
	}
}

// Where the stream has no room for all healthy nodes, it has spot ones, those that come later too, and then the first by
// name.
func TestShowStandsSpotFirst(t *testing.T) {
	const room, spots = 512, 200
	w := watch(t)
	s := newShow(w.hub)
	rows := map[string]*stream.Standing{}
	add := func(capacity string, i int) {
		name := fmt.Sprintf("%s-%04d", capacity, i)
		rows[name] = &stream.Standing{Node: name, CapacityType: capacity, Verdicts: map[string]int{"Lost": 1}}
	}
	for i := range 2 * room {
		add(karpv1.CapacityTypeOnDemand, i)
	}
	for i := range spots {
		add(karpv1.CapacityTypeSpot, i)
	}
	s.stand(maps.Clone(rows))
	count := func(state *stream.State) (n int) {
		for _, row := range state.Standing {
			if row.CapacityType == karpv1.CapacityTypeSpot {
				n++
			}
		}
		return n
	}
	state := w.until("a full table", func(s *stream.State) bool { return len(s.Standing) == room })
	if count(state) != spots || state.Standing[room-spots-1].Node != fmt.Sprintf("on-demand-%04d", room-spots-1) {
		t.Errorf("%d spot nodes are shown, and on-demand ones to %s", count(state), state.Standing[room-spots-1].Node)
	}
	for i := range 100 {
		add(karpv1.CapacityTypeSpot, spots+i)
	}
	s.stand(maps.Clone(rows))
	w.until("more spot nodes", func(s *stream.State) bool { return len(s.Standing) == room && count(s) == spots+100 })
}
