package fate

import (
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// benchTerrain is 5,000 nodes in three zones with four pods each; 100 nodes go, with 20 pods each to be placed.
func benchTerrain(dress func(i int, p *corev1.Pod)) (*terrain, map[string]bool, []*corev1.Pod) {
	var objects []any
	going, moving := map[string]bool{}, []*corev1.Pod{}
	for i := range 5000 {
		name := "n" + strconv.Itoa(i)
		objects = append(objects, readyNode(name, "cpu=16 memory=64Gi pods=110", inZone(string(rune('a'+i%3))), bearing("disk=ssd")))
		count := 4
		if i < 100 {
			going[name], count = true, 20
		}
		for j := range count {
			k := i*20 + j
			p := pod("p"+strconv.Itoa(k), name, asking("cpu=500m memory=1Gi"), labelled("app=web"+strconv.Itoa(k%50)))
			dress(k, p)
			objects = append(objects, p)
			if i < 100 {
				moving = append(moving, p)
			}
		}
	}
	return newTerrain(objects...), going, moving
}

func BenchmarkPlace(b *testing.B) {
	for _, kind := range []struct {
		name  string
		dress func(i int, p *corev1.Pod)
	}{
		{"plain", func(int, *corev1.Pod) {}},
		{"selecting", func(i int, p *corev1.Pod) { affine(expr("disk In ssd,hdd"))(p) }},
		{"apart", func(i int, p *corev1.Pod) { apart(hostKey, "app="+p.Labels["app"])(p) }},
		{"spread", func(i int, p *corev1.Pod) {
			spreading(zoneKey, 5)(p)
			p.Spec.TopologySpreadConstraints[0].LabelSelector.MatchLabels = p.Labels
		}},
		{"stranded", func(i int, p *corev1.Pod) {
			if i < 2000 {
				asking("cpu=20")(p)
			}
		}},
	} {
		w, going, pods := benchTerrain(kind.dress)
		b.Run(kind.name, func(b *testing.B) {
			for b.Loop() {
				if got := place(w, going, pods, Options{}); len(got) != len(pods) {
					b.Fatal(len(got))
				}
			}
		})
	}
	w, _, _ := benchTerrain(func(int, *corev1.Pod) {})
	shared := newPlacer(w, Options{})
	b.Run("one node, shared", func(b *testing.B) {
		for b.Loop() {
			shared.place(map[string]bool{"n7": true}, w.PodsOn("n7"), nil)
		}
	})
}
