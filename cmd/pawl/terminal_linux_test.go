package main

import (
	"testing"
)

func TestWatch_AtATerminal_ShowsATableUntilQ(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	hold(t, s.URL(), "orders:1")
	term := atTerminal(t, env, `stty rows 24 cols 120; $pawl watch --interval 100ms; echo "code $?"`)
	term.awaitText("orders:1")
	term.typeKeys("q")
	term.awaitText("code 0")
	term.v.wait(t).expect(t, 0)
}
