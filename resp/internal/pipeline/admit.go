package pipeline

import "github.com/pawl-lock/pawl/resp/internal/request"

// admit lets in what has waited for room, as far as there is some. It runs on the
// loop, after replies were completed; drain writes what it appends.
func (p *Pipeline) admit() {
	m := &p.mu
	for {
		m.Lock()
		if m.dead || m.backlog.Len() == 0 || p.fullLocked() {
			m.Unlock()
			return
		}
		e := m.backlog.Pop()
		m.Unlock()
		if w, ok := e.Request.(request.PatientRequest); ok && !w.Wanted() {
			p.lane.Refuse(e, request.RefusedUnwanted)
			continue
		}
		e.admitted = true
		p.submit(e)
	}
}
