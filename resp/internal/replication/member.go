package replication

import "github.com/pawl-lock/pawl/resp/internal/request"

// Member is a request on its way through a Lane: what the plain lane is given.
type Member struct {
	request request.DurableRequest
	lane    *Lane
	group   *group // from when it is sent
	hops    uint8  // as in pipeline.Entry
	asked   bool
	reply   request.Reply
	ack     request.Ack // reply.Ack
}

// AppendCommand implements Request.
func (m *Member) AppendCommand(dst []byte, form request.ScriptForm) []byte {
	return m.request.AppendCommand(dst, form)
}

// Complete implements Request.
func (m *Member) Complete(r request.Reply) {
	l := m.lane
	defer l.pump() // this may have been all that the group waited for
	if r.Err != nil || !m.request.NeedsAck(r.Value) {
		m.left(false)
		m.request.Complete(r)
		return
	}
	m.reply = r
	m.reply.Value = r.Value.Clone()
	m.left(true)
}

// left notes that m waits for nothing in its group any more, or for the WAIT.
func (m *Member) left(answered bool) {
	l := m.lane
	l.mu.Lock()
	defer l.mu.Unlock()
	m.group.pending--
	if answered {
		m.group.answered = append(m.group.answered, m)
	}
}

// MoveTo is for a member that its primary has sent on: it goes into a group there.
func (m *Member) MoveTo(to *Lane, hops uint8, asking bool) {
	from := m.lane
	m.left(false)
	m.hops, m.asked = hops, asking
	to.submit(m)
	from.pump()
}
