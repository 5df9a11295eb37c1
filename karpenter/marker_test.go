package karpenter

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/domain"
	"github.com/rollcall-dev/rollcall/karpenter/fate"
)

func aMarker() Marker {
	d := Disruption{
		State: Committed, Cause: "aws-node-termination-handler/spot-itn",
		Since:    time.Date(2026, 12, 1, 20, 0, 0, 999, time.FixedZone("CET", 3600)),
		Deadline: time.Date(2026, 12, 1, 19, 2, 0, 0, time.UTC),
	}
	return markerFor(fate.Fate{Verdict: fate.Lost, Reason: fate.NoController}, "n1", d)
}

func TestMarkerText(t *testing.T) {
	const want = `{"verdict":"Lost","reason":"NoController","state":"Committed","cause":"aws-node-termination-handler/spot-itn","node":"n1","since":"2026-12-01T19:00:00Z","deadline":"2026-12-01T19:02:00Z"}`
	marker := aMarker()
	if got := marker.String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if back, ok := ParseMarker(want); !ok || back != marker {
		t.Errorf("reads back as %+v, %v", back, ok)
	}
	marker.Deadline = time.Time{}
	const open = `{"verdict":"Lost","reason":"NoController","state":"Committed","cause":"aws-node-termination-handler/spot-itn","node":"n1","since":"2026-12-01T19:00:00Z"}`
	if got := marker.String(); got != open {
		t.Errorf("without a deadline: got  %s\nwant %s", got, open)
	}
}

func TestParseMarkerRefuses(t *testing.T) {
	text := aMarker().String()
	for name, forged := range map[string]string{
		"empty":           "",
		"no JSON":         "yes",
		"a space more":    " " + text,
		"a field more":    text[:len(text)-1] + `,"by":"me"}`,
		"a field less":    `{"verdict":"Lost"}`,
		"a list":          "[" + text + "]",
		"fractional time": `{"verdict":"Lost","reason":"","state":"","cause":"","node":"","since":"2026-12-01T19:00:00.0Z"}`,
	} {
		if _, ok := ParseMarker(forged); ok {
			t.Errorf("%s: taken for a marker: %s", name, forged)
		}
	}
}

// FuzzParseMarker: no text makes it panic, and what it accepts is what String would write.
func FuzzParseMarker(f *testing.F) {
	f.Add(aMarker().String())
	f.Add(`{"since":"9999-12-31T23:59:59Z"}`)
	f.Fuzz(func(t *testing.T, text string) {
		if marker, ok := ParseMarker(text); ok && marker.String() != text {
			t.Errorf("%q reads as %q", text, marker)
		}
	})
}

func markedPod(uid, mark string, deleted bool) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p-" + uid, UID: types.UID(uid)}}
	if mark != "" {
		pod.Annotations = map[string]string{domain.AtRisk: mark}
	}
	if deleted {
		pod.DeletionTimestamp = &metav1.Time{Time: now}
	}
	return pod
}

func TestPlan(t *testing.T) {
	marker := aMarker()
	right := marker.String()
	for name, tc := range map[string]struct {
		mark    string
		deleted bool
		wanted  bool
		writes  bool
		text    string
	}{
		"healthy":                    {},
		"to be marked":               {wanted: true, writes: true, text: right},
		"marked and right":           {mark: right, wanted: true},
		"marked and wrong":           {mark: `{"verdict":"Lost"}`, wanted: true, writes: true, text: right},
		"forged, a space more":       {mark: right + " ", wanted: true, writes: true, text: right},
		"to be cleared":              {mark: right, writes: true},
		"forged on a healthy node":   {mark: "x", writes: true},
		"kept while terminating":     {mark: right, deleted: true},
		"terminating, not marked":    {deleted: true},
		"terminating, to be marked":  {deleted: true, wanted: true, writes: true, text: right},
		"terminating, other content": {mark: "x", deleted: true, wanted: true, writes: true, text: right},
	} {
		t.Run(name, func(t *testing.T) {
			want := map[types.UID]Marker{"other": marker}
			if tc.wanted {
				want["u"] = marker
			}
			writes := plan([]*corev1.Pod{markedPod("u", tc.mark, tc.deleted)}, want, markOf)
			if (len(writes) == 1) != tc.writes || tc.writes && writes[0].text != tc.text {
				t.Errorf("got %+v, want a write %v of %q", writes, tc.writes, tc.text)
			}
			for _, w := range marksOnly(writes) {
				if w.text == "" {
					t.Error("a removal among marks only")
				}
			}
		})
	}
}

// An empty annotation is a marker too, one that must go.
func TestPlanClearsEmptyMarker(t *testing.T) {
	pod := markedPod("u", "x", false)
	pod.Annotations[domain.AtRisk] = ""
	if writes := plan([]*corev1.Pod{pod}, nil, markOf); len(writes) != 1 {
		t.Errorf("got %+v, want one write", writes)
	}
}
