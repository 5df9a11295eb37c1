package main

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// history is every series of every scrape, in memory. It is a storage.Queryable and its own storage.Querier.
type history struct {
	series map[string]*series
	order  []string
}

type series struct {
	labels  labels.Labels
	samples []chunks.Sample
}

func newHistory() *history { return &history{series: map[string]*series{}} }

// add takes one scrape of one target.
func (h *history) add(text []byte, at time.Time) error {
	scrape, err := textparse.New(text, "text/plain", nil, textparse.ParserOptions{})
	if err != nil {
		return err
	}
	for {
		entry, err := scrape.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if entry != textparse.EntrySeries {
			continue
		}
		var metric labels.Labels
		scrape.Labels(&metric)
		// As Prometheus labels what it scrapes.
		metric = labels.NewBuilder(metric).Set("instance", "10.0.0.1:8081").Set("job", "rollcall-controller").Labels()
		_, _, value := scrape.Series()
		key := metric.String()
		if h.series[key] == nil {
			h.series[key] = &series{labels: metric}
			h.order = append(h.order, key)
		}
		h.series[key].samples = append(h.series[key].samples, sample{at.UnixMilli(), value})
	}
}

// Querier implements storage.Queryable.
func (h *history) Querier(int64, int64) (storage.Querier, error) { return h, nil }

// Select implements storage.Querier.
func (h *history) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	found := &set{at: -1}
	for _, key := range h.order {
		if s := h.series[key]; matches(s.labels, matchers) {
			found.series = append(found.series, storage.NewListSeries(s.labels, s.samples))
		}
	}
	return found
}

func matches(metric labels.Labels, matchers []*labels.Matcher) bool {
	for _, m := range matchers {
		if !m.Matches(metric.Get(m.Name)) {
			return false
		}
	}
	return true
}

// LabelValues implements storage.Querier; no expression asks for them.
func (h *history) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

// LabelNames implements storage.Querier; no expression asks for them.
func (h *history) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

// Close implements storage.Querier.
func (h *history) Close() error { return nil }

// set is a storage.SeriesSet.
type set struct {
	series []storage.Series
	at     int
}

func (s *set) Next() bool                        { s.at++; return s.at < len(s.series) }
func (s *set) At() storage.Series                { return s.series[s.at] }
func (s *set) Err() error                        { return nil }
func (s *set) Warnings() annotations.Annotations { return nil }

// sample is one number at one time, in milliseconds.
type sample struct {
	t int64
	v float64
}

func (s sample) T() int64                      { return s.t }
func (s sample) ST() int64                     { return 0 }
func (s sample) F() float64                    { return s.v }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }
