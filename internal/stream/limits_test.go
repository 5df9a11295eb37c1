package stream

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

// worst is a text as long as any, all of which JSON escapes.
func worst(id string) string { return id + strings.Repeat(`"`, maxText-len(id)) }

// fullHub has every bound reached: of rows with small texts, or of text.
func fullHub(t *testing.T, text func(id string) string) *Hub {
	t.Helper()
	hub := NewHub(Server{Boot: worst("b")}, (&at{begin}).Now)
	verdicts := map[string]int{"Lost": math.MaxInt, "Stranded": math.MaxInt, "Unsure": math.MaxInt, "Returns": math.MaxInt}
	const many = math.MaxInt64
	for i := range podsLimit.rows + 1 {
		id := fmt.Sprint(i)
		big := text(id)
		pods := make([]*StandingPod, 10)
		for n := range pods {
			pods[n] = &StandingPod{Namespace: id, Name: id, Verdict: "Stranded", Reason: "OwnerIsNoController", Message: big}
		}
		hub.Put(Content{
			Keys: []*Key{{ID: big, Kind: "node", State: BackingOff, Since: begin, Until: begin, Class: "Committed", Kill: begin, Again: true, LastError: big,
				Added: many, DedupedQueued: many, DedupedRun: many, Started: many, Failed: many, Failures: math.MaxInt, LastDuration: time.Duration(many)}},
			Going:    []*GoingNode{{Name: id, State: "Committed", Cause: big, Shown: big, Since: begin, Deadline: begin, NodePool: id, NodeClaim: id, WaitsWhy: big, Verdicts: verdicts}},
			Pods:     []*Pod{{UID: id, Namespace: id, Name: id, Node: id, Verdict: "Lost", Reason: "NoController", Certainty: "Certain", Flags: []string{"EmptyDirData"}, Message: big}},
			Coming:   []*ComingNode{{ID: id, Node: id, Created: begin, Launched: begin, Registered: begin, Initialized: begin, Held: true, WaitsWhy: big, Message: big, Missing: []string{big, big}}},
			Standing: []*Standing{{Node: id, CapacityType: "spot", Verdicts: verdicts, Pods: pods}},
		})
		hub.Decide(&Decision{Time: begin, What: "would release", Object: big, Node: big, Verdict: "Lost", Reason: big, Cause: big, Why: big})
	}
	for i, name := range tableNames {
		if hub.left[i] == 0 {
			t.Fatalf("the table of %s is not full", name)
		}
	}
	return hub
}

// The snapshot of a full hub is one that a client reads: its lines are bounded too.
func TestFullSnapshotFits(t *testing.T) {
	for name, text := range map[string]func(string) string{"rows": func(id string) string { return id }, "text": worst} {
		line, err := json.Marshal(mustAttach(t, fullHub(t, text)).next(begin))
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("full of %s: %.1f MiB", name, float64(len(line))/(1<<20))
		if len(line) >= maxLine {
			t.Errorf("full of %s, a snapshot has %d bytes; a client reads %d", name, len(line), maxLine)
		}
	}
}
