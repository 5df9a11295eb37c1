package tui

const (
	leastWidth  = 60
	leastHeight = 15
)

// The widths from which a screen shows more. They are the columns' tiers.
const (
	narrow = leastWidth
	usual  = 80
	roomy  = 120
	ample  = 160
)

// A layout says which line of the screen is whose. The lines add up to the height.
type layout struct {
	width, height int
	banner        bool // a line on why the connection is as it is
	summary       bool // a line on the table as a whole
	rows          int  // of the table, without its header
	strip         int  // lines on the cursor's row
}

// fixedLines are two of the header, the tabs, the table's header and the footer.
const fixedLines = 5

// newLayout divides a screen that is not too small.
func newLayout(width, height int, banner, summary bool) layout {
	l := layout{width: width, height: height, banner: banner, summary: summary, strip: 1}
	switch {
	case height >= 36:
		l.strip = 4
	case height >= 22:
		l.strip = 2
	}
	l.rows = height - fixedLines - l.strip
	if banner {
		l.rows--
	}
	if summary {
		l.rows--
	}
	return l
}

// tooSmall tells whether nothing can be shown but that.
func tooSmall(width, height int) bool { return width < leastWidth || height < leastHeight }

// A column's room on the screen.
type room struct {
	tier  int // the width of the screen from which it is there
	least int // cells
	most  int // cells it may grow to
	grow  int // its part of what is left
}

func fixed(tier, width int) room { return room{tier: tier, least: width} }

func growing(tier, least, most, grow int) room { return room{tier, least, most, grow} }

// gap is what stands between columns.
const gap = 2

// gutter is where the cursor's mark stands, left of the first column.
const gutter = 2

// share gives the columns that have room their widths; the others get zero. Columns come in the order of their priority:
// where they do not fit, the last one goes first. wide asks for the columns of every tier. No width depends on the data,
// so that nothing moves when the data does.
func share(rooms []room, screen int, wide bool) []int {
	widths := make([]int, len(rooms))
	left := screen - gutter + gap
	for i, r := range rooms {
		if (r.tier <= screen || wide) && r.least+gap <= left {
			widths[i] = r.least
			left -= r.least + gap
		}
	}
	for grown := true; grown; {
		grown = false
		for i, r := range rooms {
			if more := min(r.grow, r.most-widths[i], left); widths[i] > 0 && more > 0 {
				widths[i] += more
				left -= more
				grown = true
			}
		}
	}
	return widths
}
