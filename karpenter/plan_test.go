package karpenter

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/karpenter/fate"
)

// A family answers who owns a pod, by the owner's UID.
type family struct {
	fate.World
	found map[types.UID]metav1.Object
	gone  map[types.UID]bool
}

func (f family) Owner(_ string, ref metav1.OwnerReference) (metav1.Object, fate.Presence) {
	switch object := f.found[ref.UID]; {
	case object != nil:
		return object, fate.Found
	case f.gone[ref.UID]:
		return nil, fate.Gone
	}
	return nil, fate.Unknown
}

func childOf(uid string, mark string, owners ...types.UID) *corev1.Pod {
	pod := markedPod(uid, mark, false)
	for _, owner := range owners {
		pod.OwnerReferences = append(pod.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: string(owner), UID: owner})
	}
	return pod
}

// The marker of a pod whose owner pod dies stays until the garbage collector comes.
func TestDoomedKeepTheirMarkers(t *testing.T) {
	costs := func(reason fate.Reason) string {
		marker := aMarker()
		marker.Reason = reason
		return marker.String()
	}
	mark := costs(fate.OwnerPodLost)
	terminating := markedPod("terminating", "", true)
	world := family{
		found: map[types.UID]metav1.Object{
			"alive": markedPod("alive", "", false), "terminating": terminating,
			"child": childOf("child", "", "gone"), "sibling": childOf("sibling", "", "gone", "child"),
			"circle": childOf("circle", "", "u"), "set": aReplicaSet("set"),
		},
		gone: map[types.UID]bool{"gone": true},
	}
	finished := childOf("u", mark, "gone")
	finished.Status.Phase = corev1.PodSucceeded
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		kept bool
	}{
		"its driver is gone":                {childOf("u", mark, "gone"), true},
		"its driver is being deleted":       {childOf("u", mark, "terminating"), true},
		"both":                              {childOf("u", mark, "gone", "terminating"), true},
		"the driver's driver is gone":       {childOf("u", mark, "child"), true},
		"the driver's driver, by two ways":  {childOf("u", mark, "child", "sibling"), true},
		"its driver lives":                  {childOf("u", mark, "alive"), false},
		"another owner lives":               {childOf("u", mark, "gone", "alive"), false},
		"an owner that is no pod lives":     {childOf("u", mark, "gone", "set"), false},
		"it is not known":                   {childOf("u", mark, "unknown"), false},
		"a circle":                          {childOf("u", mark, "circle"), false},
		"orphaned":                          {childOf("u", mark), false},
		"of another reason":                 {childOf("u", costs(fate.JobWillNotRetry), "gone"), false},
		"forged":                            {childOf("u", mark+" ", "gone"), false},
		"not marked":                        {childOf("u", "", "gone"), false},
		"it came to its own end before":     {finished, false},
		"the verdict has its own marker":    {childOf("wanted", mark, "gone"), false},
		"its driver is gone, by many links": {childOf("u", mark, "gone", "child", "sibling", "terminating"), true},
	} {
		t.Run(name, func(t *testing.T) {
			own := aMarker()
			want := map[types.UID]Marker{"wanted": own}
			keepDoomed(world, []*corev1.Pod{tc.pod}, want, markOf)
			if kept, is := want["u"]; is != tc.kept || is && kept.String() != mark {
				t.Errorf("kept %v %v, want %v", is, kept, tc.kept)
			}
			if want["wanted"] != own {
				t.Errorf("the verdict's marker is %v now", want["wanted"])
			}
			if tc.kept && len(plan([]*corev1.Pod{tc.pod}, want, markOf)) > 0 {
				t.Error("written again")
			}
		})
	}
}
