package queue

import (
	"maps"
	"slices"

	"github.com/rollcall-dev/rollcall/internal/stream"
)

// showAtOnce bounds how many keys one look hands over; what is more comes with the next.
const showAtOnce = 16 * changesAtMost

// Source shows the keys in a stream, as what changed since the last look.
func (q *Queue) Source() stream.Source {
	var since uint64
	shown := map[string]bool{}
	return func() stream.Content {
		rows, gone := map[string]*stream.Key{}, []string{}
		for len(rows) < showAtOnce {
			changes := q.Changes(since)
			if changes.All { // whatever is shown and does not come again is no more
				gone = slices.AppendSeq(gone, maps.Keys(shown))
				clear(shown)
				clear(rows)
			}
			for _, view := range changes.Views {
				row := view.row()
				rows[row.ID], shown[row.ID] = row, true
			}
			for _, key := range changes.Gone { // in a stream, what is gone comes before the rows
				id := key.String()
				delete(rows, id)
				delete(shown, id)
				gone = append(gone, id)
			}
			if since = changes.Next; !changes.More {
				break
			}
		}
		return stream.Content{Queue: q.Totals().row(), Keys: slices.Collect(maps.Values(rows)), Gone: &stream.Gone{Keys: gone}}
	}
}

func (t Totals) row() *stream.Totals {
	return &stream.Totals{
		Depth: t.Depth, Running: t.Running, BackingOff: t.BackingOff, Waiting: t.Waiting, Known: t.Known, Oldest: t.Oldest,
		Added: t.Added, Deduped: t.Deduped, Started: t.Started, Done: t.Done, Failed: t.Failed, Workers: t.Workers, Forgotten: t.Forgotten,
	}
}

func (v KeyView) row() *stream.Key {
	return &stream.Key{
		ID: v.Key.String(), Kind: v.Key.Kind, State: stream.KeyState(v.State.String()), Since: v.Since, Until: v.Until, Class: v.Rank.Class.String(), Kill: v.Rank.Kill,
		Again: v.Again, Added: v.Added, DedupedQueued: v.DedupedQueued, DedupedRun: v.DedupedRunning, Started: v.Started, Failed: v.Failed,
		Failures: v.Failures, LastError: v.LastError, LastDuration: v.LastDuration,
	}
}
