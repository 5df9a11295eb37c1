package tui

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/rollcall-dev/rollcall/internal/stream"
)

// A moment is what a row is written with: the controller's clock as far as it is known, and the theme.
type moment struct {
	now time.Time
	*theme
}

// A cell is one text of a row.
type cell struct {
	text string
	as   tone
}

// A column is one property of the rows.
type column[T any] struct {
	title string
	room
	right bool
	cell  func(T, moment) cell
}

// An order is one way to sort. Rows that are equal in it go by identity.
type order[T any] struct {
	by      string
	compare func(a, b T) int
}

// A spec says what a kind of row is made of.
type spec[T any] struct {
	noun    string // of one row
	id      func(T) string
	name    func(T) string // what y copies
	text    func(T) string // what a filter looks at, in lower case
	orders  []order[T]     // the first is the default
	columns []column[T]    // in the order of priority
	detail  func(T, moment) string
	fields  func(T, moment) []field
	// rows are those of a state. It returns the same slice for the same table.
	rows func(*stream.State) []T
	// follows has the cursor stay on the first row while it is there, as new ones come before it.
	follows bool
	// empty says what it means that there are no rows.
	empty string
}

// A field is one line of a page on one object.
type field struct{ name, value string }

// A listing is a table of rows with a cursor that stays on its object. It belongs to the model and is not safe for
// concurrent use.
type listing[T any] struct {
	spec spec[T]

	all   []T // the state's; never written to
	shown []T // filtered and sorted

	cursor string // the identity it is on; empty before there were rows
	named  string // the name of that, for the notice when it has gone
	at     int    // its row in shown
	boot   string // of the controller whose rows these are
	missed string // the identity it was on when another controller began, which does not know that object yet
	top    int    // the first row on the screen

	needle  string
	order   int
	reverse bool
}

func newListing[T any](s spec[T]) *listing[T] { return &listing[T]{spec: s} }

// load takes the rows of a state, and says what people should know of it: that the cursor is on another object. While a
// page on its object is read, the cursor stays there as long as the object does.
func (l *listing[T]) load(state *stream.State, reading bool) (notice string) {
	var rows []T
	if state != nil {
		rows = l.spec.rows(state)
	}
	if same(rows, l.all) {
		return ""
	}
	l.all = rows
	if state != nil && state.Server.Boot != l.boot {
		if l.boot != "" {
			l.missed = l.cursor
		}
		l.boot = state.Server.Boot
	}
	return l.arrange(reading)
}

// release tells that no page on the cursor's object is read any more.
func (l *listing[T]) release() (notice string) { return l.arrange(false) }

// same tells whether two slices are one: states share the tables that did not change.
func same[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// arrange filters and sorts, and finds the cursor's object again.
func (l *listing[T]) arrange(reading bool) (notice string) {
	l.shown = make([]T, 0, len(l.all))
	for _, row := range l.all {
		if l.needle == "" || strings.Contains(l.spec.text(row), l.needle) || reading && l.spec.id(row) == l.cursor {
			l.shown = append(l.shown, row)
		}
	}
	by := l.spec.orders[l.order].compare
	slices.SortFunc(l.shown, func(a, b T) int {
		order := by(a, b)
		if l.reverse {
			order = -order
		}
		if order == 0 {
			return cmp.Compare(l.spec.id(a), l.spec.id(b))
		}
		return order
	})
	return l.follow(reading)
}

// follow puts the cursor on its object, wherever that is now.
func (l *listing[T]) follow(reading bool) (notice string) {
	if l.spec.follows && l.at == 0 && !reading {
		l.put(0)
		return ""
	}
	// A new leader tells of one object after the other:
	// 1. the leader's rows have the cursor's object;
	// 2. another leads, and its first rows do not have it yet;
	// 3. it comes, and has the cursor again, unless a person moved that meanwhile.
	if row := l.find(l.missed); row >= 0 {
		if l.missed != l.cursor {
			notice = clean(l.spec.name(l.shown[row])) + " is there again, and the cursor on it"
		}
		l.put(row)
		l.missed = ""
		return notice
	}
	if row := l.find(l.cursor); row >= 0 {
		l.at = row
		return ""
	}
	return l.fall()
}

// fall has the cursor go to what is at its row, as its object is not shown any more. It never does so silently: what people
// read, open or copy next would be another object than they think.
func (l *listing[T]) fall() (notice string) {
	if l.cursor == "" {
		l.put(l.at)
		return ""
	}
	why := " is no longer here"
	switch {
	case l.cursor == l.missed:
		why = " is not known to this leader yet"
	case slices.ContainsFunc(l.all, func(row T) bool { return l.spec.id(row) == l.cursor }):
		why = " does not match the filter any more"
	}
	notice = clean(l.named) + why
	l.put(l.at)
	if len(l.shown) > 0 {
		notice += "; the cursor is on " + clean(l.named)
	}
	return notice
}

// find returns the row with that identity, or -1.
func (l *listing[T]) find(id string) int {
	if id == "" {
		return -1
	}
	return slices.IndexFunc(l.shown, func(row T) bool { return l.spec.id(row) == id })
}

// put sets the cursor on a row, or on the nearest there is.
func (l *listing[T]) put(row int) {
	l.at = max(0, min(row, len(l.shown)-1))
	l.cursor, l.named = "", ""
	if len(l.shown) > 0 {
		l.cursor, l.named = l.spec.id(l.shown[l.at]), l.spec.name(l.shown[l.at])
	}
}

// window moves the rows on the screen as little as it takes to have the cursor among them.
func (l *listing[T]) window(rows int) []T {
	l.top = max(0, min(l.top, len(l.shown)-rows))
	l.top = max(min(l.top, l.at), l.at-rows+1)
	return l.shown[l.top:min(len(l.shown), l.top+rows)]
}

// move moves the cursor by rows.
func (l *listing[T]) move(by int) { l.moveTo(l.at + by) }

func (l *listing[T]) toTop()    { l.moveTo(0) }
func (l *listing[T]) toBottom() { l.moveTo(len(l.shown) - 1) }

// moveTo is a person's move: the cursor waits for no other object any more.
func (l *listing[T]) moveTo(row int) {
	l.missed = ""
	l.put(row)
}

// filter shows only rows with the text.
func (l *listing[T]) filter(text string) {
	needle := strings.ToLower(text)
	if needle != l.needle {
		l.needle = needle
		l.arrange(false)
	}
}

func (l *listing[T]) filtered() string { return l.needle }

// sort takes the next order, or turns the present one round.
func (l *listing[T]) sort(next bool) {
	if next {
		l.order = (l.order + 1) % len(l.spec.orders)
		l.reverse = false
	} else {
		l.reverse = !l.reverse
	}
	l.arrange(false)
}

// sorted names the order.
func (l *listing[T]) sorted() string {
	by := l.spec.orders[l.order].by
	if l.reverse {
		by += " reversed"
	}
	return by
}

// position returns the cursor's row, counted from one, of how many, and how many there are without the filter.
func (l *listing[T]) position() (at, shown, all int) {
	return min(l.at+1, len(l.shown)), len(l.shown), len(l.all)
}

// selected returns the cursor's row.
func (l *listing[T]) selected() (row T, ok bool) {
	if len(l.shown) == 0 {
		return row, false
	}
	return l.shown[l.at], true
}

// name returns what the cursor is on, to be copied.
func (l *listing[T]) name() string {
	row, ok := l.selected()
	if !ok {
		return ""
	}
	return l.spec.name(row)
}

// id returns the identity that the cursor is on.
func (l *listing[T]) id() string { return l.cursor }
