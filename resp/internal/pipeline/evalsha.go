package pipeline

import (
	"bytes"

	"github.com/pawl-lock/pawl/resp/internal/exchange"
	"github.com/pawl-lock/pawl/resp/wire"
)

// evalsha is what a connection knows of EVALSHA, which saves bytes and is no condition: some proxies,
// and some users' rights, have EVAL alone, and refuse it in words of their own. So a script that is refused
// in words that may be about EVALSHA is sent again, whole:
//
//	untried --whole: answered--------> shaRefused: scripts are sent whole
//	        --whole: the same words--> shaKnown: they are about what the script does
//
// Scripts may be repeated, as after a lost connection.
type evalsha uint8

const (
	untried evalsha = iota
	shaKnown
	shaRefused
)

// resendLocked sends a script again, whole, if the error v to it may be about its name alone.
func (p *Pipeline) resendLocked(e Entry, v wire.Value) bool {
	if e.form != exchange.Short {
		return false
	}
	refused := wire.NewServerError(v.Bytes)
	if !exchange.NoScript(refused) {
		if p.mu.evalsha != untried || !mayBeAboutName(refused) || !isScript(e.Request) {
			return false
		}
		e.short = refused
	}
	e.form = exchange.Whole
	if p.appendLocked(e) != nil {
		return false
	}
	p.mu.resent++
	return true
}

// mayBeAboutName reports whether EVALSHA may be refused in these words, and EVAL not.
func mayBeAboutName(e *wire.ServerError) bool {
	r := exchange.RefusalOf(e)
	return exchange.UnknownCommand(e) || r.Forbidden() || r.Of == exchange.OfCommand && r.Lasts == exchange.Unforeseen
}

// isScript reports whether r is a call of a script.
func isScript(r exchange.Request) (yes bool) {
	defer func() { _ = recover() }() // appendLocked will say so
	_, words, _ := bytes.Cut(r.AppendCommand(nil, exchange.Whole), []byte("\r\n"))
	return bytes.HasPrefix(words, []byte("$4\r\nEVAL\r\n"))
}

// answered notes v, the answer to a whole script that was refused by its name before. It returns the
// first refusal if that is to be said instead of v: the script may have begun then.
func (s *evalsha) answered(first *wire.ServerError, v wire.Value) *wire.ServerError {
	if v.Kind != wire.KindError {
		*s = shaRefused
		return nil
	}
	second := wire.NewServerError(v.Bytes)
	if second.Message == first.Message {
		*s = shaKnown
	}
	if exchange.RefusalOf(first).Executed == exchange.Perhaps && exchange.RefusalOf(second).Executed == exchange.No {
		return first
	}
	return nil
}
