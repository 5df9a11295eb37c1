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
}

// A Lease is where the periods are written down.
type Lease struct {
	Client          kubernetes.Interface
	Namespace, Name string // no Name: nowhere, because nothing is elected
	// Previous is when the holder before this process last renewed the Lease; zero where there was none.
	Previous func() time.Time
}

// begin writes down that a period begins.
func (l Lease) begin(ctx context.Context, now time.Time, retention time.Duration) {
	l.change(ctx, func(periods []Period) []Period {
		return beginPeriod(periods, l.Previous(), now, retention)
	})
}

// finish writes down that the period ends although the controller goes on.
func (l Lease) finish(ctx context.Context, now time.Time) {
	l.change(ctx, func(periods []Period) []Period {
		if n := len(periods); n > 0 && periods[n-1].To.IsZero() {
			periods[n-1].To = now.UTC().Truncate(time.Second)
		}
		return periods
	})
}

// beginPeriod adds a period, after the one before has ended with the last sign of life of its leader. Periods that ended
// before the retention are of no use. It is pure.
func beginPeriod(periods []Period, previous, now time.Time, retention time.Duration) []Period {
	now, previous = now.UTC().Truncate(time.Second), previous.UTC().Truncate(time.Second)
	var kept []Period
	for _, p := range periods {
		if p.To.IsZero() {
			p.To = p.From
			if previous.After(p.From) && !previous.After(now) {
				p.To = previous
			}
		}
		if now.Sub(p.To) <= retention {
			kept = append(kept, p)
		}
	}
	kept = append(kept, Period{From: now})
	return kept[max(0, len(kept)-periodsAtMost):]
}

func (l Lease) change(ctx context.Context, change func([]Period) []Period) {
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
		text, err := json.Marshal(change(readPeriods(lease.Annotations[watchedAnnotation])))
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
	// A holder that has not renewed its Lease in time, or gave it back, is a holder no more.
	renewed, duration := lease.Spec.RenewTime, lease.Spec.LeaseDurationSeconds
	held := lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != "" && renewed != nil && duration != nil
	w.Now = held && !now.After(renewed.Add(time.Duration(*duration)*time.Second))
	if !w.Now {
		w.Periods[n-1].To = w.Periods[n-1].From
		if renewed != nil && renewed.After(w.Periods[n-1].From) {
			w.Periods[n-1].To = renewed.UTC().Truncate(time.Second)
		}
	}
	return w
}

// Gaps lists when nothing was recorded between from and now, in the order of time. Everything is a gap where nothing is known.
func (w Watched) Gaps(from, now time.Time) []Period {
	var gaps []Period
	for _, p := range w.Periods {
		if p.From.After(from) {
			gaps = append(gaps, Period{from, p.From})
		}
		if p.To.IsZero() {
			return gaps
		}
		if p.To.After(from) {
			from = p.To
		}
	}
	if from.Before(now) {
		gaps = append(gaps, Period{from, now})
	}
	return gaps
}
