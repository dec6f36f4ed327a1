package pipeline

import (
	"errors"
	"io"
	"testing"

	"github.com/pawl-lock/pawl/resp/internal/request"
)

var errElsewhere = errors.New("the server is elsewhere")

func TestLane_Left_AnswersWhatIsInFlightAndTakesNothing(t *testing.T) {
	t.Parallel()
	l, tr, _ := scripted(func(c *Config) { c.MaxInFlight = 2 })
	var last *textCall
	p := submitTexts(l, "a")
	p = append(p, &textCall{text: "b", then: func(request.Reply) {
		// What ends what others have begun goes out still: the WAIT of a group.
		last = &textCall{text: "w"}
		l.SendOn(l.Connection(), Entry{Request: last, Always: true})
	}})
	l.Submit(p[1])
	patient := &patientCall{textCall: textCall{text: "c"}, priority: request.PriorityNormal}
	l.Submit(patient) // it waits for room

	l.Leave(errElsewhere)
	l.Leave(errors.New("again"))
	patient.wants(t, request.ErrNotSent, request.ErrDown)
	if err := l.Err(); err != errElsewhere {
		t.Errorf("it takes nothing, because of %v", err)
	}
	submitTexts(l, "d")[0].wants(t, request.ErrNotSent, request.ErrDown)

	tr.sink.OnBytes([]byte(":1\r\n"))
	if tr.closed != nil {
		t.Fatal("closed with commands in flight")
	}
	tr.sink.OnBytes([]byte(":2\r\n"))
	if last == nil || tr.closed != nil {
		t.Fatal("closed before what belongs to the answer was sent")
	}
	tr.sink.OnBytes([]byte(":3\r\n"))
	if tr.closed != errElsewhere {
		t.Fatalf("closed with %v", tr.closed)
	}
	tr.sink.OnClose(tr.closed)
	p[0].wantsInt(t, 1)
	p[1].wantsInt(t, 2)
	last.wantsInt(t, 3)
	if string(tr.wire) != "abw" {
		t.Errorf("wire: %q", tr.wire)
	}
}

func TestLane_LeftIdle_IsClosedAtOnce(t *testing.T) {
	t.Parallel()
	l, tr, _ := scripted(nil)
	l.Leave(errElsewhere)
	if tr.closed != errElsewhere {
		t.Fatalf("closed with %v", tr.closed)
	}
	l.Leave(io.EOF)
	tr.sink.OnClose(tr.closed)
	l.Leave(io.EOF) // there is none
}

// A script that the server does not know is still sent whole.
func TestLane_LeftBeforeNoScript_SendsTheScriptWhole(t *testing.T) {
	t.Parallel()
	l, tr, _ := scripted(nil)
	p := submitTexts(l, "a")
	l.Leave(errElsewhere)
	tr.sink.OnBytes([]byte("-NOSCRIPT x\r\n"))
	if tr.closed != nil {
		t.Fatal("closed with a command in flight")
	}
	tr.sink.OnBytes([]byte(":1\r\n"))
	p[0].wantsInt(t, 1)
	if tr.closed != errElsewhere || string(tr.wire) != "aA" {
		t.Errorf("closed with %v, wire %q", tr.closed, tr.wire)
	}
}

// A server that does not answer keeps nobody for longer than CommandTimeout.
func TestLane_LeftSilent_IsGivenUp(t *testing.T) {
	t.Parallel()
	l, tr, fake := scripted(nil)
	submitTexts(l, "a")
	l.Leave(errElsewhere)
	fake.Advance(l.cfg.CommandTimeout + 1)
	l.CheckAge(fake.Now())
	if !errors.Is(tr.closed, request.ErrTimeout) {
		t.Errorf("closed with %v", tr.closed)
	}
}

// A command that was refused for the connection has it left, in the middle of its batch.
func TestLane_LeftByARefusal_DeliversTheBatch(t *testing.T) {
	t.Parallel()
	var l *Lane
	l, tr, _ := scripted(nil)
	first := &textCall{text: "a", then: func(request.Reply) { l.Leave(errElsewhere) }}
	l.Submit(first)
	p := submitTexts(l, "b", "c")
	tr.sink.OnBytes([]byte("-NOAUTH x\r\n:2\r\n"))
	p[0].wantsInt(t, 2)
	if tr.closed != nil {
		t.Fatal("closed with a command in flight")
	}
	tr.sink.OnBytes([]byte(":3\r\n"))
	p[1].wantsInt(t, 3)
	if tr.closed != errElsewhere {
		t.Errorf("closed with %v", tr.closed)
	}
}
