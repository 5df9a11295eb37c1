package karpenter_test

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/karpenter"
)

// The standing answer is counted for healthy nodes, and the state of the others beside it. What other tests leave counts too.
func TestStandingIsMeasured(t *testing.T) {
	l := newLab(t)
	measures := karpenter.NewMetrics("test", karpenter.DefaultConfig())
	l.configure = func(o *karpenter.Options) { o.Metrics = measures }
	healthy, going := l.apiNode(), l.apiNode()
	_, err := l.client.CoreV1().Nodes().Patch(t.Context(), healthy, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"karpenter.sh/capacity-type":"spot"}}}`), metav1.PatchOptions{})
	l.must(err)
	l.barePod("bare", healthy)
	l.replicaSet("web", healthy)
	l.barePod("doomed", going)
	l.taint(going, true)
	l.startController(nil)
	l.waitMark("doomed", true)
	want := map[string]float64{
		"rollcall_standing_pods spot " + l.namespace + " Lost":    1,
		"rollcall_standing_pods spot " + l.namespace + " Returns": 1,
		"rollcall_pods_at_risk Lost":                              1,
		"rollcall_nodes Committed":                                1,
		"rollcall_leader":                                         1,
	}
	l.eventually("the metrics", func(context.Context) (bool, error) {
		families, err := measures.Gatherer().Gather()
		if err != nil {
			return false, err
		}
		found := 0
		for _, family := range families {
			for _, metric := range family.GetMetric() {
				name := family.GetName()
				for _, label := range metric.GetLabel() {
					name += " " + label.GetValue()
				}
				if value, wanted := want[name]; wanted && metric.GetGauge().GetValue() >= value {
					found++
				}
			}
		}
		return found == len(want), nil
	})
}
