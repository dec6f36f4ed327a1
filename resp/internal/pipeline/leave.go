package pipeline

// leave has the connection end with err once everything in flight is answered.
//
//	leave               lock: nothing is taken from now on; what waited for room is taken out
//	                    nothing in flight, and nothing being completed: close
//	OnBytes             completes; what that submits to end what others have begun is sent
//	                    nothing in flight: close
func (p *Pipeline) leave(err error) {
	m := &p.mu
	m.Lock()
	if m.dead || m.leaving != nil {
		m.Unlock()
		return
	}
	m.leaving = err
	var waited []Entry
	for m.backlog.Len() > 0 {
		waited = append(waited, m.backlog.Pop())
	}
	idle := m.fifo.Len() == 0 && !m.draining
	m.Unlock()
	for _, e := range waited {
		p.lane.Refuse(e, p.lane.Refusal())
	}
	if idle {
		p.t.Close(err)
	}
}

// left returns why the connection is about to end, nil if it is not.
func (p *Pipeline) left() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.leaving
}
