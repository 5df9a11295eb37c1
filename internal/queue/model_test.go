package queue

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

// model is the queue as its documentation tells it, as plainly as it can be written: one caller, no locks, no heaps, and
// time that is told to it.
type model struct {
	keys    map[Key]*modelled
	now     time.Time
	arrived int
	pops    int

	added, deduped, started, done, failed, forgotten int64
}

type modelled struct {
	KeyView
	queued, running bool
	arrival         int
	kill            time.Time
	begun           time.Time
}

func (m *model) key(key Key) *modelled {
	if m.keys[key] == nil {
		m.keys[key] = &modelled{KeyView: KeyView{Key: key, Since: m.now}}
	}
	return m.keys[key]
}

func (m *model) add(key Key, timer bool) {
	k := m.key(key)
	if timer {
		k.Until = time.Time{}
	}
	switch {
	case k.queued:
		k.DedupedQueued++
		m.deduped++
	case k.running && k.Again:
		k.DedupedRunning++
		m.deduped++
	case k.running:
		k.Again = true
		k.Added++
		m.added++
	default:
		k.Added++
		m.added++
		m.queue(k)
	}
	m.settle(k)
}

func (m *model) queue(k *modelled) {
	k.queued = true
	m.arrived++
	k.arrival = m.arrived
	m.place(k)
}

func (m *model) place(k *modelled) {
	k.kill = k.Rank.Kill
	if k.Rank.Class == Committed && k.kill.IsZero() {
		k.kill = m.now
	}
}

func (m *model) rank(key Key, rank Rank) {
	k := m.keys[key]
	if k == nil {
		return
	}
	if rank.Class != Committed {
		rank.Kill = time.Time{}
	}
	if k.Rank != rank {
		k.Rank = rank
		m.place(k)
	}
}

func (m *model) addAfter(key Key, after time.Duration) {
	k := m.key(key)
	if due := m.now.Add(after); k.Until.IsZero() || due.Before(k.Until) {
		k.Until = due
	}
	m.settle(k)
}

func (m *model) get() Key {
	var queued []*modelled
	for _, k := range m.keys {
		if k.queued {
			queued = append(queued, k)
		}
	}
	m.pops++
	k := slices.MinFunc(queued, func(a, b *modelled) int {
		if m.pops%fairEvery == 0 {
			return cmp.Compare(a.arrival, b.arrival)
		}
		return cmp.Or(-cmp.Compare(a.Rank.Class, b.Rank.Class), cmp.Compare(a.kill.UnixMicro(), b.kill.UnixMicro()), cmp.Compare(a.arrival, b.arrival))
	})
	k.queued, k.running, k.begun = false, true, m.now
	k.Started++
	m.started++
	m.settle(k)
	return k.Key
}

func (m *model) finish(key Key, err error, again time.Duration) {
	k := m.keys[key]
	if err != nil {
		k.LastError = err.Error()
		k.Failures++
		k.Failed++
		m.failed++
		m.addAfter(key, min(firstRetry<<(k.Failures-1), lastRetry))
	} else {
		k.Failures = 0
		if again > 0 {
			m.addAfter(key, again)
		}
	}
	k.running, k.LastDuration = false, m.now.Sub(k.begun)
	m.done++
	if k.Again {
		k.Again = false
		m.queue(k)
	}
	m.settle(k)
}

// advance lets time pass, and adds each key when its time comes.
func (m *model) advance(by time.Duration) {
	end := m.now.Add(by)
	for {
		var next *modelled
		for _, k := range m.keys {
			if !k.Until.IsZero() && !k.Until.After(end) && (next == nil || k.Until.Before(next.Until)) {
				next = k
			}
		}
		if next == nil {
			m.now = end
			return
		}
		m.now = next.Until
		m.add(next.Key, true)
	}
}

func (m *model) settle(k *modelled) {
	is := Idle
	switch {
	case k.running:
		is = Running
	case k.queued:
		is = Queued
	case !k.Until.IsZero() && k.Failures > 0:
		is = BackingOff
	case !k.Until.IsZero():
		is = Waiting
	}
	if is != k.State {
		k.State, k.Since = is, m.now
		if is == Idle {
			m.forget()
		}
	}
}

func (m *model) forget() {
	maps.DeleteFunc(m.keys, func(_ Key, k *modelled) bool {
		drop := k.State == Idle && m.now.Sub(k.Since) > idleFor
		if drop {
			m.forgotten++
		}
		return drop
	})
}

func (m *model) totals() Totals {
	t := Totals{Known: len(m.keys), Added: m.added, Deduped: m.deduped, Started: m.started, Done: m.done, Failed: m.failed, Forgotten: m.forgotten}
	first := 0
	for _, k := range m.keys {
		switch k.State {
		case Queued:
			t.Depth++
			if first == 0 || k.arrival < first {
				first, t.Oldest = k.arrival, k.Since
			}
		case Running:
			t.Running++
		case BackingOff:
			t.BackingOff++
		case Waiting:
			t.Waiting++
		}
	}
	return t
}

// reader follows Changes as the stream does.
type reader struct {
	next uint64
	keys map[Key]KeyView
}

func (r *reader) read(t *testing.T, c *recorder) {
	for more := true; more; {
		changes := c.changes(r.next)
		if changes.All {
			r.keys = map[Key]KeyView{}
		}
		for _, key := range changes.Gone {
			delete(r.keys, key)
		}
		for _, view := range changes.Views {
			mustBePossible(t, r.keys[view.Key], view)
			r.keys[view.Key] = view
		}
		r.next, more = changes.Next, changes.More
	}
}

// mustBePossible checks what holds at every moment for each key, and from one look at it to the next.
func mustBePossible(t *testing.T, was, is KeyView) {
	t.Helper()
	open := is.Added - is.Started // runs to come
	want := int64(0)
	if is.State == Queued || is.Again {
		want = 1
	}
	forgotten := is.Added < was.Added
	switch {
	case open != want:
		t.Errorf("%+v: %d runs are to come, want %d", is, open, want)
	case is.Again && is.State != Running:
		t.Errorf("%+v: asked for again while it does not run", is)
	case (is.State == BackingOff || is.State == Waiting) == is.Until.IsZero() && is.State != Queued && is.State != Running:
		t.Errorf("%+v: the state and the time do not go together", is)
	case is.State == BackingOff && is.Failures == 0 || is.State == Waiting && is.Failures > 0:
		t.Errorf("%+v: the state and the failures do not go together", is)
	case is.Failures > 0 && is.LastError == "", int64(is.Failures) > is.Failed, is.Failed > is.Started:
		t.Errorf("%+v: failures without their cause", is)
	case forgotten:
	case is.Started < was.Started, is.Failed < was.Failed, is.Since.Before(was.Since),
		is.DedupedQueued < was.DedupedQueued, is.DedupedRunning < was.DedupedRunning:
		t.Errorf("%+v after %+v: went back", is, was)
	case is.State == Running && was.State != Running && is.Started == was.Started:
		t.Errorf("%+v after %+v: runs and was not started", is, was)
	case is.State == Queued && was.State != Queued && !was.Again && is.Added == was.Added:
		t.Errorf("%+v after %+v: queued and was not added", is, was)
	case was.State == Queued && is.State != Queued && is.Started == was.Started:
		t.Errorf("%+v after %+v: left the queue without a run", is, was)
	}
}

// TestTheRecordIsTheModels does random things one after the other, with time that passes at will, and compares all that can
// be read after each.
func TestTheRecordIsTheModels(t *testing.T) {
	for seed := range uint64(full(20, 400)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { compareWithModel(t, rand.New(rand.NewPCG(seed, 1)), 800) })
		})
	}
}

func compareWithModel(t *testing.T, random *rand.Rand, steps int) {
	recorder := newRecorder(clock.RealClock{})
	keys := newLayers(Options{Clock: clock.RealClock{}}, recorder)
	defer keys.ShutDown()
	m := &model{keys: map[Key]*modelled{}, now: time.Now()}
	followed := reader{}
	var running []Key
	for step := range steps {
		what := oneStep(keys, recorder, m, random, &running)
		synctest.Wait()
		m.forget() // as a read does
		followed.read(t, recorder)
		want := map[Key]KeyView{}
		for key, k := range m.keys {
			want[key] = k.KeyView
		}
		if !reflect.DeepEqual(followed.keys, want) {
			t.Fatalf("step %d, %s: the queue says\n%v\nthe model says\n%v", step, what, followed.keys, want)
		}
		if got, want := recorder.total(), m.totals(); got != want {
			t.Fatalf("step %d, %s: the queue says\n%+v\nthe model says\n%+v", step, what, got, want)
		}
	}
}

// oneStep does something to both and tells what. A little time passes before it, so that no two things happen at once.
func oneStep(keys workqueue.TypedRateLimitingInterface[Key], recorder *recorder, m *model, random *rand.Rand, running *[]Key) string {
	pass := func(d time.Duration) {
		time.Sleep(d)
		synctest.Wait()
		m.advance(d)
	}
	pass(time.Duration(1 + random.IntN(1000)))
	key := Key{Kind: "k", Name: fmt.Sprint(random.IntN(12))}
	switch choice := random.IntN(100); {
	case choice < 35:
		keys.Add(key)
		m.add(key, false)
		return "add " + key.Name
	case choice < 45:
		after := time.Duration(random.Int64N(int64(20 * time.Second)))
		keys.AddAfter(key, after+1)
		m.addAfter(key, after+1)
		return fmt.Sprint("add ", key.Name, " after ", after)
	case choice < 55:
		rank := Rank{Class: Class(random.IntN(3))}
		if random.IntN(2) == 0 {
			rank.Kill = m.now.Add(time.Duration(random.IntN(10)-5) * time.Second).Round(0)
		}
		recorder.rank(key, rank)
		m.rank(key, rank)
		return fmt.Sprint("rank ", key.Name, " ", rank)
	case choice < 75 && m.totals().Depth > 0:
		got, _ := keys.Get()
		want := m.get()
		*running = append(*running, got)
		return fmt.Sprintf("get %s, want %s", got.Name, want.Name)
	case choice < 95 && len(*running) > 0:
		i := random.IntN(len(*running))
		key := (*running)[i]
		*running = slices.Delete(*running, i, i+1)
		var err error
		var again time.Duration
		switch random.IntN(3) {
		case 0:
			err = errors.New("refused")
		case 1:
			again = time.Duration(1 + random.IntN(int(5*time.Second)))
		}
		settle(keys, recorder, key, again, err)
		m.finish(key, err, again)
		return fmt.Sprint("done ", key.Name, " ", err, " ", again)
	case choice == 99 && random.IntN(4) == 0:
		pass(11 * time.Minute)
		return "eleven minutes"
	}
	pass(time.Duration(random.IntN(int(2 * time.Second))))
	return "a while"
}

// settle ends the run of a key as the workers do.
func settle(keys workqueue.TypedRateLimitingInterface[Key], recorder *recorder, key Key, again time.Duration, err error) {
	q := Queue{keys: keys, recorder: recorder}
	q.answer(key, again, err)
	keys.Done(key)
}
