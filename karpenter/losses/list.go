package losses

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
)

// pageSize bounds one answer of the API server: a record may hold a manifest of some kilobytes.
const pageSize = 250

// List reads the records of a namespace, or of all for the empty name. The error is the API server's where it refuses or
// does not know PodLoss.
func List(ctx context.Context, client dynamic.Interface, namespace string) ([]*v1alpha1.PodLoss, error) {
	var records []*v1alpha1.PodLoss
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := client.Resource(v1alpha1.PodLosses).Namespace(namespace).List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("reading the records of losses: %w", err)
		}
		for i := range page.Items {
			record, err := v1alpha1.Parse(&page.Items[i])
			if err != nil {
				return nil, err
			}
			record.ManagedFields = nil
			records = append(records, record)
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return records, nil
		}
	}
}

// A Report answers what was lost.
type Report struct {
	// From is where the question begins; zero for all that is kept.
	From time.Time
	Now  time.Time
	// Records are the newest first.
	Records []*v1alpha1.PodLoss
	Watched Watched
}

// NewReport takes the records that ended since from, and all that are open. Withdrawn ones are left out unless asked for.
func NewReport(records []*v1alpha1.PodLoss, watched Watched, from, now time.Time, withdrawn bool) *Report {
	r := &Report{From: from, Now: now, Watched: watched, Records: []*v1alpha1.PodLoss{}}
	for _, record := range records {
		at, over := endOf(record)
		if over && at.Before(from) || record.Status.State == v1alpha1.Withdrawn && !withdrawn {
			continue
		}
		r.Records = append(r.Records, record)
	}
	slices.SortFunc(r.Records, func(a, b *v1alpha1.PodLoss) int {
		return cmp.Or(timeOf(b).Compare(timeOf(a)), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Spec.Pod.Name, b.Spec.Pod.Name),
			cmp.Compare(a.Name, b.Name))
	})
	return r
}

// timeOf is when the record ended; of an open one, since when the pod is at risk.
func timeOf(record *v1alpha1.PodLoss) time.Time {
	if at, over := endOf(record); over {
		return at
	}
	return record.Spec.Since.Time
}

// counts is how many records are in each state.
func (r *Report) counts() map[v1alpha1.LossState]int {
	counts := map[v1alpha1.LossState]int{}
	for _, record := range r.Records {
		counts[record.Status.State]++
	}
	return counts
}

// gaps are when nothing was recorded, as far back as the question goes: where it has no beginning, since the first record
// that is known of.
func (r *Report) gaps() []Period {
	from := r.From
	if from.IsZero() && len(r.Watched.Periods) > 0 {
		from = r.Watched.Periods[0].From
	}
	return r.Watched.Gaps(from, r.Now)
}

// trust says in words what the records do not tell.
func (r *Report) trust() string {
	if len(r.Watched.Periods) == 0 {
		return "Since when losses are recorded is not known: " + r.Watched.Unknown + "."
	}
	gaps := r.gaps()
	since := "since " + r.Watched.Periods[0].From.UTC().Format(time.RFC3339)
	if len(gaps) == 0 {
		if r.From.IsZero() {
			return "Recorded without a gap " + since + "; what was lost before is not known."
		}
		return "Recorded without a gap for all of that time."
	}
	text := "Nothing was recorded, and what was lost then and not marked before is not known: "
	const shown = 5
	for i, gap := range gaps {
		if i == shown {
			text += fmt.Sprintf(", and %d times more", len(gaps)-shown)
			break
		}
		if i > 0 {
			text += ", "
		}
		text += gap.words(r.Now)
	}
	if !r.Watched.Now {
		text += " (no controller records now)"
	}
	return text + "."
}

func (p Period) words(now time.Time) string {
	until := p.To.UTC().Format(time.RFC3339)
	if p.To.Equal(now) {
		until = "now"
	}
	return p.From.UTC().Format(time.RFC3339) + " to " + until
}
