package fate

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const zoneKey, hostKey = corev1.LabelTopologyZone, corev1.LabelHostname

func inZone(zone string) func(*corev1.Node) { return bearing(zoneKey + "=" + zone) }

// near is a required affinity term to pods with the labels.
func near(key, match string, mods ...func(*corev1.PodAffinityTerm)) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		a := affinityOf(p)
		if a.PodAffinity == nil {
			a.PodAffinity = &corev1.PodAffinity{}
		}
		terms := &a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		*terms = append(*terms, term(key, match, mods))
	}
}

// apart is a required anti-affinity term.
func apart(key, match string, mods ...func(*corev1.PodAffinityTerm)) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		a := affinityOf(p)
		if a.PodAntiAffinity == nil {
			a.PodAntiAffinity = &corev1.PodAntiAffinity{}
		}
		terms := &a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		*terms = append(*terms, term(key, match, mods))
	}
}

func term(key, match string, mods []func(*corev1.PodAffinityTerm)) corev1.PodAffinityTerm {
	t := corev1.PodAffinityTerm{TopologyKey: key, LabelSelector: &metav1.LabelSelector{MatchLabels: pairs(match)}}
	for _, mod := range mods {
		mod(&t)
	}
	return t
}

func namespaces(ns ...string) func(*corev1.PodAffinityTerm) {
	return func(t *corev1.PodAffinityTerm) { t.Namespaces = ns }
}

func namespacesWith(labels string) func(*corev1.PodAffinityTerm) {
	return func(t *corev1.PodAffinityTerm) {
		t.NamespaceSelector = &metav1.LabelSelector{MatchLabels: pairs(labels)}
	}
}

func TestPlaceAffinity(t *testing.T) {
	cache, db := labelled("app=cache"), labelled("app=db")
	twoZones := []any{node("n1"), readyNode("n2", "", inZone("a")), readyNode("n3", "", inZone("b"))}
	with := func(objects ...any) []any { return append(append([]any{}, twoZones...), objects...) }
	other := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other", Labels: pairs("team=x")}}
	runPlacement(t, []placementRow{
		{name: "beside a pod of the host", objects: with(pod("c", "n3", cache), p(near(hostKey, "app=cache"))), want: FitsNow, why: "n3"},
		{name: "beside a pod of the zone", objects: with(pod("c", "n3", cache), p(near(zoneKey, "app=cache"))), want: FitsNow, why: "n3"},
		{name: "nobody there", objects: with(p(near(zoneKey, "app=cache"))), want: NoPlace, why: "needs pods beside it that are not there (affinity by " + zoneKey},
		{name: "the only one was on the going node", objects: with(pod("c", "n9", cache), p(near(zoneKey, "app=cache"))), want: NoPlace},
		{name: "Terminating still counts", objects: with(pod("c", "n2", cache, terminating), p(near(zoneKey, "app=cache"))), want: FitsNow, why: "n2"},
		{name: "finished does not", objects: with(pod("c", "n2", cache, phase(corev1.PodSucceeded)), p(near(zoneKey, "app=cache"))), want: NoPlace},
		{name: "first of its own group", objects: with(p(labelled("app=web"), near(zoneKey, "app=web"))), want: FitsNow},
		{name: "first of its group, but no such domain", objects: with(p(labelled("app=web"), near("rack", "app=web"))), want: NoPlace},
		{name: "both terms in one pod", objects: with(pod("c", "n2", labelled("app=cache tier=hot")), p(near(zoneKey, "app=cache"), near(hostKey, "tier=hot"))), want: FitsNow, why: "n2"},
		{name: "each term in another pod", objects: with(pod("c", "n2", cache), pod("d", "n2", labelled("tier=hot")), p(near(zoneKey, "app=cache"), near(hostKey, "tier=hot"))), want: NoPlace},
		{name: "another namespace", objects: with(pod("c", "n2", cache, inNamespace("other")), p(near(zoneKey, "app=cache"))), want: NoPlace},
		{name: "a named namespace", objects: with(pod("c", "n2", cache, inNamespace("other")), p(near(zoneKey, "app=cache", namespaces("other")))), want: FitsNow},
		{name: "a selected namespace", objects: with(other, pod("c", "n2", cache, inNamespace("other")), p(near(zoneKey, "app=cache", namespacesWith("team=x")))), want: FitsNow},
		{name: "a namespace that is not selected", objects: with(other, pod("c", "n2", cache, inNamespace("other")), p(near(zoneKey, "app=cache", namespacesWith("team=y")))), want: NoPlace},
		{name: "a namespace by its own name", objects: with(pod("c", "n2", cache, inNamespace("other")), p(near(zoneKey, "app=cache", namespacesWith("kubernetes.io/metadata.name=other")))), want: FitsNow},
		{name: "all namespaces", objects: with(pod("c", "n2", cache, inNamespace("other")), p(near(zoneKey, "app=cache", namespacesWith("")))), want: FitsNow},
		{name: "no selector selects nobody", objects: with(pod("c", "n2", cache), p(near(zoneKey, "", func(t *corev1.PodAffinityTerm) { t.LabelSelector = nil }))), want: NoPlace},
		{name: "matchLabelKeys", objects: with(pod("c", "n2", labelled("app=web rev=1")), p(labelled("rev=2"), near(zoneKey, "app=web", func(t *corev1.PodAffinityTerm) { t.MatchLabelKeys = []string{"rev"} }))), want: NoPlace},
		{name: "mismatchLabelKeys", objects: with(pod("c", "n2", labelled("app=web rev=1")), p(labelled("rev=1"), near(zoneKey, "app=web", func(t *corev1.PodAffinityTerm) { t.MismatchLabelKeys = []string{"rev"} }))), want: NoPlace},
		{name: "follows a pod that is seated after it", objects: with(pod("c", "n1", cache, asking("cpu=1")), p(asking("cpu=2"), near(hostKey, "app=cache"))), want: FitsNow},

		{name: "apart by host", objects: with(pod("d", "n2", db), p(apart(hostKey, "app=db"))), want: FitsNow, why: "n3"},
		{name: "apart from all", objects: with(pod("d", "n2", db), pod("e", "n3", db), p(apart(hostKey, "app=db"))), want: NoPlace, why: "must not be beside pod ns/d on n2"},
		{name: "apart by zone", objects: []any{node("n1"), readyNode("n2", "", inZone("a")), readyNode("n3", "", inZone("a")), pod("d", "n2", db), p(apart(zoneKey, "app=db"))}, want: NoPlace},
		{name: "a node without the key has no domain", objects: []any{node("n1"), readyNode("n2", "", inZone("a")), readyNode("n3", ""), pod("d", "n2", db), p(apart(zoneKey, "app=db"))}, want: FitsNow, why: "n3"},
		{name: "one of two terms is enough", objects: []any{node("n1"), readyNode("n2", ""), pod("d", "n2", db), p(apart(hostKey, "app=x"), apart(hostKey, "app=db"))}, want: NoPlace},
		{name: "it counted only where it was", objects: []any{node("n1"), readyNode("n2", ""), p(db, apart(hostKey, "app=db"))}, want: FitsNow},
		{name: "refused by those there", objects: []any{node("n1"), readyNode("n2", ""), pod("d", "n2", apart(hostKey, "app=web")), p(labelled("app=web"))}, want: NoPlace, why: "pod ns/d refuses it on n2"},
		{name: "refused in the whole zone", objects: []any{node("n1"), readyNode("n2", "", inZone("a")), readyNode("n3", "", inZone("a")), pod("d", "n2", apart(zoneKey, "app=web")), p(labelled("app=web"))}, want: NoPlace},
		{name: "refused from another namespace", objects: []any{node("n1"), readyNode("n2", ""), pod("d", "n2", inNamespace("other"), apart(hostKey, "app=web", namespaces("ns"))), p(labelled("app=web"))}, want: NoPlace},
		{name: "not refused: their namespace only", objects: []any{node("n1"), readyNode("n2", ""), pod("d", "n2", inNamespace("other"), apart(hostKey, "app=web")), p(labelled("app=web"))}, want: FitsNow},
		{name: "refused by one seated before", objects: []any{node("n1"), readyNode("n2", ""), pod("d", "n1", priority(1), apart(hostKey, "app=web")), p(labelled("app=web"))}, want: NoPlace, why: "pod ns/d refuses it"},
	})
}

// spreading adds a DoNotSchedule constraint over app=web.
func spreading(key string, skew int32, mods ...func(*corev1.TopologySpreadConstraint)) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		c := corev1.TopologySpreadConstraint{
			TopologyKey: key, MaxSkew: skew, WhenUnsatisfiable: corev1.DoNotSchedule,
			LabelSelector: &metav1.LabelSelector{MatchLabels: pairs("app=web")},
		}
		for _, mod := range mods {
			mod(&c)
		}
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, c)
	}
}

func TestPlaceSpread(t *testing.T) {
	web := labelled("app=web")
	honor, ignore := corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore
	a, b := readyNode("n2", "", inZone("a")), readyNode("n3", "", inZone("b"))
	full := readyNode("n3", "pods=0", inZone("b"))
	dedicated := readyNode("n3", "", inZone("b"), tainted("x", "", corev1.TaintEffectNoSchedule))
	there := func(name, node string, mods ...func(*corev1.Pod)) *corev1.Pod {
		return pod(name, node, append([]func(*corev1.Pod){web}, mods...)...)
	}
	soft := func(c *corev1.TopologySpreadConstraint) { c.WhenUnsatisfiable = corev1.ScheduleAnyway }
	runPlacement(t, []placementRow{
		{name: "the emptier zone", objects: []any{node("n1"), a, b, there("w", "n2"), p(web, spreading(zoneKey, 1))}, want: FitsNow, why: "n3"},
		{name: "the emptier zone has no room", objects: []any{node("n1"), a, full, there("w", "n2"), p(web, spreading(zoneKey, 1))}, want: NoPlace, why: "against its topology spread"},
		{name: "a larger skew", objects: []any{node("n1"), a, full, there("w", "n2"), p(web, spreading(zoneKey, 2))}, want: FitsNow, why: "n2"},
		{name: "ScheduleAnyway is no rule", objects: []any{node("n1"), a, full, there("w", "n2"), p(web, spreading(zoneKey, 1, soft))}, want: FitsNow},
		{name: "does not count itself", objects: []any{node("n1"), a, full, there("w", "n2"), p(spreading(zoneKey, 1))}, want: FitsNow},
		{name: "Terminating pods do not count", objects: []any{node("n1"), a, full, there("w", "n2", terminating), p(web, spreading(zoneKey, 1))}, want: FitsNow},
		{name: "pods of other namespaces do not count", objects: []any{node("n1"), a, full, there("w", "n2", inNamespace("other")), p(web, spreading(zoneKey, 1))}, want: FitsNow},
		{name: "the going node is no domain", objects: []any{readyNode("n1", "", inZone("b")), a, there("w", "n2"), p(web, spreading(zoneKey, 1))}, want: FitsNow},
		{name: "a cordoned node is one", objects: []any{node("n1"), a, readyNode("n3", "", inZone("b"), cordoned), there("w", "n2"), p(web, spreading(zoneKey, 1))}, want: NoPlace},
		{name: "a cordoned node is none where taints count", objects: []any{node("n1"), a, readyNode("n3", "", inZone("b"), cordoned), there("w", "n2"),
			p(web, spreading(zoneKey, 1, func(c *corev1.TopologySpreadConstraint) { c.NodeTaintsPolicy = &honor }))}, want: FitsNow},
		{name: "tainted nodes count", objects: []any{node("n1"), a, dedicated, there("w", "n2"), p(web, spreading(zoneKey, 1))}, want: NoPlace},
		{name: "tainted nodes do not where taints are honored", objects: []any{node("n1"), a, dedicated, there("w", "n2"),
			p(web, spreading(zoneKey, 1, func(c *corev1.TopologySpreadConstraint) { c.NodeTaintsPolicy = &honor }))}, want: FitsNow},
		{name: "nodes that it does not select do not count", objects: []any{node("n1"), readyNode("n2", "", inZone("a"), bearing("disk=ssd")), b, there("w", "n2"),
			p(web, selecting("disk=ssd"), spreading(zoneKey, 1))}, want: FitsNow},
		{name: "they do where affinity is ignored", objects: []any{node("n1"), readyNode("n2", "", inZone("a"), bearing("disk=ssd")), b, there("w", "n2"),
			p(web, selecting("disk=ssd"), spreading(zoneKey, 1, func(c *corev1.TopologySpreadConstraint) { c.NodeAffinityPolicy = &ignore }))}, want: NoPlace},
		{name: "minDomains", objects: []any{node("n1"), a, there("w", "n2"), p(web, spreading(zoneKey, 1, func(c *corev1.TopologySpreadConstraint) { c.MinDomains = ptr[int32](2) }))}, want: NoPlace},
		{name: "minDomains reached", objects: []any{node("n1"), a, b, p(web, spreading(zoneKey, 1, func(c *corev1.TopologySpreadConstraint) { c.MinDomains = ptr[int32](2) }))}, want: FitsNow},
		{name: "matchLabelKeys", objects: []any{node("n1"), a, full, pod("w", "n2", labelled("app=web rev=1")),
			p(labelled("app=web rev=2"), spreading(zoneKey, 1, func(c *corev1.TopologySpreadConstraint) { c.MatchLabelKeys = []string{"rev"} }))}, want: FitsNow},
		{name: "a node without the key", objects: []any{node("n1"), readyNode("n2", ""), p(web, spreading(zoneKey, 1))}, want: NoPlace, why: "topology spread over " + zoneKey},
		{name: "by host", objects: []any{node("n1"), a, full, there("w", "n2"), p(web, spreading(hostKey, 1))}, want: NoPlace},
		{name: "evened out by a pod seated after it", objects: []any{node("n1"), a, readyNode("n3", "cpu=1", inZone("b")), there("w", "n2"), pod("small", "n1", web, asking("cpu=1")), p(web, asking("cpu=2"), spreading(zoneKey, 1))}, want: FitsNow, why: "n2"},
	})
}

func TestPlaceVolumes(t *testing.T) {
	using := func(name string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			v := corev1.Volume{Name: "data"}
			v.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}
			p.Spec.Volumes = append(p.Spec.Volumes, v)
		}
	}
	claim := func(mods ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
		c := &corev1.PersistentVolumeClaim{ObjectMeta: meta("data-p")}
		c.Spec.VolumeName, c.Status.Phase = "pv", corev1.ClaimBound
		for _, mod := range mods {
			mod(c)
		}
		return c
	}
	volume := func(mods ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
		v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
		for _, mod := range mods {
			mod(v)
		}
		return v
	}
	at := func(terms ...corev1.NodeSelectorTerm) func(*corev1.PersistentVolume) {
		return func(v *corev1.PersistentVolume) {
			v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: terms}}
		}
	}
	labels := func(s string) func(*corev1.PersistentVolume) {
		return func(v *corev1.PersistentVolume) { v.Labels = pairs(s) }
	}
	local := func(v *corev1.PersistentVolume) { v.Spec.Local = &corev1.LocalVolumeSource{Path: "/d"} }
	alone := func(c *corev1.PersistentVolumeClaim) {
		c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	}
	deleted := func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{Time: now} }
	lost := func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimLost }
	n1, n2 := readyNode("n1", "", inZone("b")), readyNode("n2", "", inZone("a"))
	owner := using("data-p")
	runPlacement(t, []placementRow{
		{name: "a volume of the zone", objects: []any{n1, n2, claim(), volume(at(expr(zoneKey + " In a"))), p(owner)}, want: FitsNow},
		{name: "a volume of another zone", objects: []any{n1, n2, claim(), volume(at(expr(zoneKey + " In b"))), p(owner)}, want: NoPlace,
			why: "needs zone b for volume data; no Ready node there, no NodePool"},
		{name: "terms are alternatives", objects: []any{n1, n2, claim(), volume(at(expr(zoneKey+" In b"), expr(zoneKey+" In a"))), p(owner)}, want: FitsNow},
		{name: "a local volume", objects: []any{n1, n2, nodePool("any"), claim(), volume(local, at(expr(hostKey+" In n1"))), p(owner)}, want: NoPlace, why: "volume data is on the disk of n1"},
		{name: "zone labels of the volume", objects: []any{n1, n2, claim(), volume(labels(zoneKey + "=b__c")), p(owner)}, want: NoPlace, why: "needs zone b or c"},
		{name: "old zone labels", objects: []any{n1, n2, claim(), volume(labels("failure-domain.beta.kubernetes.io/zone=a")), p(owner)}, want: FitsNow},
		{name: "a cluster without zones", objects: []any{n1, readyNode("n2", ""), claim(), volume(labels(zoneKey + "=b")), p(owner)}, want: FitsNow},
		{name: "a claim that was not given", objects: []any{n1, n2, p(owner)}, want: FitsNow},
		{name: "a volume that was not given", objects: []any{n1, n2, claim(), p(owner)}, want: FitsNow},
		{name: "a claim without a volume", objects: []any{n1, n2, claim(func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "" }), p(owner)}, want: FitsNow},
		{name: "a lost claim", objects: []any{n1, n2, claim(lost), p(owner)}, want: NoPlace, why: "has lost its PersistentVolume pv"},
		{name: "a claim that is being deleted", objects: []any{n1, n2, claim(deleted), p(owner)}, want: NoPlace, why: "claim data-p of volume data is being deleted"},
		{name: "which its StatefulSet makes anew", objects: []any{n1, n2, claim(deleted), volume(at(expr(zoneKey + " In b"))), p(owner, by("apps/StatefulSet s"))}, want: FitsNow},
		{name: "ReadWriteOncePod, in use", objects: []any{n1, n2, claim(alone), pod("q", "n2", owner), p(owner)}, want: NoPlace, why: "claim data-p is ReadWriteOncePod and in use by pod ns/q"},
		{name: "ReadWriteOncePod, used by itself", objects: []any{n1, n2, claim(alone), p(owner)}, want: FitsNow},
		{name: "ReadWriteOncePod, taken by one seated before", objects: []any{n1, n2, claim(alone), pod("q", "n1", owner, priority(1)), p(owner)}, want: NoPlace, why: "in use by pod ns/q"},
		{name: "ReadWriteOncePod of a finished pod", objects: []any{n1, n2, claim(alone), pod("q", "n2", owner, phase(corev1.PodSucceeded)), p(owner)}, want: FitsNow},
		{name: "shared claims are no obstacle", objects: []any{n1, n2, claim(), pod("q", "n2", owner), p(owner)}, want: FitsNow},
		{name: "a generic ephemeral volume pins nothing", objects: []any{n1, n2, claim(), volume(at(expr(zoneKey + " In b"))), p(func(p *corev1.Pod) {
			v := corev1.Volume{Name: "data"}
			v.Ephemeral = &corev1.EphemeralVolumeSource{}
			p.Spec.Volumes = []corev1.Volume{v}
		})}, want: FitsNow},
	})
}
