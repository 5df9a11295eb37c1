package karpenter

import (
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

var now = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// aNode is a Ready node with the taints, each given as to --interruption-taint.
func aNode(t *testing.T, taints ...string) *corev1.Node {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node-uid"}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for _, text := range taints {
		rule, err := ParseTaintRule(text)
		if err != nil {
			t.Fatal(err)
		}
		taint := corev1.Taint{Key: rule.Key, Effect: rule.Effect}
		if rule.Value != nil {
			taint.Value = *rule.Value
		}
		node.Spec.Taints = append(node.Spec.Taints, taint)
	}
	return node
}

func aClaim(deadline string, deleted time.Time) *karpv1.NodeClaim {
	claim := &karpv1.NodeClaim{}
	if deadline != "" {
		claim.Annotations = map[string]string{karpv1.NodeClaimTerminationTimestampAnnotationKey: deadline}
	}
	if !deleted.IsZero() {
		claim.DeletionTimestamp = &metav1.Time{Time: deleted}
	}
	return claim
}

func TestDisruptState(t *testing.T) {
	deleted := now.Add(-5 * time.Second)
	const (
		fresh = "ToBeDeletedByClusterAutoscaler=1796126280:NoSchedule" // two minutes before now
		old   = "ToBeDeletedByClusterAutoscaler=1796125320:NoSchedule" // eighteen minutes before now
	)
	for name, tc := range map[string]struct {
		taints   []string
		rules    []string // --interruption-taint
		claim    *karpv1.NodeClaim
		deleted  bool
		notReady bool
		state    State
		cause    string
		stale    bool
	}{
		"no taint":                 {state: None},
		"karpenter, voluntary":     {taints: []string{"karpenter.sh/disrupted:NoSchedule"}, claim: aClaim("", time.Time{}), state: Pending, cause: "karpenter.sh/disrupted"},
		"karpenter, claim deleted": {taints: []string{"karpenter.sh/disrupted:NoSchedule"}, claim: aClaim("", deleted), state: Committed, cause: NodeClaimDeleted},
		"karpenter, node deleted":  {taints: []string{"karpenter.sh/disrupted:NoSchedule"}, deleted: true, state: Committed, cause: NodeDeleted},
		"claim deleted, no taint":  {claim: aClaim("", deleted), state: Committed, cause: NodeClaimDeleted},
		"claim before node":        {claim: aClaim("", deleted), deleted: true, state: Committed, cause: NodeClaimDeleted},
		"committed taint before claim and node": {
			taints: []string{"spot-interruption=true:NoSchedule"}, claim: aClaim("", deleted), deleted: true,
			state: Committed, cause: "spot-interruption"},
		"first committed taint in the node's order": {
			taints: []string{"decommission-pending:NoSchedule", "medik8s.io/drain:NoSchedule", "spot-interruption:NoExecute"},
			state:  Committed, cause: "medik8s.io/drain"},
		"first pending taint": {
			taints: []string{"example.com/x:NoSchedule", "atlassian.com/escalator:NoSchedule", "decommission-pending:NoExecute"},
			state:  Pending, cause: "atlassian.com/escalator"},
		"key that only contains a known one": {taints: []string{"example.com/spot-interruption:NoSchedule"}, state: None},
		"startup taints":                     {taints: []string{"karpenter.sh/unregistered:NoExecute", "readiness.k8s.io/StaticPodsMirrored=pending:NoSchedule"}, state: None},
		"off by default":                     {taints: []string{"node.kubernetes.io/unschedulable:NoSchedule", "node.kubernetes.io/not-ready:NoExecute", "node.kubernetes.io/unreachable:NoExecute"}, state: None},
		"cordon asked for":                   {taints: []string{"node.kubernetes.io/unschedulable:NoSchedule"}, rules: []string{"node.kubernetes.io/unschedulable"}, state: Committed, cause: "node.kubernetes.io/unschedulable"},

		"autoscaler, fresh":                    {taints: []string{fresh}, state: Committed, cause: ToBeDeletedTaint},
		"autoscaler, stale":                    {taints: []string{old}, state: None, stale: true},
		"autoscaler, old and not ready":        {taints: []string{old}, notReady: true, state: Committed, cause: ToBeDeletedTaint},
		"autoscaler, old and node deleted":     {taints: []string{old}, deleted: true, state: Committed, cause: ToBeDeletedTaint},
		"autoscaler, exactly 15 minutes":       {taints: []string{"ToBeDeletedByClusterAutoscaler=1796125500:NoSchedule"}, state: Committed, cause: ToBeDeletedTaint},
		"autoscaler, from the future":          {taints: []string{"ToBeDeletedByClusterAutoscaler=1896125500:NoSchedule"}, state: Committed, cause: ToBeDeletedTaint},
		"autoscaler, value is no time":         {taints: []string{"ToBeDeletedByClusterAutoscaler=soon:NoSchedule"}, state: Committed, cause: ToBeDeletedTaint},
		"autoscaler, milliseconds":             {taints: []string{"ToBeDeletedByClusterAutoscaler=1796126280000:NoSchedule"}, state: Committed, cause: ToBeDeletedTaint},
		"autoscaler, before there was any":     {taints: []string{"ToBeDeletedByClusterAutoscaler=1:NoSchedule"}, state: Committed, cause: ToBeDeletedTaint},
		"autoscaler, no value":                 {taints: []string{"ToBeDeletedByClusterAutoscaler:NoSchedule"}, state: Committed, cause: ToBeDeletedTaint},
		"stale beside a pending taint":         {taints: []string{old, "decommission-pending:NoSchedule"}, state: Pending, cause: "decommission-pending", stale: true},
		"stale beside a committed taint":       {taints: []string{old, "spot-interruption:NoSchedule"}, state: Committed, cause: "spot-interruption", stale: true},
		"stale although a user names the key":  {taints: []string{old}, rules: []string{ToBeDeletedTaint}, state: None, stale: true},
		"claim deleted beside a stale taint":   {taints: []string{old}, claim: aClaim("", deleted), state: Committed, cause: NodeClaimDeleted, stale: true},
		"user, any value and effect":           {taints: []string{"example.com/leaving=soon:NoExecute"}, rules: []string{"example.com/leaving"}, state: Committed, cause: "example.com/leaving"},
		"user, value matches":                  {taints: []string{"example.com/leaving=soon:NoSchedule"}, rules: []string{"example.com/leaving=soon"}, state: Committed, cause: "example.com/leaving"},
		"user, other value":                    {taints: []string{"example.com/leaving=later:NoSchedule"}, rules: []string{"example.com/leaving=soon"}, state: None},
		"user, empty value asked for":          {taints: []string{"example.com/leaving=later:NoSchedule"}, rules: []string{"example.com/leaving="}, state: None},
		"user, other effect":                   {taints: []string{"example.com/leaving:NoSchedule"}, rules: []string{"example.com/leaving:NoExecute"}, state: None},
		"user makes a pending taint committed": {taints: []string{"decommission-pending:NoSchedule"}, rules: []string{"decommission-pending"}, state: Committed, cause: "decommission-pending"},
		"user does not weaken a built-in rule": {taints: []string{"spot-interruption=true:NoSchedule"}, rules: []string{"spot-interruption=false"}, state: Committed, cause: "spot-interruption"},
	} {
		t.Run(name, func(t *testing.T) {
			config, node := DefaultConfig(), aNode(t, tc.taints...)
			for _, text := range tc.rules {
				rule, err := ParseTaintRule(text)
				if err != nil {
					t.Fatal(err)
				}
				config.Taints = append(config.Taints, rule)
			}
			if tc.deleted {
				node.DeletionTimestamp = &metav1.Time{Time: deleted}
			}
			if tc.notReady {
				node.Status.Conditions[0].Status = corev1.ConditionUnknown
			}
			d := config.Disrupt(node, tc.claim, now)
			if d.State != tc.state || d.Cause != tc.cause || d.Stale != tc.stale {
				t.Errorf("got %s %q stale=%v, want %s %q stale=%v", d.State, d.Cause, d.Stale, tc.state, tc.cause, tc.stale)
			}
			if _, err := json.Marshal(d); err != nil {
				t.Errorf("no JSON can be made of it: %v", err)
			}
		})
	}
}

// TestBuiltinTaints runs every built-in key with each effect and in the neighbourhood of its spelling.
func TestBuiltinTaints(t *testing.T) {
	config := DefaultConfig()
	for _, rule := range builtinTaints {
		for effect, want := range map[corev1.TaintEffect]State{
			corev1.TaintEffectNoSchedule:       rule.State,
			corev1.TaintEffectNoExecute:        rule.State,
			corev1.TaintEffectPreferNoSchedule: None,
		} {
			node := aNode(t)
			node.Spec.Taints = []corev1.Taint{{Key: rule.Key, Value: "any", Effect: effect}}
			if d := config.Disrupt(node, nil, now); d.State != want {
				t.Errorf("%s:%s is %s, want %s", rule.Key, effect, d.State, want)
			}
		}
		for _, key := range []string{rule.Key + "-x", "x" + rule.Key} {
			if d := config.Disrupt(aNode(t, key+":NoSchedule"), nil, now); d.State != None {
				t.Errorf("%s is %s, want None", key, d.State)
			}
		}
	}
	if len(builtinTaints) != 23 {
		t.Errorf("%d built-in taints, DESIGN.md section 2 names 18 committed and 5 pending", len(builtinTaints))
	}
}

func TestDisruptTimes(t *testing.T) {
	added := now.Add(-20 * time.Second)
	owns := func(fields string, at time.Time) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: "m", Time: &metav1.Time{Time: at}, FieldsV1: metav1.NewFieldsV1(fields)}
	}
	const taints = `{"f:spec":{"f:taints":{}}}`
	for name, tc := range map[string]struct {
		taint     string
		timeAdded time.Time
		fields    []metav1.ManagedFieldsEntry
		claim     *karpv1.NodeClaim
		seen      time.Time
		notice    map[string]time.Duration
		since     time.Time
		estimated bool
		deadline  time.Time
	}{
		"timeAdded": {taint: "spot-interruption:NoSchedule", timeAdded: added, since: added, deadline: added.Add(2 * time.Minute)},
		"timeAdded before managedFields": {taint: "spot-interruption:NoSchedule", timeAdded: added,
			fields: []metav1.ManagedFieldsEntry{owns(taints, now)}, since: added, deadline: added.Add(2 * time.Minute)},
		"managedFields": {taint: "cloud.google.com/impending-node-termination:NoSchedule",
			fields: []metav1.ManagedFieldsEntry{owns(`{"f:metadata":{}}`, now.Add(-time.Hour)), owns(taints, added)},
			since:  added, estimated: true, deadline: added.Add(30 * time.Second)},
		"the earliest of two owners": {taint: "medik8s.io/drain:NoSchedule",
			fields: []metav1.ManagedFieldsEntry{owns(taints, now), owns(taints, added), {Manager: "no time", FieldsV1: metav1.NewFieldsV1(taints)}},
			since:  added, estimated: true},
		"managedFields that are no JSON": {taint: "medik8s.io/drain:NoSchedule", fields: []metav1.ManagedFieldsEntry{owns("{", now), {Time: &metav1.Time{Time: now}}}},
		"first seen":                     {taint: "aks-node-termination-handler/preempt:NoSchedule", seen: now, since: now, estimated: true, deadline: now.Add(30 * time.Second)},
		"first seen does not replace":    {taint: "spot-interruption:NoSchedule", timeAdded: added, seen: now, since: added, deadline: added.Add(2 * time.Minute)},
		"nothing known":                  {taint: "spot-interruption:NoSchedule"},
		"autoscaler's value":             {taint: "ToBeDeletedByClusterAutoscaler=1796126280:NoSchedule", fields: []metav1.ManagedFieldsEntry{owns(taints, now)}, since: now.Add(-2 * time.Minute)},
		"autoscaler's value in milliseconds": {taint: "ToBeDeletedByClusterAutoscaler=1796126280000:NoSchedule",
			fields: []metav1.ManagedFieldsEntry{owns(taints, added)}, since: added, estimated: true},
		"claim":                          {claim: aClaim("2026-12-01T12:04:50Z", added), since: added, deadline: now.Add(290 * time.Second)},
		"claim in another zone":          {claim: aClaim("2026-12-01T13:04:50+01:00", added), since: added, deadline: now.Add(290 * time.Second)},
		"claim with a broken annotation": {claim: aClaim("soon", added), since: added},
		"claim not deleted, no signal":   {claim: aClaim("2026-12-01T12:04:50Z", time.Time{})},
		"the notice ends before the claim": {taint: "spot-interruption:NoSchedule", timeAdded: added, claim: aClaim("2026-12-01T12:04:50Z", now),
			since: added, deadline: added.Add(2 * time.Minute)},
		"the claim ends before the notice": {taint: "spot-interruption:NoSchedule", timeAdded: added, claim: aClaim("2026-12-01T12:00:30Z", now),
			since: added, deadline: now.Add(30 * time.Second)},
		"notice of the user": {taint: "decommission-pending:NoSchedule", timeAdded: added, notice: map[string]time.Duration{"decommission-pending": time.Hour},
			since: added, deadline: added.Add(time.Hour)},
		"notice switched off": {taint: "spot-interruption:NoSchedule", timeAdded: added, notice: map[string]time.Duration{"spot-interruption": 0}, since: added},
		"notice for claims":   {claim: aClaim("", added), notice: map[string]time.Duration{NodeClaimDeleted: 2 * time.Minute}, since: added, deadline: added.Add(2 * time.Minute)},
	} {
		t.Run(name, func(t *testing.T) {
			config, node := DefaultConfig(), aNode(t)
			if tc.taint != "" {
				node = aNode(t, tc.taint)
				if !tc.timeAdded.IsZero() {
					node.Spec.Taints[0].TimeAdded = &metav1.Time{Time: tc.timeAdded}
				}
			}
			node.ManagedFields = tc.fields
			for cause, notice := range tc.notice {
				config.Notice[cause] = notice
			}
			d := config.Disrupt(node, tc.claim, now)
			if !tc.seen.IsZero() {
				d = d.FirstSeen(tc.seen)
			}
			if !d.Since.Equal(tc.since) || d.SinceEstimated != tc.estimated || !d.Deadline.Equal(tc.deadline) {
				t.Errorf("got since %v (estimated %v) deadline %v, want %v (%v) %v", d.Since, d.SinceEstimated, d.Deadline, tc.since, tc.estimated, tc.deadline)
			}
		})
	}
}

func TestDeparture(t *testing.T) {
	at := &metav1.Time{Time: now}
	managed := func(node *corev1.Node) { node.Finalizers = []string{karpv1.TerminationFinalizer} }
	for name, tc := range map[string]struct {
		taints    []string
		change    func(*corev1.Node)
		claim     *karpv1.NodeClaim
		karpenter bool
		noExecute string
		notice    time.Duration
		committed bool
	}{
		"karpenter pending":                   {taints: []string{"karpenter.sh/disrupted:NoSchedule"}, karpenter: true},
		"karpenter of old":                    {taints: []string{"karpenter.sh/disruption=disrupting:NoSchedule"}, karpenter: true},
		"claim deleted, five minutes":         {claim: aClaim("2026-12-01T12:05:00Z", now), karpenter: true, notice: 5 * time.Minute, committed: true},
		"claim deleted, deadline at once":     {claim: aClaim("2026-12-01T11:59:59Z", now), karpenter: true, notice: 1, committed: true},
		"node of karpenter deleted":           {change: func(n *corev1.Node) { managed(n); n.DeletionTimestamp = at }, karpenter: true, committed: true},
		"node of nobody deleted":              {change: func(n *corev1.Node) { n.DeletionTimestamp = at }, committed: true},
		"NoExecute":                           {taints: []string{"node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"}, noExecute: "node.kubernetes.io/out-of-service", committed: true},
		"NoExecute beside NoSchedule":         {taints: []string{"spot-interruption:NoSchedule", "spot-interruption:NoExecute"}, noExecute: "spot-interruption", committed: true},
		"NoExecute of another taint":          {taints: []string{"spot-interruption:NoSchedule", "node.kubernetes.io/not-ready:NoExecute"}, committed: true},
		"another's taint on Karpenter's node": {taints: []string{"spot-interruption:NoSchedule"}, change: managed, committed: true},
	} {
		t.Run(name, func(t *testing.T) {
			node := aNode(t, tc.taints...)
			if tc.change != nil {
				tc.change(node)
			}
			got := DefaultConfig().Disrupt(node, tc.claim, now).Departure(node)
			noExecute := ""
			if got.NoExecute != nil {
				noExecute = got.NoExecute.Key
			}
			if got.Node != "n1" || got.Karpenter != tc.karpenter || noExecute != tc.noExecute || got.Notice != tc.notice || got.Committed != tc.committed {
				t.Errorf("got %+v, want %+v", got, tc)
			}
		})
	}
}
