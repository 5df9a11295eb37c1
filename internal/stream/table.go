package stream

import (
	"container/list"
	"reflect"
)

// A limit bounds a table.
type limit struct {
	rows  int
	bytes int // of text, about: see row.size
}

// A table has the rows of one kind, in the order of their last change, so that what a reader lacks is at one end. The
// hub's lock guards it.
//
// Its rows never change: a changed row is a new one. So readers may use them without the lock.
type table[R row] struct {
	name  string
	limit limit
	rows  map[string]*list.Element // of order, by identity
	order *list.List               // *entry[R], the latest change last
	bytes int
	// common has the identities of the rows that are not precious, the latest change last: the first makes room for one
	// that is.
	common *list.List
	// left has the identities of rows that found no room.
	left map[string]struct{}

	graves    *list.List // *grave, the latest last
	forgotten uint64     // version of the latest grave that was dropped
}

type entry[R row] struct {
	common  *list.Element // its place there; nil for a precious row
	id      string
	row     R
	size    int
	version uint64
}

// A grave remembers a row that is gone, for readers that have it.
type grave struct {
	id      string
	version uint64
}

// gravesAtMost bounds what is remembered of rows that are gone. A reader that missed more is cut.
const gravesAtMost = 8192

// leftAtMost bounds how exact the count of rows without room is, in rows.
const leftAtMost = 1 << 16

func newTable[R row](name string, l limit) *table[R] {
	return &table[R]{
		name: name, limit: l, rows: map[string]*list.Element{}, order: list.New(),
		common: list.New(), left: map[string]struct{}{}, graves: list.New(),
	}
}

// put makes the row the current one of its identity. It tells whether anything changed, and returns the row before.
func (t *table[R]) put(r R, version uint64) (before R, had, changed bool) {
	r.tidy()
	id := r.identity()
	if element := t.rows[id]; element != nil {
		old := element.Value.(*entry[R])
		if reflect.DeepEqual(old.row, r) {
			return old.row, true, false
		}
		before, had = old.row, true
		t.take(element)
	}
	size := r.size()
	for !t.fits(size) {
		if !r.precious() || !t.evict(version) {
			if had {
				t.bury(id, version)
			}
			t.leave(id)
			return before, had, true
		}
	}
	delete(t.left, id)
	e := &entry[R]{id: id, row: r, size: size, version: version}
	if !r.precious() {
		e.common = t.common.PushBack(id)
	}
	t.rows[id] = t.order.PushBack(e)
	t.bytes += size
	return before, had, true
}

func (t *table[R]) fits(size int) bool {
	return len(t.rows) < t.limit.rows && t.bytes+size <= t.limit.bytes
}

// evict takes a row that is not precious out, to the ones without room: the one whose last change is the longest ago.
func (t *table[R]) evict(version uint64) bool {
	first := t.common.Front()
	if first == nil {
		return false
	}
	id := first.Value.(string)
	t.take(t.rows[id])
	t.bury(id, version)
	t.leave(id)
	return true
}

func (t *table[R]) leave(id string) {
	if len(t.left) < leftAtMost {
		t.left[id] = struct{}{}
	}
}

// remove takes the row of the identity out, if there is one.
func (t *table[R]) remove(id string, version uint64) bool {
	id = printable(id)
	if _, left := t.left[id]; left {
		delete(t.left, id)
		return true
	}
	element := t.rows[id]
	if element == nil {
		return false
	}
	t.take(element)
	t.bury(id, version)
	return true
}

func (t *table[R]) take(element *list.Element) {
	e := t.order.Remove(element).(*entry[R])
	delete(t.rows, e.id)
	if e.common != nil {
		t.common.Remove(e.common)
	}
	t.bytes -= e.size
}

func (t *table[R]) bury(id string, version uint64) {
	t.graves.PushBack(&grave{id, version})
	if t.graves.Len() > gravesAtMost {
		t.forgotten = t.graves.Remove(t.graves.Front()).(*grave).version
	}
}

// clear forgets graves that no reader asks for.
func (t *table[R]) clear(version uint64) {
	t.graves.Init()
	t.forgotten = version
}

// since returns what changed after the version: rows, and the identities of rows that are no more. ok is false where some
// of it is forgotten.
func (t *table[R]) since(version uint64) (rows []R, gone []string, ok bool) {
	if version < t.forgotten {
		return nil, nil, false
	}
	for at := t.order.Back(); at != nil && at.Value.(*entry[R]).version > version; at = at.Prev() {
		rows = append(rows, at.Value.(*entry[R]).row)
	}
	for at := t.graves.Back(); at != nil && at.Value.(*grave).version > version; at = at.Prev() {
		id := at.Value.(*grave).id
		if t.rows[id] == nil { // it is not back
			gone = append(gone, id)
		}
	}
	return rows, gone, true
}

// all returns every row.
func (t *table[R]) all() []R {
	rows := make([]R, 0, len(t.rows))
	for at := t.order.Front(); at != nil; at = at.Next() {
		rows = append(rows, at.Value.(*entry[R]).row)
	}
	return rows
}
