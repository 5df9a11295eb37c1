package tui

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/x/term"
	"github.com/muesli/termenv"

	"github.com/rollcall-dev/rollcall/internal/stream"
	"github.com/rollcall-dev/rollcall/tui/internal/unasked"
)

func init() { unasked.Done() }

// Options say what a UI shows and where.
type Options struct {
	// Frames bring what is shown. The channel holds the newest frame only, and closes when there will be none any more.
	Frames <-chan stream.Frame
	// Context names the cluster, and Mode which controller is shown: the cluster's, one in this process, a recording.
	Context, Mode string
	// ASCII draws with nothing else.
	ASCII bool
	// Now is this machine's clock.
	Now func() time.Time
	// In and Out are the terminal; both must be files, as NeedsTerminal says.
	In  io.Reader
	Out io.Writer
}

// errNoTerminal is what Run answers where there is no terminal.
type errNoTerminal struct{}

func (errNoTerminal) Error() string { return "this is no terminal, and the live view needs one" }

// Hint returns the way out.
func (errNoTerminal) Hint() string {
	return "kubectl rollcall stream --once prints what the controller knows, kubectl rollcall check what becomes of pods"
}

// NeedsTerminal returns an error, with a hint, unless in and out are a terminal.
func NeedsTerminal(in io.Reader, out io.Writer) error {
	for _, end := range []any{in, out} {
		if file, ok := end.(*os.File); !ok || !term.IsTerminal(file.Fd()) {
			return errNoTerminal{}
		}
	}
	return nil
}

// Run shows the frames until a person quits or ctx ends; both are no error. It has the terminal for itself meanwhile: have
// Quiet called before anything is connected.
func Run(ctx context.Context, o Options) error {
	if err := NeedsTerminal(o.In, o.Out); err != nil {
		return err
	}
	file := o.Out.(*os.File) // NeedsTerminal saw it
	out := &terminal{File: file}
	profile := termenv.NewOutput(file).EnvColorProfile() // NO_COLOR, CLICOLOR and TERM, as others read them
	m := newModel(o, newTheme(profile, o.ASCII))
	m.out, m.shell = out, shellWaits()
	return run(ctx, m, tea.WithInput(o.In), tea.WithOutput(out), tea.WithAltScreen())
}

// run ends with ctx as it ends with a key. tea.WithContext would not do: a program that is killed closes its input beneath its
// reader, which may by then read another file of the same number (Program.shutdown, v1.3.10).
func run(ctx context.Context, m *model, how ...tea.ProgramOption) error {
	program := tea.NewProgram(m, append(how, tea.WithoutSignalHandler())...)
	defer context.AfterFunc(ctx, program.Quit)() // Quit does nothing once the program has ended
	if _, err := program.Run(); err != nil {
		return fmt.Errorf("showing the live view: %w", err)
	}
	return nil
}

// A terminal is written to by bubbletea's renderer and by what copies a name, one after the other.
type terminal struct {
	*os.File
	mu sync.Mutex
}

var _ io.Writer = (*terminal)(nil)

// Write writes all of p before another write begins.
func (t *terminal) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.File.Write(p)
}
