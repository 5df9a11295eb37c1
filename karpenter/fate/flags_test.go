package fate

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

func volume(source corev1.VolumeSource) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "v", VolumeSource: source})
	}
}

func emptyDir(medium corev1.StorageMedium) func(*corev1.Pod) {
	return volume(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: medium}})
}

func claimed(name string) func(*corev1.Pod) {
	return volume(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}})
}

func claim(name, volume string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: meta(name), Spec: corev1.PersistentVolumeClaimSpec{VolumeName: volume}}
}

func pv(name string, source corev1.PersistentVolumeSource, terms ...corev1.NodeSelectorTerm) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	v.Spec.PersistentVolumeSource = source
	if terms != nil {
		v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: terms}}
	}
	return v
}

func hosts(names ...string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
		{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: names}}}
}

func tolerates(t corev1.Toleration) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Tolerations = append(p.Spec.Tolerations, t) }
}

func grace(seconds int64) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = &seconds }
}

func startedAgo(d time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.StartTime = &metav1.Time{Time: now.Add(-d)} }
}

func ofWeb(p *corev1.Pod) { p.Labels = map[string]string{"app": "web"} }

func pdb(name string, status policyv1.PodDisruptionBudgetStatus, mods ...func(*policyv1.PodDisruptionBudget)) *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{ObjectMeta: meta(name), Status: status}
	b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	b.Spec.MinAvailable = ptr(intstr.FromInt32(1))
	for _, mod := range mods {
		mod(b)
	}
	return b
}

type mods = []func(*corev1.Pod)

// flagRow is one row of a table of flags: a departure of n1, the pod on it, and what else there is.
type flagRow struct {
	name  string
	d     Departure
	pod   mods
	world []any
	want  []Flag
}

func runFlags(t *testing.T, rows []flagRow) {
	t.Helper()
	for _, tt := range rows {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster(append(tt.world, pod("a", "n1", tt.pod...))...)
			f := fateOf(t, New(c, []Departure{tt.d}, Options{Now: now}), "n1", "a")
			if !slices.Equal(f.Flags, tt.want) {
				t.Errorf("got %v, want %v", f.Flags, tt.want)
			}
		})
	}
}

var (
	n1         = Departure{Node: "n1"}
	karpenter  = Departure{Node: "n1", Karpenter: true}
	everything = corev1.Toleration{Operator: corev1.TolerationOpExists}
)

func TestFlagsOfData(t *testing.T) {
	csi := corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}}
	local := corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/d"}}
	zone := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
		{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}}}
	runFlags(t, []flagRow{
		{"none", n1, nil, nil, nil},
		{"emptyDir", n1, mods{emptyDir("")}, nil, []Flag{EmptyDirData}},
		{"emptyDir in memory", n1, mods{emptyDir(corev1.StorageMediumMemory), emptyDir("HugePages-2Mi")}, nil, nil},
		{"hostPath", n1, mods{volume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}})}, nil, []Flag{HostPathData}},

		{"local PV", n1, mods{claimed("c")}, []any{claim("c", "v"), pv("v", local)}, []Flag{LocalVolume}},
		{"hostPath PV", n1, mods{claimed("c")},
			[]any{claim("c", "v"), pv("v", corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{}})}, []Flag{LocalVolume}},
		{"PV pinned by hostname", n1, mods{claimed("c")}, []any{claim("c", "v"), pv("v", csi, hosts("n1"))}, []Flag{LocalVolume}},
		{"PV of two hosts", n1, mods{claimed("c")}, []any{claim("c", "v"), pv("v", csi, hosts("n1", "n2"))}, nil},
		{"PV of one host or another", n1, mods{claimed("c")}, []any{claim("c", "v"), pv("v", csi, hosts("n1"), hosts("n2"))}, nil},
		{"PV of a zone", n1, mods{claimed("c")}, []any{claim("c", "v"), pv("v", csi, zone)}, nil},
		{"PV without affinity", n1, mods{claimed("c")}, []any{claim("c", "v"), pv("v", csi)}, nil},
		{"claim not bound", n1, mods{claimed("c")}, []any{claim("c", ""), pv("v", local)}, nil},
		{"claim not known", n1, mods{claimed("c")}, nil, nil},
		{"PV not known", n1, mods{claimed("c")}, []any{claim("c", "v")}, nil},
		{"generic ephemeral volume", n1, mods{volume(corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}})},
			[]any{claim("a-v", "v"), pv("v", local)}, nil},
		{"hostname is not the Node's name", n1, mods{claimed("c")}, []any{claim("c", "v"), pv("v", csi, hosts("host-1")),
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{corev1.LabelHostname: "host-1"}}}}, []Flag{LocalVolume}},
	})
}

func TestFlagsOfTheDrain(t *testing.T) {
	noExecute := &corev1.Taint{Key: "node.kubernetes.io/out-of-service", Value: "x", Effect: corev1.TaintEffectNoExecute}
	limited := corev1.Toleration{Key: noExecute.Key, Operator: corev1.TolerationOpExists, TolerationSeconds: ptr[int64](300)}
	notice := Departure{Node: "n1", Notice: 2 * time.Minute, Deadline: now.Add(time.Minute)}
	runFlags(t, []flagRow{
		{"grace beyond the notice", notice, mods{grace(121)}, nil, []Flag{GraceExceedsNotice}},
		{"grace as long as the notice", notice, mods{grace(120)}, nil, nil},
		{"grace of 30s by default", Departure{Node: "n1", Notice: 25 * time.Second}, nil, nil, []Flag{GraceExceedsNotice}},
		{"no notice", n1, mods{grace(9999)}, nil, nil},
		{"a deadline at once", Departure{Node: "n1", Deadline: now}, nil, nil, []Flag{GraceExceedsNotice}},

		{"tolerates all, Karpenter", karpenter, mods{tolerates(everything)}, nil, []Flag{NotEvicted}},
		{"tolerates the taint, Karpenter", karpenter, mods{tolerates(corev1.Toleration{Key: karpv1.DisruptedTaintKey, Operator: "Exists", Effect: "NoSchedule"})},
			nil, []Flag{NotEvicted}},
		{"tolerates the empty value, Karpenter", karpenter, mods{tolerates(corev1.Toleration{Key: karpv1.DisruptedTaintKey})}, nil, []Flag{NotEvicted}},
		{"tolerates NoExecute only, Karpenter", karpenter, mods{tolerates(corev1.Toleration{Operator: "Exists", Effect: "NoExecute"})}, nil, nil},
		{"tolerates all, another drainer", n1, mods{tolerates(everything)}, nil, nil},
		{"tolerates NoExecute", Departure{Node: "n1", NoExecute: noExecute}, mods{tolerates(everything)}, nil, []Flag{NotEvicted}},
		{"tolerates NoExecute for a time", Departure{Node: "n1", NoExecute: noExecute}, mods{tolerates(limited)}, nil, nil},
		{"the first toleration counts", Departure{Node: "n1", NoExecute: noExecute}, mods{tolerates(limited), tolerates(everything)}, nil, nil},
		{"tolerates another NoExecute", Departure{Node: "n1", NoExecute: noExecute},
			mods{tolerates(corev1.Toleration{Key: "node.kubernetes.io/not-ready", Operator: "Exists"})}, nil, nil},

		{"do-not-disrupt", n1, mods{annotated(karpv1.DoNotDisruptAnnotationKey, "true")}, nil, []Flag{DoNotDisrupt}},
		{"do-not-disrupt false", n1, mods{annotated(karpv1.DoNotDisruptAnnotationKey, "false")}, nil, nil},
		{"do-not-disrupt for a time", n1, mods{annotated(karpv1.DoNotDisruptAnnotationKey, "4h"), startedAgo(time.Hour)}, nil, []Flag{DoNotDisrupt}},
		{"do-not-disrupt, time over", n1, mods{annotated(karpv1.DoNotDisruptAnnotationKey, "1h"), startedAgo(time.Hour)}, nil, nil},
		{"do-not-disrupt, not started", n1, mods{annotated(karpv1.DoNotDisruptAnnotationKey, "1h")}, nil, []Flag{DoNotDisrupt}},
		{"do-not-disrupt, no time", n1, mods{annotated(karpv1.DoNotDisruptAnnotationKey, "-1h")}, nil, nil},
		{"safe-to-evict false", n1, mods{annotated(safeToEvictAnnotation, "false")}, nil, []Flag{DoNotDisrupt}},
		{"safe-to-evict true", n1, mods{annotated(safeToEvictAnnotation, "true")}, nil, nil},
	})
}

func TestFlagBlockedByPDB(t *testing.T) {
	none := policyv1.PodDisruptionBudgetStatus{CurrentHealthy: 1, DesiredHealthy: 1}
	some := policyv1.PodDisruptionBudgetStatus{CurrentHealthy: 2, DesiredHealthy: 1, DisruptionsAllowed: 1}
	short := policyv1.PodDisruptionBudgetStatus{CurrentHealthy: 0, DesiredHealthy: 1}
	alwaysAllow := func(b *policyv1.PodDisruptionBudget) {
		b.Spec.UnhealthyPodEvictionPolicy = ptr(policyv1.AlwaysAllow)
	}
	runFlags(t, []flagRow{
		{"PDB without room", n1, mods{ofWeb}, []any{pdb("b", none)}, []Flag{BlockedByPDB}},
		{"PDB with room", n1, mods{ofWeb}, []any{pdb("b", some)}, nil},
		{"two PDBs", n1, mods{ofWeb}, []any{pdb("b", some), pdb("c", some)}, []Flag{BlockedByPDB}},
		{"PDB of other pods", n1, nil, []any{pdb("b", none)}, nil},
		{"PDB of all pods", n1, nil, []any{pdb("b", none, func(b *policyv1.PodDisruptionBudget) { b.Spec.Selector = &metav1.LabelSelector{} })},
			[]Flag{BlockedByPDB}},
		{"PDB of no pods", n1, mods{ofWeb}, []any{pdb("b", none, func(b *policyv1.PodDisruptionBudget) { b.Spec.Selector = nil })}, nil},
		{"PDB of another namespace", n1, mods{ofWeb}, []any{pdb("b", none, func(b *policyv1.PodDisruptionBudget) { b.Namespace = "x" })}, nil},
		{"PDB, Pending", n1, mods{ofWeb, unready, phase(corev1.PodPending)}, []any{pdb("b", none)}, []Flag{Unready}},
		{"PDB, Terminating", n1, mods{ofWeb, terminating}, []any{pdb("b", none)}, []Flag{Terminating}},
		{"PDB, unready, enough healthy", n1, mods{ofWeb, unready}, []any{pdb("b", none)}, []Flag{Unready}},
		{"PDB, unready, too few healthy", n1, mods{ofWeb, unready}, []any{pdb("b", short)}, []Flag{BlockedByPDB, Unready}},
		{"PDB, unready, AlwaysAllow", n1, mods{ofWeb, unready}, []any{pdb("b", short, alwaysAllow)}, []Flag{Unready}},
		{"PDB, ready, AlwaysAllow", n1, mods{ofWeb}, []any{pdb("b", none, alwaysAllow)}, []Flag{BlockedByPDB}},
		{"two PDBs, unready", n1, mods{ofWeb, unready}, []any{pdb("b", some, alwaysAllow), pdb("c", some, alwaysAllow)}, []Flag{BlockedByPDB, Unready}},
	})
}

func TestFlagsOfTheObject(t *testing.T) {
	runFlags(t, []flagRow{
		{"finalizer", n1, mods{finalizer("x/y")}, nil, []Flag{HasFinalizer}},
		{"the Job controller's finalizer", n1, mods{tracked}, nil, nil},
		{"Terminating and unready", n1, mods{terminating, unready}, nil, []Flag{Terminating, Unready}},
		{"no Node owner", n1, mods{annotated(mirrorAnnotation, "h")}, nil, []Flag{NoNodeOwner}},
		{"Node owner", n1, mods{annotated(mirrorAnnotation, "h"), by("/Node n1")}, nil, nil},
		{"Finished has none", karpenter, mods{phase(corev1.PodFailed), emptyDir(""), tolerates(everything), unready, finalizer("x/y")}, nil, nil},
		{"in order", karpenter, mods{unready, tolerates(everything), emptyDir(""), finalizer("x/y")}, nil,
			[]Flag{EmptyDirData, NotEvicted, HasFinalizer, Unready}},
	})
}
