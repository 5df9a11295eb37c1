package refusals

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// A right is reported once in each period, each right by itself, with the verb and the resource to add.
func TestReportedOncePerPeriod(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	at := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	l := New(func() time.Time { return at })
	said := func(resource string) bool {
		log.Reset()
		l.Report("patch", resource, "ns", errors.New("no"))
		return strings.Contains(log.String(), `not allowed to patch `+resource)
	}
	if !said("pods/status") || said("pods/status") || !said("nodes/status") {
		t.Error("want the first of each right and no second")
	}
	at = at.Add(period)
	if !said("pods/status") {
		t.Error("want one in the next period")
	}
}

// What a Role gives is named with its namespace and with what does not go on.
func TestReportIn(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	l := New(func() time.Time { return time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC) })
	for range 2 {
		l.ReportIn("ns", "get", "leases", "nobody leads", errors.New("no"))
	}
	if said := log.String(); strings.Count(said, "not allowed to get leases") != 1 || !strings.Contains(said, "Role in namespace ns; until then nobody leads") {
		t.Errorf("said %q", said)
	}
}

// Where a policy or a webhook refuses, the advice is not to widen a role.
func TestByAdmission(t *testing.T) {
	for text, want := range map[string]bool{
		`pods "web" is forbidden: ValidatingAdmissionPolicy 'rollcall-controller' with binding 'rollcall-controller' denied request: annotations only`: true,
		`admission webhook "x.example.com" denied the request: no`:                                                                                     true,
		`pods "web" is forbidden: User "system:anonymous" cannot patch resource "pods/status" in API group ""`:                                         false,
	} {
		if got := ByAdmission(errors.New(text)); got != want {
			t.Errorf("%s: got %t", text, got)
		}
	}
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	New(time.Now).Report("patch", "pods/status", "ns", errors.New("policy 'p' denied request: no"))
	if said := log.String(); strings.Contains(said, "add the verb") || !strings.Contains(said, "no role can give it") {
		t.Errorf("said %q", said)
	}
}
