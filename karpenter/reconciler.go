package karpenter

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/queue"
	"github.com/rollcall-dev/rollcall/karpenter/fate"
)

const (
	// writesAtOnce bounds the writes in flight of one reconcile. Marks race with evictions, and one after the other a
	// node's pods would take a round trip each.
	writesAtOnce = 8
	// rollsAtMost bounds how often verdicts are taken again because a live read settled an owner. One is the rule, a
	// second is for owners that only the first made matter.
	rollsAtMost = 3
	// askAgainAfter is how soon what no watch tells is asked again: whether a right was granted, or a kind is served; and
	// what no key follows from: whether there is room elsewhere, for which any pod and volume counts.
	askAgainAfter = time.Minute
	// judgeAgainAfter is how soon a pod is judged again that changed before its marker was removed. The cache is behind by
	// moments, and a marker that stays a second longer misleads nobody.
	judgeAgainAfter = time.Second
)

// reconcileNode makes the markers right of all pods that run on the node.
func (c *Controller) reconcileNode(lead context.Context, name string) (again time.Duration, err error) {
	c.reactions.start(name)
	defer func() {
		if err == nil {
			c.reactions.done(name)
		}
	}()
	now := c.options.Clock()
	node, err := c.node(lead, name)
	if err != nil {
		return 0, err
	}
	if node == nil {
		c.show.gone(name)
		return 0, nil
	}
	going := c.going(now)
	d := Disruption{State: None}
	if g, goes := going[name]; goes {
		d = g.d
	} else {
		c.memory.settle(node, d, nil, now)
	}
	result := c.markPods(lead, name, going, now)
	c.show.node(c.sight(node, d, result, now))

	// Marks go before Events, whatever became of some of them.
	c.tell(result, going, name)
	if c.memory.announce(name, d) {
		c.enqueueRelated(name, going)
	}
	again = result.again
	if c.informers.Placement() && d.State != None && slices.ContainsFunc(result.fates, needsPlace) {
		again = sooner(again, askAgainAfter)
	}
	if stale, will := staleIn(node, now); will {
		again = sooner(again, stale)
	}
	return again, result.err
}

// sooner is the shorter of two times to wait, of which zero is none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// needsPlace tells whether the fate hangs on the room that there is on other nodes.
func needsPlace(f fate.Fate) bool {
	return f.Verdict == fate.Stranded || f.Verdict == fate.Returns && f.Reason != fate.AlreadyReplaced
}

// sight is what the stream shows of a reconcile.
func (c *Controller) sight(node *corev1.Node, d Disruption, m marking, now time.Time) sight {
	seen := sight{node: node, d: d, fates: m.fates, marked: m.marked}
	if claim := c.claimOf(node); claim != nil {
		seen.life = LifeOf(claim)
	}
	if d.State == None {
		seen.d.Stale = c.disrupt(node, now).Stale
	}
	return seen
}

// marking is what became of the markers of one node's pods.
type marking struct {
	fates    []fate.Fate
	marked   map[types.UID]Marker // pods that bear the marker they should
	unmarked map[types.UID]Marker // pods that should bear it, and cannot
	// again is when to look again although nothing will tell that this is due; zero for never.
	again time.Duration
	err   error
}

// markPods takes the verdicts of a node's pods and writes what follows. What is certain is written at once. Only then
// are owners that the caches do not have read live, and the verdicts taken again.
func (c *Controller) markPods(lead context.Context, name string, going map[string]goingNode, now time.Time) marking {
	live := map[types.UID]metav1.Object{}
	var result marking
	var doubts error
	for range rollsAtMost {
		view := newView(c.informers, c.owners, live)
		view.pools = c.nodePools
		result.fates = takeRoll(view, name, going, now)
		result.marked = c.markersWanted(result.fates, name, going)
		pods := view.PodsOn(name)
		if _, goes := going[name]; !goes && c.options.Mark[fate.Lost] {
			keepDoomed(view, pods, result.marked, c.writer.current)
		}
		writes := plan(pods, result.marked, c.writer.current)
		open := len(view.misses) > 0
		if open {
			writes = marksOnly(writes)
		}
		explain(writes, going, result.fates)
		done := c.apply(lead, writes, result.marked)
		result.unmarked, result.err = done.unmarked, errors.Join(append(done.errs, doubts)...)
		result.again = sooner(result.again, done.again)
		if view.unserved {
			result.again = sooner(result.again, askAgainAfter)
		}
		if !open {
			c.withdrawUnmarked(pods, result)
		}
		if !open || result.err != nil {
			return result
		}
		var found map[types.UID]metav1.Object
		found, doubts = c.owners.confirm(lead, view.misses)
		maps.Copy(live, found)
	}
	return result
}

// takeRoll returns the fates of the node's pods: of all where it goes, else of those that other nodes cost.
func takeRoll(world *view, name string, going map[string]goingNode, now time.Time) []fate.Fate {
	if len(going) == 0 {
		return nil
	}
	var departures []fate.Departure
	for _, g := range going {
		departures = append(departures, g.d.Departure(g.node))
	}
	roll := fate.New(world, departures, fate.Options{Now: now, Place: world.informers.Placement()})
	if _, goes := going[name]; goes {
		return roll.On(name)
	}
	return roll.Inbound(name)
}

// markersWanted has the marker of every pod whose verdict is one to mark.
func (c *Controller) markersWanted(fates []fate.Fate, name string, going map[string]goingNode) map[types.UID]Marker {
	want := map[types.UID]Marker{}
	for _, f := range fates {
		if c.options.Mark[f.Verdict] {
			costs := name
			if len(f.By) > 0 { // the first of those that do
				costs = f.By[0]
			}
			want[f.Pod.UID] = markerFor(f, costs, going[costs].d)
		}
	}
	return want
}

// applied is what became of writes.
type applied struct {
	unmarked map[types.UID]Marker // what could not be written although the pod is there
	// again is when to look again at what is no error and may change untold: a missing right, a pod that had changed.
	again time.Duration
	errs  []error
}

// apply makes all writes, a few at a time. Markers that were not written are taken out of want.
func (c *Controller) apply(ctx context.Context, writes []write, want map[types.UID]Marker) applied {
	var (
		mu    sync.Mutex
		group sync.WaitGroup
		done  = applied{unmarked: map[types.UID]Marker{}}
		slots = make(chan struct{}, writesAtOnce)
	)
	for _, w := range writes {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			outcome, err := c.writer.mark(ctx, w.pod, w.text)
			mu.Lock()
			defer mu.Unlock()
			marker := want[w.pod.UID]
			if err == nil && outcome == written {
				c.logWrite(w, marker)
				c.noteWrite(w, marker)
				return
			}
			delete(want, w.pod.UID)
			c.unwritten(ctx, &done, w, marker, outcome, err)
		})
	}
	group.Wait()
	return done
}

// unwritten takes note of a write that was not made. Where the pod is another one, there is nothing to tell. Where it is the
// one that was judged, Events and the record carry what its marker cannot (DESIGN.md section 5). A missing right is no
// error: it is reported.
func (c *Controller) unwritten(ctx context.Context, done *applied, w write, marker Marker, o outcome, err error) {
	switch {
	case apierrors.IsForbidden(err):
		done.again = sooner(done.again, askAgainAfter)
		c.refusals.Report("patch", "pods/status", w.pod.Namespace, err)
	case err != nil:
		done.errs = append(done.errs, err)
	case o == behind:
		done.again = sooner(done.again, judgeAgainAfter)
	}
	if err != nil && w.text != "" && ctx.Err() == nil { // a former leader tells nothing
		done.unmarked[w.pod.UID] = marker
	}
}

func (c *Controller) logWrite(w write, marker Marker) {
	msg, decision := "a pod is marked", "mark"
	if w.text == "" {
		marker, _ = ParseMarker(w.was)
		msg, decision = "a pod's marker is removed", "clear"
	}
	if c.options.DryRun {
		msg, decision = "dry run: "+msg, "would "+decision
	}
	c.logDecision(msg, w.pod, marker, decision, w.why)
}

// logDecision tells the log and the stream; why may be empty.
func (c *Controller) logDecision(msg string, pod *corev1.Pod, m Marker, decision, why string) {
	attributes := []any{"pod", pod.Namespace + "/" + pod.Name, "uid", pod.UID, "node", m.Node, "verdict", m.Verdict, "reason", m.Reason,
		"state", m.State, "cause", m.Cause, "decision", decision}
	if why != "" {
		attributes = append(attributes, "why", why)
	}
	slog.Info(msg, attributes...)
	c.show.decide(decision, pod, m, why, c.options.Clock())
}

// tell makes the Events and has the records made of a node's pods at risk: those that are marked and those that cannot be.
func (c *Controller) tell(m marking, going map[string]goingNode, name string) {
	var lost []string
	for _, f := range m.fates {
		marker, marked := m.marked[f.Pod.UID]
		if !marked {
			var atRisk bool
			if marker, atRisk = m.unmarked[f.Pod.UID]; !atRisk {
				continue
			}
			c.tolds.unmark(f.Pod.UID, marker)
		}
		c.recorder.Marked(f.Pod, marker.risk())
		c.herald.willBe(f, going[marker.Node].node, marker)
		if f.Verdict == fate.Lost && marker.Node == name {
			lost = append(lost, f.Pod.Namespace+"/"+f.Pod.Name)
		}
	}
	if g, goes := going[name]; goes {
		c.herald.summary(g.node, g.d, lost)
	}
}

// enqueueRelated adds the keys of the nodes whose markers may depend on this node's state: those with pods related to its
// own, those with markers that name it, and with placement all that go, because they compete for room.
func (c *Controller) enqueueRelated(name string, going map[string]goingNode) {
	nodes := map[string]bool{}
	for _, pod := range c.informers.PodsOn(name) {
		for _, p := range c.related(pod) {
			nodes[p.Spec.NodeName] = true
		}
	}
	for _, pod := range c.informers.PodsBy(markedFor, name) {
		nodes[pod.Spec.NodeName] = true
	}
	if c.informers.Placement() {
		for other := range going {
			nodes[other] = true
		}
	}
	delete(nodes, name)
	delete(nodes, "")
	for node := range nodes {
		c.enqueueNode(node)
	}
}

// reconcilePod removes the marker of a pod that runs on no node: nobody can cost it.
func (c *Controller) reconcilePod(lead context.Context, key queue.Key) (again time.Duration, err error) {
	pod, err := c.informers.Core().V1().Pods().Lister().Pods(key.Namespace).Get(key.Name)
	if err != nil || pod.Spec.NodeName != "" {
		return 0, nil // it is gone, or its node's key covers it
	}
	writes := plan([]*corev1.Pod{pod}, nil, c.writer.current)
	explain(writes, nil, nil)
	done := c.apply(lead, writes, map[types.UID]Marker{})
	return done.again, errors.Join(done.errs...)
}
