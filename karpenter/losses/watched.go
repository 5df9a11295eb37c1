package losses

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"github.com/rollcall-dev/rollcall/internal/domain"
)

// watchedAnnotation, on the Lease of the controller, has the periods in which losses were recorded. What vanished outside
// of them, and was not marked before, is unknown. The Lease is the one object that a quiet cluster's controller writes
// anyway, and its renewal says until when the last holder worked.
const watchedAnnotation = domain.Name + "/losses-watched"

// periodsAtMost bounds the annotation. Each change of leader makes a period.
const periodsAtMost = 64

// A Period is a time in which losses were recorded. To is zero while it lasts.
type Period struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to,omitzero"`
	// By is the holder of the Lease that records, while the period lasts.
	By string `json:"by,omitempty"`
}

// A Lease is where the periods are written down.
type Lease struct {
	Client          kubernetes.Interface
	Namespace, Name string // no Name: nowhere, because nothing is elected
	// Identity is how the Lease calls this process.
	Identity string
	// Previous is when the holder before this process last renewed the Lease; zero where there was none.
	Previous func() time.Time
}

// begin writes down that a period begins.
func (l Lease) begin(ctx context.Context, now time.Time, retention time.Duration) {
	l.change(ctx, func(periods []Period) ([]Period, bool) {
		return append(l.close(periods, now, retention), Period{From: seconds(now), By: l.Identity}), true
	})
}

// finish writes down that nothing is recorded although a controller runs.
func (l Lease) finish(ctx context.Context, now time.Time, retention time.Duration) {
	l.change(ctx, func(periods []Period) ([]Period, bool) {
		n := len(periods)
		return l.close(periods, now, retention), n > 0 && periods[n-1].To.IsZero()
	})
}

// close ends the last period: one of this process now, one of another with that one's last sign of life. Periods that
// ended before the retention are of no use.
func (l Lease) close(periods []Period, now time.Time, retention time.Duration) []Period {
	now = seconds(now)
	var kept []Period
	for _, p := range periods {
		if p.To.IsZero() {
			end := now
			if p.By != l.Identity {
				end = seconds(l.Previous())
			}
			p.By, p.To = "", p.From
			if end.After(p.From) && !end.After(now) {
				p.To = end
			}
		}
		if now.Sub(p.To) <= retention {
			kept = append(kept, p)
		}
	}
	return kept[max(0, len(kept)-(periodsAtMost-1)):]
}

func seconds(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

// change rewrites the periods, where change says that it has.
func (l Lease) change(ctx context.Context, change func([]Period) ([]Period, bool)) {
	if l.Name == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	leases := l.Client.CoordinationV1().Leases(l.Namespace)
	err := retry.OnError(retry.DefaultBackoff, apierrors.IsConflict, func() error {
		lease, err := leases.Get(ctx, l.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		periods, changed := change(readPeriods(lease.Annotations[watchedAnnotation]))
		if !changed {
			return nil
		}
		text, err := json.Marshal(periods)
		if err != nil {
			return err
		}
		if lease.Annotations == nil {
			lease.Annotations = map[string]string{}
		}
		lease.Annotations[watchedAnnotation] = string(text)
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{FieldManager: domain.FieldManager})
		return err
	})
	if err != nil && ctx.Err() == nil {
		slog.Warn("since when losses are recorded could not be written down on the Lease", "lease", l.Namespace+"/"+l.Name, "error", err)
	}
}

func readPeriods(text string) []Period {
	var periods []Period
	if json.Unmarshal([]byte(text), &periods) != nil {
		return nil // somebody else's: begun anew
	}
	return periods
}

// Watched says when losses were recorded, as far as the Lease tells.
type Watched struct {
	// Periods are in the order of time. The last one ends with the last sign of life where no controller records now.
	Periods []Period `json:"periods"`
	// Now: a controller records.
	Now bool `json:"now"`
	// Unknown says why nothing is known; empty where something is.
	Unknown string `json:"unknown,omitempty"`
}

// ReadWatched reads it from the Lease of the controller. What cannot be read is no error: it is unknown.
func ReadWatched(ctx context.Context, client kubernetes.Interface, namespace, name string, now time.Time) Watched {
	lease, err := client.CoordinationV1().Leases(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return Watched{Unknown: fmt.Sprintf("there is no Lease %s/%s of a controller", namespace, name)}
	case apierrors.IsForbidden(err):
		return Watched{Unknown: fmt.Sprintf("you may not read the Lease %s/%s of the controller", namespace, name)}
	case err != nil:
		return Watched{Unknown: fmt.Sprintf("the Lease %s/%s of the controller cannot be read: %v", namespace, name, err)}
	}
	w := Watched{Periods: readPeriods(lease.Annotations[watchedAnnotation])}
	n := len(w.Periods)
	if n == 0 {
		return Watched{Unknown: fmt.Sprintf("the Lease %s/%s says nothing of recorded losses", namespace, name)}
	}
	if !w.Periods[n-1].To.IsZero() {
		return w
	}
	// A holder that has not renewed its Lease in time, or gave it back, is a holder no more. Where another holds it by now,
	// and has not begun, nothing tells any more until when the one before worked.
	last := &w.Periods[n-1]
	holder, renewed, duration := lease.Spec.HolderIdentity, lease.Spec.RenewTime, lease.Spec.LeaseDurationSeconds
	gone := holder == nil || *holder == ""
	another := !gone && *holder != last.By
	w.Now = !gone && !another && renewed != nil && duration != nil &&
		!now.After(renewed.Add(time.Duration(*duration)*time.Second))
	if !w.Now {
		last.To = last.From
		if !another && renewed != nil && renewed.After(last.From) {
			last.To = seconds(renewed.Time)
		}
	}
	last.By = ""
	return w
}

// Gaps lists when nothing was recorded between from and now, in the order of time. Everything is a gap where nothing is known.
func (w Watched) Gaps(from, now time.Time) []Period {
	var gaps []Period
	for _, p := range w.Periods {
		if p.From.After(from) {
			gaps = append(gaps, Period{From: from, To: p.From})
		}
		if p.To.IsZero() {
			return gaps
		}
		if p.To.After(from) {
			from = p.To
		}
	}
	if from.Before(now) {
		gaps = append(gaps, Period{From: from, To: now})
	}
	return gaps
}
