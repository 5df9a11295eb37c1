package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/karpenter"
)

// podsPerNode are lost with each node of TestInterruption.
const podsPerNode = 3

// A NodeClaim deleted by hand is what an interruption does. All pods are marked before Karpenter evicts the first one, in
// 95 of 100 rounds at least.
func TestInterruption(t *testing.T) {
	// Ten rounds on a machine that does other things show that the signal is used. The rates are judged over a hundred.
	rounds, intimePercent, earlyPercent := 10, 60, 10
	if os.Getenv("ROLLCALL_FULL") != "" {
		rounds, intimePercent, earlyPercent = 100, 95, 50
	}
	const batch = 10
	a := onStage(t)
	a.pool(small, nil)
	intime, early := 0, 0
	for done := 0; done < rounds; done += batch {
		for i := range batch { // all nodes of a batch come up together
			a.pod(fmt.Sprintf("seat-%d-0", done+i), "", aSeat)
		}
		for i := range batch {
			before, byClaim := a.round(done + i)
			if before {
				intime++
			}
			if byClaim {
				early++
			}
		}
	}
	t.Logf("marks before the first eviction in %d of %d rounds, by the NodeClaim's deletion in %d", intime, rounds, early)
	if early*100 < rounds*earlyPercent {
		t.Errorf("the NodeClaim's deletion, the earlier signal, was acted on in %d of %d rounds only", early, rounds)
	}
	if intime*100 < rounds*intimePercent {
		t.Errorf("marks came before the first eviction in %d of %d rounds only", intime, rounds)
	}
}

// aSeat takes a node for itself among other seats.
func aSeat(pod *corev1.Pod) {
	pod.Labels["seat"] = "one"
	pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"seat": "one"}}, TopologyKey: corev1.LabelHostname,
	}}}}
}

// round interrupts the node of one seat, prints the timeline and tells whether all marks preceded the first eviction,
// and whether the NodeClaim's deletion brought them.
func (a *act) round(number int) (before, byClaim bool) {
	a.Helper()
	seat := fmt.Sprintf("seat-%d-0", number)
	node := a.placed(seat)
	pods := []string{seat}
	for i := 1; i < podsPerNode; i++ {
		pods = append(pods, fmt.Sprintf("seat-%d-%d", number, i))
		a.pod(pods[i], node, nil)
		a.placed(pods[i])
	}
	claim := a.claimOf(node)
	a.deleteClaim(claim)

	start := a.await("the NodeClaim's deletion", isClaim(claim, deleting))
	nodeDeleted := a.await("the Node's deletion", isNode(node, deleting))
	taint := a.await("Karpenter's taint", isNode(node, tainted))
	var lastMark, firstEviction sight
	for _, pod := range pods {
		eviction := a.await("the eviction of "+pod, isPod(pod, evicted))
		if firstEviction.revision == 0 || eviction.revision < firstEviction.revision {
			firstEviction = eviction
		}
		mark := a.await("the mark of "+pod, isPod(pod, marked))
		if mark.revision > lastMark.revision {
			lastMark = mark
		}
		if m := mark.marker; !committed(mark) || m.Node != node || m.Reason != "NoController" || !m.Deadline.IsZero() {
			a.Errorf("round %d: marker of %s: %+v", number, pod, m)
		}
	}
	var line strings.Builder
	fmt.Fprintf(&line, "round %d: NodeClaim deleted 0 ms; Node deleted %d ms; taint %d ms; last of %d marks %d ms; first eviction %d ms",
		number, since(start.at, nodeDeleted), since(start.at, taint), len(pods), since(start.at, lastMark), since(start.at, firstEviction))
	a.Log(line.String())
	return lastMark.revision < firstEviction.revision, lastMark.marker.Cause == karpenter.NodeClaimDeleted
}
