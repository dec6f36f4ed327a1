package pipeline

import (
	"github.com/pawl-lock/pawl/resp/internal/request"
	"github.com/pawl-lock/pawl/resp/wire"
)

// resendLocked sends a script again, whole, if the error v is about its name alone. EVALSHA saves bytes, and is no
// condition: a server may have forgotten the script; and some proxies, and the rights of some users, have EVAL
// alone. From then on the connection calls scripts by their text.
func (p *Pipeline) resendLocked(e Entry, v wire.Value) bool {
	if e.form != request.EvalSHA {
		return false
	}
	refused := wire.NewServerError(v.Bytes)
	switch {
	case request.NoScript(refused):
	case request.Names(refused, "evalsha"):
		p.mu.evalOnly = true
	default:
		return false
	}
	e.form = request.Eval
	if p.appendLocked(e) != nil {
		return false
	}
	p.mu.resent++
	return true
}
