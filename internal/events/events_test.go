package events

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// A bench is a Herald and what became of its Events.
type bench struct {
	*Herald
	client                   *fake.Clientset
	dropped, failed, refused int
}

func newBench() *bench {
	b := &bench{client: fake.NewClientset()}
	b.Herald = New(Options{
		Client: b.client, Instance: "test", Clock: func() time.Time { return time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC) },
		Refused: func(string, string, string, error) { b.refused++ },
		Dropped: func() { b.dropped++ }, Failed: func() { b.failed++ },
	})
	return b
}

// flush sends what waits.
func (b *bench) flush() {
	stop := make(chan struct{})
	close(stop)
	b.Run(context.Background(), stop)
}

func (b *bench) tell(name string) {
	b.Tell(&corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Message: "m"})
}

func (b *bench) created() int { return len(b.client.Actions()) }

func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range []string{
		Name("p", "u", "n", "r", "c", "t"),
		Name("p", "u2", "n", "r", "c", "t"),
		Name("p", "u", "n2", "r", "c", "t"),
		Name("p", "u", "n", "r2", "c", "t"),
		Name("p", "u", "n", "r", "ct", ""),
		Name(strings.Repeat("p", 253), "u", "n"),
		Name(strings.Repeat("p", 231)+".q", "u", "n"),
	} {
		if seen[name] {
			t.Errorf("%s twice", name)
		}
		seen[name] = true
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			t.Errorf("%s: %v", name, problems)
		}
	}
}

// An Event that failed is tried again when it is told again; one that was refused or exists is not.
func TestFailures(t *testing.T) {
	resource := schema.GroupResource{Resource: "events"}
	for name, tc := range map[string]struct {
		err                    error
		tries, failed, refused int
	}{
		"exists":    {apierrors.NewAlreadyExists(resource, "e"), 1, 0, 0},
		"forbidden": {apierrors.NewForbidden(resource, "e", nil), 1, 1, 1},
		"not found": {apierrors.NewNotFound(resource, "e"), 1, 1, 0},
		"trouble":   {apierrors.NewInternalError(context.DeadlineExceeded), 2, 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench()
			b.client.PrependReactor("create", "events", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, tc.err })
			for range 2 {
				b.tell("e")
				b.flush()
			}
			if b.created() != tc.tries || b.failed != tc.failed || b.refused != tc.refused {
				t.Errorf("%d tries, %d failed, %d refused; want %+v", b.created(), b.failed, b.refused, tc)
			}
		})
	}
}

// What does not fit the backlog is dropped, counted, and told again later. Nobody waits.
func TestBacklog(t *testing.T) {
	b := newBench()
	const over = 5
	for i := range backlog + over {
		b.tell(strconv.Itoa(i))
	}
	if b.dropped != over {
		t.Errorf("%d dropped, want %d", b.dropped, over)
	}
	b.flush()
	b.tell(strconv.Itoa(backlog + over - 1))
	b.flush()
	if b.created() != backlog+1 {
		t.Errorf("%d sent, want %d", b.created(), backlog+1)
	}
}

func TestShorten(t *testing.T) {
	for _, text := range []string{"", "abc", strings.Repeat("a", 40), strings.Repeat("é", 20), "aaaaaa€€€€€€"} {
		got := shorten(text, 12)
		if len(got) > 12 || !utf8.ValidString(got) || len(text) <= 12 && got != text {
			t.Errorf("%q becomes %q", text, got)
		}
	}
}
