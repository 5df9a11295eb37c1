package tui

import (
	"os"

	"github.com/aymanbagabas/go-osc52/v2"
	tea "github.com/charmbracelet/bubbletea"
)

// longestCopy is in bytes. Names are shorter, and terminals ignore long sequences.
const longestCopy = 1 << 10

// copyName gives the name under the cursor to the terminal's clipboard by OSC 52. tmux takes the plain sequence or the one
// that it passes through, as it was set; the other does nothing.
func (m *model) copyName() tea.Cmd {
	name := m.view().name()
	switch {
	case name == "":
		return nil
	case len(name) > longestCopy:
		m.say("this name is too long to be copied")
		return nil
	}
	name = clean(name)
	sequences := osc52.New(name).String()
	if os.Getenv("TMUX") != "" {
		sequences += osc52.New(name).Tmux().String()
	}
	out := m.out
	return func() tea.Msg {
		if _, err := out.Write([]byte(sequences)); err != nil {
			return saidMsg("the name could not be copied: " + err.Error())
		}
		return saidMsg("sent to the terminal's clipboard: " + name)
	}
}
