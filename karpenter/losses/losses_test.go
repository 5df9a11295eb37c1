package losses

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
)

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

func recordIn(state v1alpha1.LossState) *v1alpha1.PodLoss {
	return &v1alpha1.PodLoss{Status: v1alpha1.PodLossStatus{State: state}}
}

func TestDecide(t *testing.T) {
	alive := &corev1.Pod{}
	terminating := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: noon}}}
	evicted := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed, Conditions: []corev1.PodCondition{
		{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}}}
	none := (*v1alpha1.PodLoss)(nil)
	opened, closed, withdrawn := recordIn(v1alpha1.Open), recordIn(v1alpha1.Closed), recordIn(v1alpha1.Withdrawn)
	marked, cleared := told{marked: true}, told{cleared: true}
	lost, finished := told{marked: true, ending: Lost}, told{marked: true, ending: Finished}

	for name, tc := range map[string]struct {
		record *v1alpha1.PodLoss
		pod    *corev1.Pod
		bears  bool
		told   told
		want   step
	}{
		"marked":                           {none, alive, true, marked, open},
		"marked, the cache is behind":      {none, alive, false, marked, open},
		"marked again":                     {withdrawn, alive, true, marked, open},
		"still marked":                     {opened, alive, true, marked, open},
		"marked and gone, unheard of":      {none, nil, false, marked, confirm},
		"cleared":                          {opened, alive, false, cleared, withdraw},
		"cleared before it was written":    {none, alive, false, cleared, leave},
		"cleared twice":                    {withdrawn, alive, false, cleared, leave},
		"lost":                             {opened, nil, false, lost, shut},
		"lost before it was written":       {none, nil, false, lost, shut},
		"lost after it was closed":         {closed, nil, false, lost, leave},
		"lost, but cleared before":         {withdrawn, nil, false, told{ending: Lost}, leave},
		"finished":                         {opened, nil, false, finished, withdraw},
		"finished before it was written":   {none, nil, false, finished, leave},
		"marked, after it was closed":      {closed, nil, false, marked, leave},
		"restart: gone":                    {opened, nil, false, told{}, confirm},
		"restart: evicted":                 {opened, evicted, true, told{}, shut},
		"restart: marked":                  {opened, alive, true, told{}, leave},
		"restart: unmarked":                {opened, alive, false, told{}, withdraw},
		"restart: unmarked, being deleted": {opened, terminating, false, told{}, leave},
		"restart: nothing known of it":     {none, alive, false, told{}, leave},
		"restart: withdrawn and gone":      {withdrawn, nil, false, told{}, leave},
		"restart: closed, name used again": {closed, alive, true, told{}, leave},
		"forged: no record, nothing told":  {none, alive, true, told{}, leave},
	} {
		t.Run(name, func(t *testing.T) {
			if got := decide(tc.record, tc.pod, tc.bears, tc.told); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}

// What is told of a pod whose end is known changes nothing: its loss is recorded although its marker is removed after it.
func TestClearedAfterTheEnd(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "1"}}
	for name, tc := range map[string]struct {
		ending Ending
		want   step
	}{
		"lost":     {Lost, shut},
		"finished": {Finished, leave},
		"alive":    {Unended, leave},
	} {
		r := New(nil, nil, nil, Options{Clock: func() time.Time { return noon }})
		r.Marked(pod, Risk{})
		if tc.ending != Unended {
			r.Ended(pod, Risk{}, tc.ending)
		}
		r.Cleared(pod)
		if got := decide(nil, pod, false, r.toldOf(keyOf(pod))); got != tc.want {
			t.Errorf("%s: got %d, want %d", name, got, tc.want)
		}
	}
}

// A record's name is the pod's own, of any length, and differs by UID alone.
func TestRecordName(t *testing.T) {
	a := key{"shop", "web", "1"}
	if a.recordName() != (key{"shop", "web", "1"}).recordName() || a.recordName() == (key{"shop", "web", "2"}).recordName() {
		t.Error("the name does not follow from the UID")
	}
	if !strings.HasPrefix(a.recordName(), "web.") {
		t.Errorf("name %q", a.recordName())
	}
	long := key{"shop", strings.Repeat("a", 231) + "." + strings.Repeat("b", 21), "1"}.recordName()
	if len(long) > 253 || strings.Contains(long, "..") {
		t.Errorf("name %q of %d bytes", long, len(long))
	}
}

func ended(namespace, name string, state v1alpha1.LossState, age time.Duration) *v1alpha1.PodLoss {
	at := metav1.NewTime(noon.Add(-age))
	record := &v1alpha1.PodLoss{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Status: v1alpha1.PodLossStatus{State: state}}
	switch state {
	case v1alpha1.Closed:
		record.Status.LostAt = &at
	case v1alpha1.Withdrawn:
		record.Status.WithdrawnAt = &at
	}
	return record
}

func TestSurplus(t *testing.T) {
	const day = 24 * time.Hour
	records := []*v1alpha1.PodLoss{
		ended("a", "old-closed", v1alpha1.Closed, 8*day),
		ended("a", "old-withdrawn", v1alpha1.Withdrawn, 8*day),
		ended("a", "old-open", v1alpha1.Open, 8*day),
		ended("a", "week", v1alpha1.Closed, 7*day),
		ended("b", "open-1", v1alpha1.Open, 0),
		ended("b", "open-2", v1alpha1.Open, 0),
		ended("b", "closed-new", v1alpha1.Closed, time.Hour),
		ended("b", "closed-old", v1alpha1.Closed, 2*time.Hour),
		ended("b", "withdrawn", v1alpha1.Withdrawn, time.Minute),
		ended("c", "open-1", v1alpha1.Open, 0),
		ended("c", "open-2", v1alpha1.Open, 0),
		ended("c", "open-3", v1alpha1.Open, 0),
		ended("c", "open-4", v1alpha1.Open, 0),
	}
	for _, tc := range []struct {
		limit int
		want  []string
	}{
		{100, []string{"a/old-closed", "a/old-withdrawn"}},
		{4, []string{"a/old-closed", "a/old-withdrawn", "b/withdrawn"}},
		{3, []string{"a/old-closed", "a/old-withdrawn", "b/closed-old", "b/withdrawn"}},
		{1, []string{"a/old-closed", "a/old-withdrawn", "a/week", "b/closed-new", "b/closed-old", "b/withdrawn"}},
	} {
		var got []string
		for _, record := range surplus(slices.Clone(records), noon, 7*day, tc.limit) {
			got = append(got, record.Namespace+"/"+record.Name)
		}
		slices.Sort(got)
		if !slices.Equal(got, tc.want) {
			t.Errorf("limit %d: got %v, want %v", tc.limit, got, tc.want)
		}
	}
}

func minute(n int) time.Time { return noon.Add(time.Duration(n) * time.Minute) }

func TestPeriodsEnd(t *testing.T) {
	span := func(from, to int) Period { return Period{From: minute(from), To: minute(to)} }
	lasting := func(from int, by string) Period { return Period{From: minute(from), By: by} }
	for name, tc := range map[string]struct {
		periods  []Period
		previous time.Time
		want     []Period
	}{
		"none":                        {nil, time.Time{}, nil},
		"another's, seen alive":       {[]Period{lasting(0, "b")}, minute(59), []Period{span(0, 59)}},
		"another's, not seen":         {[]Period{lasting(50, "b")}, time.Time{}, []Period{span(50, 50)}},
		"another's, seen before":      {[]Period{lasting(50, "b")}, minute(40), []Period{span(50, 50)}},
		"another's, its clock ahead":  {[]Period{lasting(50, "b")}, minute(70), []Period{span(50, 50)}},
		"its own":                     {[]Period{lasting(50, "a")}, minute(40), []Period{span(50, 60)}},
		"ended":                       {[]Period{span(30, 40)}, minute(59), []Period{span(30, 40)}},
		"older than records are kept": {[]Period{span(-200, -100), span(10, 20)}, time.Time{}, []Period{span(10, 20)}},
	} {
		lease := Lease{Identity: "a", Previous: func() time.Time { return tc.previous }}
		if got := lease.close(tc.periods, minute(60), 2*time.Hour); !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
	many := make([]Period, 2*periodsAtMost)
	for i := range many {
		many[i] = span(i, i)
	}
	got := Lease{}.close(many, minute(200), time.Hour*1000)
	if len(got) != periodsAtMost-1 || got[len(got)-1] != many[len(many)-1] {
		t.Errorf("%d periods", len(got))
	}
}

func TestGaps(t *testing.T) {
	span := func(from, to int) Period { return Period{From: minute(from), To: minute(to)} }
	w := Watched{Periods: []Period{span(10, 20), span(30, 40), {From: minute(50)}}}
	for name, tc := range map[string]struct {
		watched Watched
		from    int
		want    []Period
	}{
		"before the first":   {w, 0, []Period{span(0, 10), span(20, 30), span(40, 50)}},
		"within one":         {w, 15, []Period{span(20, 30), span(40, 50)}},
		"within a gap":       {w, 25, []Period{span(25, 30), span(40, 50)}},
		"in the last":        {w, 55, nil},
		"nothing known":      {Watched{}, 0, []Period{span(0, 60)}},
		"nobody records now": {Watched{Periods: w.Periods[:2]}, 30, []Period{span(40, 60)}},
	} {
		if got := tc.watched.Gaps(minute(tc.from), minute(60)); !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}

func TestFinishedFirst(t *testing.T) {
	asked := time.Date(2026, 12, 1, 19, 0, 0, 0, time.UTC)
	deleted := func(phase corev1.PodPhase, ended ...time.Time) *corev1.Pod {
		pod := &corev1.Pod{Status: corev1.PodStatus{Phase: phase}}
		for _, at := range ended {
			state := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(at)}}
			pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{State: state})
		}
		return pod
	}
	before, after := asked.Add(-time.Minute), asked.Add(time.Second)
	evicted := deleted(corev1.PodFailed, before)
	evicted.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}
	running := deleted(corev1.PodSucceeded, before)
	running.Status.ContainerStatuses = append(running.Status.ContainerStatuses, corev1.ContainerStatus{})
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"runs":                                  {deleted(corev1.PodRunning), false},
		"done, then deleted":                    {deleted(corev1.PodSucceeded, before, before), true},
		"failed, then deleted":                  {deleted(corev1.PodFailed, before), true},
		"ended by the deletion, with status 0":  {deleted(corev1.PodSucceeded, after), false},
		"ended by the deletion, with a failure": {deleted(corev1.PodFailed, after), false},
		"within the same second":                {deleted(corev1.PodSucceeded, asked), false},
		"one container was done before":         {deleted(corev1.PodSucceeded, before, after), false},
		"one container is not known to be done": {running, false},
		"deleted before it was seen":            {deleted(corev1.PodFailed), false},
		"deleted before it started":             {deleted(corev1.PodFailed, time.Time{}), false},
		"evicted":                               {evicted, false},
	} {
		if got := FinishedFirst(tc.pod, asked); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	if !FinishedFirst(deleted(corev1.PodSucceeded, before), time.Time{}) {
		t.Error("done, then removed at once: false")
	}
}
