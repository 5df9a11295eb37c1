package kubelet

import (
	"slices"
	"time"

	"github.com/rollcall-dev/rollcall/readiness"
)

// losses holds back the loss of pods. A kubelet lists a pod less for a moment while its manifest is replaced, or until a
// source is read; without the pod the node would be released. Additions and changes only hold a node: they count at once.
type losses struct {
	window  time.Duration         // how long lists must have lacked a pod until it is lost
	pods    []readiness.StaticPod // as returned last
	missing map[string]time.Time  // by key, since when the lists have lacked a pod that was returned
}

// take returns what the list read at now says, and with it the pods whose loss is not confirmed yet.
func (l *losses) take(list []readiness.StaticPod, now time.Time) []readiness.StaticPod {
	listed := map[string]bool{}
	for _, pod := range list {
		listed[pod.Key()] = true
	}
	pods, missing := slices.Clone(list), map[string]time.Time{}
	for _, pod := range l.pods {
		key := pod.Key()
		if listed[key] {
			continue
		}
		since, before := l.missing[key]
		if !before {
			since = now
		}
		if now.Sub(since) < l.window {
			missing[key] = since
			pods = append(pods, pod)
		}
	}
	l.pods, l.missing = pods, missing
	return pods
}

// restart makes the next list that lacks a pod the first one: those before it were another kubelet's.
func (l *losses) restart() { l.missing = nil }
