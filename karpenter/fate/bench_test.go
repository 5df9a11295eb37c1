package fate

import (
	"fmt"
	"testing"
)

// fleet is a cluster of nodes with 20 pods each: ReplicaSets of 50, StatefulSets of 10, Jobs of 100 over many nodes, a
// DaemonSet, and a bare pod on each.
func fleet(nodes int) (*cluster, []string) {
	var objects []any
	var names []string
	for i := range nodes {
		name := fmt.Sprintf("node-%04d", i)
		names = append(names, name)
		objects = append(objects, node(name), pod(fmt.Sprintf("bare-%d", i), name))
		for k := range 12 {
			at := i*12 + k
			objects = append(objects, pod(fmt.Sprintf("rs%d-%d", at/50, at), name, by(fmt.Sprintf("apps/ReplicaSet rs%d", at/50)), ofWeb, emptyDir("")))
			if at%50 == 0 {
				objects = append(objects, replicaSet(fmt.Sprintf("rs%d", at/50), 50))
			}
		}
		for k := range 3 {
			at := i*3 + k
			objects = append(objects, pod(fmt.Sprintf("s%d-%d", at/10, at%10), name, by(fmt.Sprintf("apps/StatefulSet s%d", at/10))))
			if at%10 == 0 {
				objects = append(objects, statefulSet(fmt.Sprintf("s%d", at/10), 10))
			}
		}
		for k := range 4 {
			j := (i*4 + k) % (nodes/25 + 1)
			objects = append(objects, pod(fmt.Sprintf("j%d-%d-%d", j, i, k), name, by(fmt.Sprintf("batch/Job j%d", j)), tracked))
		}
	}
	for j := range nodes/25 + 1 {
		objects = append(objects, job(fmt.Sprintf("j%d", j), size(1000, 100), backoff(int32(min(j%10, 1))*6))) // one in ten has no retries
	}
	return newCluster(objects...), names
}

// BenchmarkRoll is the standing answer (DESIGN.md section 5): for each of 5,000 nodes with 20 pods, what becomes of its
// pods if it went too, without placement.
func BenchmarkRoll(b *testing.B) {
	askEach(b, func(r *Roll, node string) []Fate { return r.On(node) })
}

// BenchmarkCollateral asks the same of the pods on other nodes.
func BenchmarkCollateral(b *testing.B) {
	askEach(b, func(r *Roll, node string) []Fate { return r.Collateral(node) })
}

func askEach(b *testing.B, answer func(*Roll, string) []Fate) {
	c, nodes := fleet(5000)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		base := New(c, goes(nodes[:10]...), Options{Now: now})
		pods := 0
		for _, n := range nodes {
			pods += len(answer(base.With(Departure{Node: n}), n))
		}
		b.ReportMetric(float64(pods), "pods/op")
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(nodes)), "ns/node")
}

// BenchmarkWith is the question for a single node on top of an answer that stands.
func BenchmarkWith(b *testing.B) {
	c, nodes := fleet(1000)
	base := New(c, goes(nodes[:10]...), Options{Now: now})
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		n := nodes[i%len(nodes)]
		base.With(Departure{Node: n}).On(n)
	}
}
