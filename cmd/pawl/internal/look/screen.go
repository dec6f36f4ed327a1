package look

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/exit"
	"github.com/pawl-lock/pawl/internal/execlock"
)

// screen shows looks on the terminal until q is pressed.
func (w *watcher) screen(cmd *cobra.Command, interval time.Duration) error {
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	m := &model{ctx: ctx, watcher: w, interval: interval, height: 24, width: 80}
	_, err := tea.NewProgram(m, tea.WithContext(ctx), tea.WithOutput(cmd.OutOrStdout()), tea.WithInput(cmd.InOrStdin())).Run()
	if errors.Is(err, tea.ErrProgramKilled) || errors.Is(err, tea.ErrInterrupted) {
		return nil
	}
	return err
}

// model is the screen.
type model struct {
	ctx           context.Context
	watcher       *watcher
	interval      time.Duration
	height, width int
	content       string
}

// looked is the result of a look.
type looked struct{ content string }

// Init implements tea.Model.
func (m *model) Init() tea.Cmd { return m.look }

// Update implements tea.Model.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.height, m.width = msg.Height, msg.Width
	case tea.KeyPressMsg:
		switch msg.String() {
		case "q", "esc", "ctrl+c":
			return m, tea.Quit
		}
	case looked:
		m.content = msg.content
		return m, tea.Tick(m.interval, func(time.Time) tea.Msg { return m.look() })
	}
	return m, nil
}

// View implements tea.Model.
func (m *model) View() tea.View {
	v := tea.NewView(clip(m.content, m.width, m.height))
	v.AltScreen = true
	return v
}

// mostRows is how many rows are kept, however high the screen is.
const mostRows = 200

// look looks once. It runs on a goroutine of the program.
func (m *model) look() tea.Msg {
	rows, total, text, err := m.watcher.frame(m.ctx, mostRows)
	var b strings.Builder
	fmt.Fprintf(&b, "pawl watch %s  %s  q: quit\n", execlock.Shown(m.watcher.pattern), time.Now().Format("15:04:05"))
	switch {
	case err != nil:
		b.WriteString(execlock.Shown(exit.Text(err)) + "\n")
	case text != "":
		b.WriteString(text)
	default:
		fmt.Fprintf(&b, "locks: %d\n", total)
		table := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
		fmt.Fprintln(table, header)
		for _, r := range rows {
			printRow(table, r)
		}
		_ = table.Flush()
	}
	return looked{b.String()}
}

// clip cuts a text to the size of the screen.
func clip(text string, width, height int) string {
	lines := strings.SplitAfter(strings.TrimRight(text, "\n"), "\n")
	lines = lines[:min(len(lines), max(height, 1))]
	for i, line := range lines {
		if runes := []rune(strings.TrimSuffix(line, "\n")); len(runes) > width && width > 0 {
			lines[i] = string(runes[:width]) + "\n"
		}
	}
	return strings.TrimSuffix(strings.Join(lines, ""), "\n")
}
