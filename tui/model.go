package tui

import (
	"io"
	"strings"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/rollcall-dev/rollcall/internal/stream"
)

// A tab is one of the views that are always there.
type tab struct {
	title string
	left  string // the name of its table in the stream
	table view
	count func(*stream.State) int
	// open makes the view of what is inside a row; nil where nothing is.
	open func(id string) view
	// summary is a line above the table; nil for none.
	summary func(*model) string

	opened   view   // what was opened, nil for none
	openedOn string // the identity of its row
}

// view returns what the tab shows.
func (t *tab) view() view {
	if t.opened != nil {
		return t.opened
	}
	return t.table
}

// A page is text over the view.
type page struct {
	of  string // the identity of the row that it is about; empty for the help
	top int    // the first line on the screen
}

// model is the whole state of the UI. Only bubbletea's loop touches it.
type model struct {
	options Options
	out     io.Writer // the terminal
	shell   bool      // someone resumes this process when it is stopped
	*theme

	width, height int
	now           time.Time // by this machine's clock

	frame stream.Frame // the last one; its connection is shown
	// state is what is shown; while paused it is not the frame's.
	state    *stream.State
	received time.Time // when it came, by this machine's clock
	paused   bool
	// fellBehind is how often it was told already that this client was too slow.
	fellBehind int
	returns    int // how often the connection came back

	tabs   []*tab
	on     int // the tab that is shown
	page   *page
	typing bool
	typed  string
	wide   bool

	notice      string
	noticeUntil time.Time
	news        string // what was said last of a connection that came back
	rates       rates
	tally       tally

	screen string // as drawn last
	stale  bool   // the screen is not what it would be now
}

func newModel(o Options, t *theme) *model {
	m := &model{options: o, theme: t, now: o.Now(), stale: true}
	m.frame.Phase, m.frame.Since = stream.Connecting, m.now
	m.tabs = []*tab{
		{
			title: "Going", left: "going", table: newGoing(), count: func(s *stream.State) int { return len(s.Going) },
			open: func(id string) view { return newPods(id) },
		},
		{title: "Coming", left: "coming", table: newComing(), count: func(s *stream.State) int { return len(s.Coming) }},
		{title: "Queue", left: "keys", table: newWorkqueue(), count: func(s *stream.State) int { return len(s.Keys) }, summary: queueSummary},
		{title: "Log", left: "decisions", table: newDecisions(), count: func(s *stream.State) int { return len(s.Decisions) }},
		{
			title: "Standing", left: "standing", table: newStanding(), count: func(s *stream.State) int { return len(s.Standing) },
			open: func(id string) view { return newStandingPods(id) },
		},
	}
	return m
}

// The messages that bubbletea brings, beside its own.
type (
	frameMsg stream.Frame
	endMsg   struct{} // no frame will come any more
	clockMsg time.Time
	saidMsg  string // a notice
)

// Init waits for frames and for the clock.
func (m *model) Init() tea.Cmd { return tea.Batch(m.awaitFrame, tick()) }

// awaitFrame waits for the newest frame. It is one at a time: each frame asks for the next.
func (m *model) awaitFrame() tea.Msg {
	frame, ok := <-m.options.Frames
	if !ok {
		return endMsg{}
	}
	return frameMsg(frame)
}

// tick waits for the next second of the clock of ages and countdowns. Each wait is a command of its own: bubbletea v1.3.10
// starts a Tick's timer once, when it makes the command, so that the same one a second time waits for ever.
func tick() tea.Cmd {
	return tea.Tick(time.Second, func(t time.Time) tea.Msg { return clockMsg(t) })
}

// Update takes one message.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	m.now = m.options.Now()
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case frameMsg:
		m.takeFrame(stream.Frame(msg))
		m.stale = true
		return m, m.awaitFrame
	case clockMsg:
		m.takeSecond()
		m.stale = true
		return m, tick()
	case saidMsg:
		m.say(string(msg))
	case tea.KeyMsg:
		m.stale = true
		return m, m.press(msg)
	case endMsg, tea.ResumeMsg:
	default:
		return m, nil
	}
	m.stale = true
	return m, nil
}

// takeFrame shows a frame, but for its state while paused.
func (m *model) takeFrame(f stream.Frame) {
	cameBack := f.Phase == stream.Live && m.frame.Phase != stream.Live && m.frame.State != nil
	if cameBack {
		m.sayBack(m.frame, f)
	}
	m.frame = f
	if f.State == nil {
		return
	}
	m.rates.take(f.State)
	if !m.paused {
		m.show(f)
	}
}

// sayBack tells of a connection that is there again.
func (m *model) sayBack(before, now stream.Frame) {
	m.returns++
	text := "connected again to " + leaderOf(now.State)
	if now.State.Server.Boot != before.State.Server.Boot {
		text = "connected again: " + leaderOf(now.State) + " leads now"
	}
	if now.FellBehind > m.fellBehind {
		m.fellBehind = now.FellBehind
		text += "; this client had been too slow and was cut, and has a fresh snapshot"
	}
	m.say(text)
	m.news = text
}

// show makes a frame's state the one that is shown.
func (m *model) show(f stream.Frame) {
	m.state, m.received = f.State, f.Received
	if m.state != nil {
		m.tally = newTally(m.state)
	}
	m.reload()
}

// reload has the view that is shown know the state. The others get to know it when they are shown.
func (m *model) reload() {
	reading := m.page != nil && m.page.of != ""
	m.tell(m.view().load(m.state, reading))
	if reading && m.page.of != m.view().id() {
		m.page = nil // its object is gone, as the notice says
	}
}

func (m *model) takeSecond() {
	if m.frame.State != nil && m.frame.Phase == stream.Live { // else nothing is known of this second
		m.rates.second(m.now, m.frame)
	}
	if m.notice != "" && !m.now.Before(m.noticeUntil) {
		m.notice = ""
	}
}

// noticeFor is how long a notice stays.
const noticeFor = 10 * time.Second

func (m *model) say(notice string) {
	m.notice, m.noticeUntil = notice, m.now.Add(noticeFor)
}

// tell says what became of the cursor, if anything. What was just said of the connection stays before it: that is why.
func (m *model) tell(notice string) {
	if notice == "" {
		return
	}
	if m.news != "" && strings.HasPrefix(m.notice, m.news) {
		notice = m.news + "; " + notice
	}
	m.say(notice)
}

func (m *model) tab() *tab  { return m.tabs[m.on] }
func (m *model) view() view { return m.tab().view() }

// moment is what rows are written with: the controller's clock, as far as it is known.
func (m *model) moment() moment {
	now := m.now
	if m.state != nil {
		now = m.state.Time.Add(max(0, m.now.Sub(m.received)))
	}
	return moment{now, m.theme}
}
