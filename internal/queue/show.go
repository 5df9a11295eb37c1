package queue

import "github.com/rollcall-dev/rollcall/internal/stream"

// showAtOnce bounds how many keys one look hands over; what is more comes with the next.
const showAtOnce = 16 * changesAtMost

// Source shows the keys in a stream, as what changed since the last look.
func (q *Queue) Source() stream.Source {
	var since uint64
	shown := map[string]bool{}
	return func() stream.Content {
		content := stream.Content{Queue: q.Totals().row(), Gone: &stream.Gone{}}
		for len(content.Keys) < showAtOnce {
			changes := q.Changes(since)
			if changes.All { // whatever is shown and does not come again is no more
				for id := range shown {
					content.Gone.Keys = append(content.Gone.Keys, id)
				}
				clear(shown)
				content.Keys = nil
			}
			for _, view := range changes.Views {
				row := view.row()
				shown[row.ID] = true
				content.Keys = append(content.Keys, row)
			}
			for _, key := range changes.Gone {
				delete(shown, key.String())
				content.Gone.Keys = append(content.Gone.Keys, key.String())
			}
			if since = changes.Next; !changes.More {
				break
			}
		}
		return content
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
