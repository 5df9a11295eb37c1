package tui

import (
	"strings"
	"unicode/utf8"

	tea "github.com/charmbracelet/bubbletea"
)

// press takes what bubbletea read at once. Keys that repeat fast, or come over a slow line, come as one message of many
// runes, escape and the next key as one with alt; a paste is no keys.
func (m *model) press(k tea.KeyMsg) tea.Cmd {
	switch {
	case k.Paste && !m.typing:
		return nil
	case k.Alt: // escape and the next key, read at once: nothing is bound to alt
		k.Alt = false
		return tea.Sequence(m.pressOne(tea.KeyMsg{Type: tea.KeyEsc}), m.press(k))
	case k.Paste || len(k.Runes) < 2:
		return m.pressOne(k)
	}
	cmds := make([]tea.Cmd, len(k.Runes))
	for i, r := range k.Runes {
		cmds[i] = m.pressOne(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune{r}})
	}
	return tea.Sequence(cmds...)
}

// pressOne does what a key asks for.
func (m *model) pressOne(k tea.KeyMsg) tea.Cmd {
	if m.typing {
		return m.typeKey(k)
	}
	does := keyActions[k.String()]
	if !m.works(does) {
		return nil
	}
	switch does {
	case quit:
		return tea.Quit
	case suspend:
		return m.suspend()
	case copyName:
		return m.copyName()
	case pause:
		m.pause()
	case nextTab:
		m.turnTo((m.on + 1) % len(m.tabs))
	case previousTab:
		m.turnTo((m.on + len(m.tabs) - 1) % len(m.tabs))
	case tab1, tab2, tab3, tab4, tab5:
		m.turnTo(int(does - tab1))
	default:
		if m.page != nil {
			m.pressOnPage(does)
		} else if !m.moveCursor(does) {
			m.pressOnView(does)
		}
	}
	return nil
}

// works tells whether a key does something where the screen is. The footer offers no other keys.
func (m *model) works(does action) bool {
	switch does {
	case back:
		return m.page != nil || m.view().filtered() != "" || m.tab().opened != nil
	case find, nextOrder, reverseOrder, wide:
		return m.page == nil
	case copyName:
		return m.page == nil || m.page.of != ""
	}
	return does != none
}

// suspend gives the terminal back to the shell for a while.
func (m *model) suspend() tea.Cmd {
	if !m.shell {
		m.say("there is no shell here to go back to; q quits")
		return nil
	}
	return tea.Suspend
}

// pressOnView does what a key asks for that is neither everyone's nor the cursor's.
func (m *model) pressOnView(does action) {
	switch does {
	case enter:
		m.open()
	case inform:
		m.inform()
	case back:
		m.back()
	case find:
		m.typing, m.typed = true, m.view().filtered()
	case nextOrder, reverseOrder:
		m.view().sort(does == nextOrder)
		m.say("sorted by " + m.view().sorted())
	case wide:
		m.wide = !m.wide
	case help:
		m.page = &page{}
	}
}

// moveCursor tells whether the action was one of the cursor's.
func (m *model) moveCursor(does action) bool {
	v, screenful := m.view(), max(1, m.layout().rows-1)
	switch does {
	case moveUp:
		v.move(-1)
	case moveDown:
		v.move(1)
	case pageUp:
		v.move(-screenful)
	case pageDown:
		v.move(screenful)
	case toFirst:
		v.toTop()
	case toLast:
		v.toBottom()
	default:
		return false
	}
	return true
}

func (m *model) pressOnPage(does action) {
	switch does {
	case moveUp:
		m.page.top--
	case moveDown:
		m.page.top++
	case pageUp:
		m.page.top -= m.layout().rows
	case pageDown:
		m.page.top += m.layout().rows
	case toFirst:
		m.page.top = 0
	case toLast:
		m.page.top = len(m.pageLines())
	case back, enter, inform:
		m.closePage()
	case help:
		helps := m.page.of == ""
		m.closePage()
		if !helps {
			m.page = &page{}
		}
	}
	if m.page != nil {
		m.page.top = max(0, min(m.page.top, len(m.pageLines())-m.pageRows()))
	}
}

// closePage goes back to the view. What was kept for the page there goes its way again.
func (m *model) closePage() {
	m.page = nil
	m.tell(m.view().release())
}

func (m *model) turnTo(tab int) {
	if m.page != nil {
		m.closePage()
	}
	m.on = tab
	m.reload()
}

// open goes into a row: to the pods of a node, else to its page.
func (m *model) open() {
	t := m.tab()
	id := t.table.id()
	if t.open == nil || t.opened != nil || id == "" {
		m.inform()
		return
	}
	t.opened, t.openedOn = t.open(id), t.table.name()
	m.reload()
}

func (m *model) inform() {
	if id := m.view().id(); id != "" {
		m.view().move(0) // a person is at this object now, so that the cursor waits for no other
		m.page = &page{of: id}
	}
}

// back clears the filter, or else leaves what was opened.
func (m *model) back() {
	t := m.tab()
	switch {
	case m.view().filtered() != "":
		m.view().filter("")
	case t.opened != nil:
		t.opened = nil
		m.reload()
	}
}

// pause keeps what is shown, or shows what has come in the meantime.
func (m *model) pause() {
	m.paused = !m.paused
	if !m.paused {
		m.show(m.frame)
	}
}

// longestFilter is in runes, and more than any name has.
const longestFilter = 253

// typeKey takes a key while a filter is typed. The rows follow each one.
func (m *model) typeKey(k tea.KeyMsg) tea.Cmd {
	switch k.Type {
	case tea.KeyCtrlC:
		return tea.Quit
	case tea.KeyCtrlZ:
		return m.suspend()
	case tea.KeyEnter:
		m.typing = false
	case tea.KeyEsc:
		m.typing, m.typed = false, ""
	case tea.KeyBackspace:
		_, size := utf8.DecodeLastRuneInString(m.typed)
		m.typed = m.typed[:len(m.typed)-size]
	case tea.KeyCtrlU:
		m.typed = ""
	case tea.KeyRunes, tea.KeySpace:
		if text := m.typed + strings.Trim(clean(string(k.Runes)), "\n"); utf8.RuneCountInString(text) <= longestFilter {
			m.typed = text
		}
	}
	m.view().filter(m.typed)
	return nil
}
