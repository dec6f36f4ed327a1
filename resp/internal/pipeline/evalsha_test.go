package pipeline

import (
	"errors"
	"testing"

	"github.com/pawl-lock/pawl/resp/internal/request"
	"github.com/pawl-lock/pawl/resp/wire"
)

// scriptText is a call of a script.
type scriptText struct{ textCall }

func (p *scriptText) AppendCommand(dst []byte, form request.ScriptForm) []byte {
	if form == request.Eval {
		return wire.AppendCommand(dst, "EVAL", p.text, "0")
	}
	return append(dst, p.text...)
}

func submitScripts(l *Lane, texts ...string) []*scriptText {
	all := make([]*scriptText, len(texts))
	for i, text := range texts {
		all[i] = &scriptText{textCall{text: text}}
		l.Submit(all[i])
	}
	return all
}

func whole(text string) string { return string(wire.AppendCommand(nil, "EVAL", text, "0")) }

func (p *scriptText) wantsRefusal(t *testing.T, text string) {
	t.Helper()
	var e *wire.ServerError
	if p.reply == nil || !errors.As(p.reply.Err, &e) || e.Message != text {
		t.Errorf("%s: %+v, want %q", p.text, p.reply, text)
	}
}

func TestPipeline_EvalshaRefusedInAnyWords_SendsScriptsWhole(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"ERR unknown command 'EVALSHA', with args beginning with: ",
		"NOPERM this user has no permissions to run the 'evalsha' command",
		"ERR handle request, command 'EVALSHA' is not allowed",
		"unsupported command: evalsha",
		"ERR unknown command", // which does not say what it does not know
	} {
		l, tr, _ := scripted(nil)
		p := submitScripts(l, "a", "b")
		tr.sink.OnBytes([]byte("-" + line + "\r\n-" + line + "\r\n"))
		if got := string(tr.wire); got != "ab"+whole("a")+whole("b") {
			t.Fatalf("%s: wire %q", line, got)
		}
		tr.sink.OnBytes([]byte(":1\r\n:2\r\n"))
		p[0].wantsInt(t, 1)
		p[1].wantsInt(t, 2)
		before := len(tr.wire)
		submitScripts(l, "c")
		if got := string(tr.wire[before:]); got != whole("c") {
			t.Errorf("%s: the next script goes as %q", line, got)
		}
	}
}

func TestPipeline_OtherRefusals_AreNoReasonToRepeat(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"LOADING Redis is loading the dataset in memory", "READONLY You can't write against a read only replica.",
		"WRONGTYPE Operation against a key holding the wrong kind of value", "CROSSSLOT Keys in request don't hash to the same slot",
		"WAT is this", "ERR user_script:1: x", "NOPERM this user has no permissions to access one of the keys used as arguments",
		"NOAUTH Authentication required.", "TRYAGAIN Multiple keys request during rehashing of slot",
	} {
		l, tr, _ := scripted(nil)
		p := submitScripts(l, "a")
		tr.sink.OnBytes([]byte("-" + line + "\r\n"))
		p[0].wantsRefusal(t, line)
		if got := string(tr.wire); got != "a" {
			t.Errorf("%s: wire %q", line, got)
		}
	}
	// Nor is a command that is no script ever repeated.
	l, tr, _ := scripted(nil)
	submitTexts(l, "a")
	tr.sink.OnBytes([]byte("-ERR unknown command 'a'\r\n"))
	if got := string(tr.wire); got != "a" {
		t.Errorf("wire %q", got)
	}
}
