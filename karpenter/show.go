package karpenter

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/rollcall-dev/rollcall/internal/stream"
	"github.com/rollcall-dev/rollcall/karpenter/fate"
)

// show puts what the controller works out into the stream. It remembers only what it put, so that it can be taken out
// again. Safe for concurrent use; for one node, by one goroutine at a time. With a nil hub it does nothing.
type show struct {
	hub *stream.Hub

	mu         sync.Mutex                      // guards all below
	going      map[string]*stream.GoingNode    // by name, with nobody's collateral
	pods       map[string]map[types.UID]string // by the node they run on: the node that costs them
	collateral map[string]int                  // by the node that costs them: pods elsewhere
	lives      map[string]Life                 // of the nodes in going that have a NodeClaim
	standing   map[string]*stream.Standing     // by node
}

func newShow(hub *stream.Hub) *show {
	return &show{
		hub: hub, going: map[string]*stream.GoingNode{}, pods: map[string]map[types.UID]string{},
		collateral: map[string]int{}, lives: map[string]Life{}, standing: map[string]*stream.Standing{},
	}
}

// A sight is what a reconcile of a node's key has seen.
type sight struct {
	node   *corev1.Node
	d      Disruption
	life   Life // the zero value without a NodeClaim
	fates  []fate.Fate
	marked map[types.UID]Marker
}

// node shows a node's disruption and the pods that run on it and are cost, by it or by another.
func (s *show) node(seen sight) {
	if s.hub == nil {
		return
	}
	name := seen.node.Name
	row := goingRow(seen)
	rows := make([]*stream.Pod, 0, len(seen.fates))
	costs := make(map[types.UID]string, len(seen.fates))
	for _, f := range seen.fates {
		if f.Verdict == fate.Finished {
			continue
		}
		pod := podRow(f, name, seen.marked)
		rows = append(rows, pod)
		costs[f.Pod.UID] = pod.Node
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	content := stream.Content{Pods: rows, Gone: &stream.Gone{}}
	changed := s.cost(name, costs, content.Gone)
	if row == nil {
		delete(s.going, name)
		delete(s.lives, name)
		content.Gone.Going = append(content.Gone.Going, name)
	} else {
		s.going[name], s.lives[name] = row, seen.life
		changed[name] = true
		if seen.d.State != None && s.standing[name] != nil { // it is no healthy node any more
			delete(s.standing, name)
			content.Gone.Standing = append(content.Gone.Standing, name)
		}
	}
	content.Going = s.goingRows(changed)
	s.hub.Put(content)
}

// gone takes out a node that no longer exists, with its pods.
func (s *show) gone(name string) {
	if s.hub == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	content := stream.Content{Gone: &stream.Gone{Going: []string{name}}}
	changed := s.cost(name, nil, content.Gone)
	delete(s.going, name)
	delete(s.lives, name)
	content.Going = s.goingRows(changed)
	s.hub.Put(content)
}

// cost notes which pods on a node are cost by which node. It adds those that are no more to gone and returns the going
// nodes whose collateral has changed. The lock is held, as for goingRows.
func (s *show) cost(on string, costs map[types.UID]string, gone *stream.Gone) map[string]bool {
	before := maps.Clone(s.collateral)
	for uid, node := range s.pods[on] {
		if node != on {
			s.collateral[node]--
		}
		if _, still := costs[uid]; !still {
			gone.Pods = append(gone.Pods, string(uid))
		}
	}
	for _, node := range costs {
		if node != on {
			s.collateral[node]++
		}
	}
	maps.DeleteFunc(s.collateral, func(_ string, n int) bool { return n == 0 })
	if s.pods[on] = costs; len(costs) == 0 {
		delete(s.pods, on)
	}
	changed := map[string]bool{}
	for _, counts := range []map[string]int{before, s.collateral} {
		for node := range counts {
			if before[node] != s.collateral[node] {
				changed[node] = true
			}
		}
	}
	return changed
}

// goingRows are the rows of those nodes that go, complete.
func (s *show) goingRows(names map[string]bool) []*stream.GoingNode {
	var rows []*stream.GoingNode
	for name := range names {
		if known := s.going[name]; known != nil {
			row := *known
			row.Collateral = s.collateral[name]
			if life := s.lives[name]; !life.Deleted.IsZero() {
				row.WaitsFor, row.WaitsWhy = waitsFor(life)
			}
			rows = append(rows, &row)
		}
	}
	return rows
}

// life shows how far the NodeClaim of a going node is.
func (s *show) life(name string, life Life) {
	if s.hub == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.going[name] != nil {
		s.lives[name] = life
		s.hub.Put(stream.Content{Going: s.goingRows(map[string]bool{name: true})})
	}
}

// stand shows the standing answer, whole. The map and its rows are its own from then on.
func (s *show) stand(rows map[string]*stream.Standing) {
	if s.hub == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	content := stream.Content{Gone: &stream.Gone{}}
	for node := range s.standing {
		if rows[node] == nil {
			content.Gone.Standing = append(content.Gone.Standing, node)
		}
	}
	s.standing = rows
	content.Standing = slices.SortedFunc(maps.Values(rows), compareStanding)
	s.hub.Put(content)
}

// decide logs a decision about a pod.
func (s *show) decide(what string, pod *corev1.Pod, m Marker, why string, now time.Time) {
	if s.hub == nil {
		return
	}
	s.hub.Decide(&stream.Decision{
		Time: now, What: what, Object: pod.Namespace + "/" + pod.Name, Node: m.Node,
		Verdict: string(m.Verdict), Reason: string(m.Reason), Cause: m.Cause, Why: why,
	})
}

// The rows.

// goingRow is nil for a node that stays, without so much as a stale signal.
func goingRow(seen sight) *stream.GoingNode {
	d := seen.d
	if d.State == None && !d.Stale {
		return nil
	}
	row := &stream.GoingNode{
		Name: seen.node.Name, State: string(d.State), Cause: d.Cause, Since: d.Since, SinceEstimated: d.SinceEstimated,
		Deadline: d.Deadline, Stale: d.Stale, CapacityType: capacityType(seen.node), NodePool: seen.node.Labels[karpv1.NodePoolLabelKey],
		NodeClaim: seen.life.NodeClaim, Verdicts: map[string]int{},
	}
	if d.Detail != "" {
		row.Shown = d.Shown()
	}
	for _, f := range seen.fates {
		if len(f.By) == 0 && f.Verdict != fate.Finished {
			row.Pods++
			row.Verdicts[string(f.Verdict)]++
		}
		if _, marked := seen.marked[f.Pod.UID]; marked {
			row.Marked++
		}
	}
	return row
}

func podRow(f fate.Fate, on string, marked map[types.UID]Marker) *stream.Pod {
	_, isMarked := marked[f.Pod.UID]
	row := &stream.Pod{
		UID: string(f.Pod.UID), Namespace: f.Pod.Namespace, Name: f.Pod.Name, Node: on,
		Verdict: string(f.Verdict), Reason: string(f.Reason), Certainty: string(f.Certainty), Placement: string(f.Placement),
		Message: f.Message, Marked: isMarked,
	}
	for _, flag := range f.Flags {
		row.Flags = append(row.Flags, string(flag))
	}
	if len(f.By) > 0 && f.By[0] != on {
		row.Node, row.On = f.By[0], on
	}
	return row
}

// waitsFor is the condition of Karpenter's that a node waits for, and its reason.
func waitsFor(life Life) (condition, why string) {
	condition, stage, waits := life.Waiting()
	switch {
	case !waits:
		return "", ""
	case stage.Message != "" && stage.Message != stage.Reason:
		return condition, stage.Reason + ": " + stage.Message
	}
	return condition, stage.Reason
}

// compareStanding puts spot first: it goes without being asked, and the stream may have no room for all.
func compareStanding(a, b *stream.Standing) int {
	onDemand := func(row *stream.Standing) int {
		if row.CapacityType == karpv1.CapacityTypeSpot {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(onDemand(a), onDemand(b)), cmp.Compare(a.Node, b.Node))
}

// standingShown is how many pods of one healthy node are shown.
const standingShown = 10

// atRisk are the verdicts of pods that may not come back, the worst first.
var atRisk = []fate.Verdict{fate.Lost, fate.Stranded, fate.Unsure}

// note counts a pod of a healthy node, and shows the worst of those that would not come back.
func note(rows map[string]*stream.Standing, node *corev1.Node, f fate.Fate) {
	if !slices.Contains(atRisk, f.Verdict) {
		return
	}
	row := rows[node.Name]
	if row == nil {
		row = &stream.Standing{Node: node.Name, CapacityType: capacityType(node), Verdicts: map[string]int{}}
		rows[node.Name] = row
	}
	row.Verdicts[string(f.Verdict)]++
	pod := &stream.StandingPod{
		Namespace: f.Pod.Namespace, Name: f.Pod.Name, Verdict: string(f.Verdict), Reason: string(f.Reason), Message: f.Message,
	}
	at, _ := slices.BinarySearchFunc(row.Pods, pod, compareAtRisk)
	row.Pods = slices.Insert(row.Pods, at, pod)
	row.Pods = row.Pods[:min(len(row.Pods), standingShown)]
}

func compareAtRisk(a, b *stream.StandingPod) int {
	rank := func(p *stream.StandingPod) int { return slices.Index(atRisk, fate.Verdict(p.Verdict)) }
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// ShowClaims shows NodeClaims on their way to a node, and how far those are that go. Call it before the claims run.
func (c *Controller) ShowClaims(claims *Claims, to *stream.Arrivals) error {
	_, err := claims.follow(func(claim *karpv1.NodeClaim) {
		nodes := claims.nodesOf(claim)
		life := LifeOf(claim)
		if isDeleting(claim) {
			to.ClaimGone(string(claim.UID))
			for _, name := range nodes {
				c.show.life(name, life)
			}
			return
		}
		to.Claim(comingRow(claim, nodes, life))
	}, func(claim *karpv1.NodeClaim) { to.ClaimGone(string(claim.UID)) })
	return err
}

func comingRow(claim *karpv1.NodeClaim, nodes []string, life Life) *stream.ComingNode {
	row := &stream.ComingNode{
		ID: string(claim.UID), NodeClaim: claim.Name, NodePool: claim.Labels[karpv1.NodePoolLabelKey],
		CapacityType: claim.Labels[karpv1.CapacityTypeLabelKey], Created: life.Created,
	}
	if len(nodes) > 0 {
		row.Node = nodes[0]
	}
	if i := slices.Index(nodes, claim.Status.NodeName); i >= 0 {
		row.Node = nodes[i]
	}
	for _, at := range []struct {
		stage Stage
		when  *time.Time
	}{{life.Launched, &row.Launched}, {life.Registered, &row.Registered}, {life.Initialized, &row.Initialized}} {
		if at.stage.Is() {
			*at.when = at.stage.Since
		}
	}
	row.WaitsFor, row.WaitsWhy = waitsFor(life)
	return row
}
