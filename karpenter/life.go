package karpenter

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// A Stage is one condition of a NodeClaim as Karpenter has it: status Unknown and a reason while it waits. The zero value
// is a stage that Karpenter has not spoken of.
type Stage struct {
	Status  metav1.ConditionStatus
	Reason  string
	Message string
	Since   time.Time
}

// Is tells whether the stage was reached.
func (s Stage) Is() bool { return s.Status == metav1.ConditionTrue }

// A Life is where a node stands between its NodeClaim's making and its machine's end (facts/disruption.md sections 1.2,
// 1.3 and 1.5; sigs.k8s.io/karpenter pkg/apis/v1/nodeclaim_status.go).
type Life struct {
	NodeClaim string
	// Created and Deleted are the NodeClaim's; Deleted is zero while it stays.
	Created time.Time
	Deleted time.Time

	Launched    Stage
	Registered  Stage
	Initialized Stage

	// Drifted is no disruption yet; DisruptionReason is there while Karpenter's voluntary disruption is under way.
	Drifted          Stage
	DisruptionReason Stage

	Drained             Stage
	VolumesDetached     Stage
	InstanceTerminating Stage
}

// LifeOf reads the life of a node from its NodeClaim, which is only read.
func LifeOf(claim *karpv1.NodeClaim) Life {
	life := Life{NodeClaim: claim.Name, Created: claim.CreationTimestamp.Time}
	if claim.DeletionTimestamp != nil {
		life.Deleted = claim.DeletionTimestamp.Time
	}
	stages := map[string]*Stage{
		karpv1.ConditionTypeLaunched:            &life.Launched,
		karpv1.ConditionTypeRegistered:          &life.Registered,
		karpv1.ConditionTypeInitialized:         &life.Initialized,
		karpv1.ConditionTypeDrifted:             &life.Drifted,
		karpv1.ConditionTypeDisruptionReason:    &life.DisruptionReason,
		karpv1.ConditionTypeDrained:             &life.Drained,
		karpv1.ConditionTypeVolumesDetached:     &life.VolumesDetached,
		karpv1.ConditionTypeInstanceTerminating: &life.InstanceTerminating,
	}
	for _, condition := range claim.Status.Conditions {
		if stage := stages[condition.Type]; stage != nil {
			*stage = Stage{condition.Status, condition.Reason, condition.Message, condition.LastTransitionTime.Time}
		}
	}
	return life
}

// Waiting is the stage that the node waits for, by the name of Karpenter's condition, with Karpenter's reason; false for
// a node that waits for nothing.
func (l Life) Waiting() (condition string, stage Stage, waits bool) {
	type named struct {
		condition string
		Stage
	}
	path := []named{
		{karpv1.ConditionTypeLaunched, l.Launched},
		{karpv1.ConditionTypeRegistered, l.Registered},
		{karpv1.ConditionTypeInitialized, l.Initialized},
	}
	if !l.Deleted.IsZero() {
		path = []named{
			{karpv1.ConditionTypeDrained, l.Drained},
			{karpv1.ConditionTypeVolumesDetached, l.VolumesDetached},
			{karpv1.ConditionTypeInstanceTerminating, l.InstanceTerminating},
		}
	}
	for _, at := range path {
		if !at.Is() {
			return at.condition, at.Stage, true
		}
	}
	return "", Stage{}, false
}

// disruptionReason is why Karpenter disrupts the node by its own choice: Underutilized, Empty or Drifted; empty where it
// does not.
func disruptionReason(claim *karpv1.NodeClaim) string {
	if stage := LifeOf(claim).DisruptionReason; stage.Is() {
		return stage.Reason
	}
	return ""
}

// Life returns the life of the node of that name; false for a node without a NodeClaim.
func (c *Controller) Life(name string) (Life, bool) {
	node, err := c.informers.Core().V1().Nodes().Lister().Get(name)
	if err != nil {
		return Life{}, false
	}
	claim := c.claimOf(node)
	if claim == nil {
		return Life{}, false
	}
	return LifeOf(claim), true
}
