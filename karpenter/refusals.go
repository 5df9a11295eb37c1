package karpenter

import (
	"log/slog"
	"sync"
	"time"
)

// refusalPeriod is how often one missing right is reported: a person has time to mend the role before the next line.
const refusalPeriod = time.Minute

// refusals reports missing rights, each once in refusalPeriod, however many writes fail for it. Safe for concurrent use.
type refusals struct {
	clock func() time.Time

	mu   sync.Mutex
	last map[string]time.Time // guarded by mu; by verb and resource
}

func newRefusals(clock func() time.Time) *refusals {
	return &refusals{clock: clock, last: map[string]time.Time{}}
}

// report says that the verb on the resource was refused. The namespace is only an example: the right is cluster-wide.
func (r *refusals) report(verb, resource, namespace string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock()
	if last, told := r.last[verb+" "+resource]; told && now.Sub(last) < refusalPeriod {
		return
	}
	r.last[verb+" "+resource] = now
	slog.Error("not allowed to "+verb+" "+resource+": add the verb \""+verb+"\" on the resource \""+resource+
		"\" to rollcall's ClusterRole; everything else goes on", "verb", verb, "resource", resource, "namespace", namespace, "error", err)
}
