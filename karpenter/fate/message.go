package fate

import "slices"

// message is the ruling's sentence, followed by one short clause where an eviction in time would end differently from the
// machine's death (facts/fate-truth.md section 2). The departure is nil for a pod whose node stays.
func message(r ruling, flags []Flag, d *Departure) string {
	clause := r.evicted
	switch {
	case slices.Contains(flags, NotEvicted):
		clause = "nobody evicts it, because of its tolerations: it dies with the machine"
	case slices.Contains(flags, BlockedByPDB) && clause == "":
		clause = "a PodDisruptionBudget refuses its eviction, but not the machine's death"
	case slices.Contains(flags, DoNotDisrupt) && clause == "" && d != nil && d.Committed:
		clause = "its annotation against disruption does not keep the machine"
	}
	if clause == "" {
		return r.why
	}
	return r.why + "; " + clause
}
