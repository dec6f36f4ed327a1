package drive

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/machine"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/resp/wire"
)

// What the machine is told of an answer. One that no script gives is never a success.
func TestAnswersAreReadForTheMachine(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		what    machine.What
		text    string
		verdict machine.Verdict
		answer  machine.Answer
		ttl     time.Duration
	}{
		"granted":               {machine.Acquiring, ":-2\r\n", machine.Answered, machine.Done, 0},
		"taken":                 {machine.Acquiring, ":1500\r\n", machine.Answered, machine.Taken, 1500 * time.Millisecond},
		"taken, ends now":       {machine.Acquiring, ":0\r\n", machine.Answered, machine.Taken, 0},
		"taken without end":     {machine.Acquiring, ":-1\r\n", machine.Answered, machine.Taken, -time.Millisecond},
		"an acquire's text":     {machine.Acquiring, "+OK\r\n", machine.Denied, 0, 0},
		"entered again":         {machine.Reentering, ":-2\r\n", machine.Answered, machine.Done, 0},
		"nothing to enter":      {machine.Reentering, ":-3\r\n", machine.Answered, machine.Missing, 0},
		"extended":              {machine.Extending, "*1\r\n:1\r\n", machine.Answered, machine.Done, 0},
		"nothing to extend":     {machine.Extending, "*1\r\n:0\r\n", machine.Answered, machine.Missing, 0},
		"no lock to extend":     {machine.Extending, "*1\r\n:-4\r\n", machine.Answered, machine.Foreign, 0},
		"not extended for now":  {machine.Extending, "*1\r\n:-5\r\n", machine.Busy, 0, 0},
		"an Extend's other":     {machine.Extending, "*1\r\n:7\r\n", machine.Denied, 0, 0},
		"an Extend's two":       {machine.Extending, "*2\r\n:1\r\n:1\r\n", machine.Denied, 0, 0},
		"an Extend without one": {machine.Extending, "*0\r\n", machine.Denied, 0, 0},
		"an Extend's number":    {machine.Extending, ":1\r\n", machine.Denied, 0, 0},
		"left":                  {machine.Leaving, ":0\r\n", machine.Answered, machine.Done, 0},
		"nothing to leave":      {machine.Leaving, ":-3\r\n", machine.Answered, machine.Missing, 0},
		"released":              {machine.Unlocking, ":1\r\n", machine.Answered, machine.Done, 0},
		"released, unheard":     {machine.Unlocking, ":2\r\n", machine.Answered, machine.Mute, 0},
		"nothing to release":    {machine.Unlocking, ":-3\r\n", machine.Answered, machine.Missing, 0},
		"paid":                  {machine.Settling, ":1\r\n", machine.Answered, machine.Done, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, _, err := wire.Decode([]byte(c.text))
			if err != nil {
				t.Fatal(err)
			}
			o := reading(&machine.Command{What: c.what}, resp.Reply{Value: v})
			if o.Verdict != c.verdict || o.Answer != c.answer || o.TTL != c.ttl {
				t.Errorf("verdict %d, answer %d, TTL %v; want %d, %d, %v", o.Verdict, o.Answer, o.TTL, c.verdict, c.answer, c.ttl)
			}
			if failed := o.Err != nil; failed != (c.verdict != machine.Answered) {
				t.Errorf("error %v", o.Err)
			}
			if o.Ack != nil {
				t.Error("replicas were asked")
			}
			if refused := errors.Is(o.Err, errRefused); refused != (c.verdict == machine.Busy) {
				t.Errorf("error %v", o.Err)
			}
		})
	}
}

// Each part of a batch has its own answer: a server may release, and refuse to grant.
func TestTheAnswersOfABatchAreThoseOfItsParts(t *testing.T) {
	t.Parallel()
	two := &machine.Batch{IDs: []int64{7, 8}}
	acquire, settle := machine.Command{What: machine.Acquiring, Also: two}, machine.Command{What: machine.Settling, Also: two}
	own := func(v machine.Verdict, a machine.Answer) machine.Outcome {
		return machine.Outcome{Verdict: v, Answer: a}
	}
	for name, x := range map[string]struct {
		c    machine.Command
		text string
		want machine.Outcome
		also []machine.Answer
	}{
		"granted": {acquire, "*3\r\n:1\r\n:-3\r\n:-2\r\n", own(machine.Answered, machine.Done),
			[]machine.Answer{machine.Done, machine.Missing}},
		"held": {acquire, "*3\r\n:2\r\n:-3\r\n:1500\r\n", machine.Outcome{Answer: machine.Taken, TTL: 1500 * time.Millisecond},
			[]machine.Answer{machine.Mute, machine.Missing}},
		"no memory": {acquire, "*3\r\n:1\r\n:1\r\n-OOM command not allowed\r\n", own(machine.Busy, machine.Done),
			[]machine.Answer{machine.Done, machine.Done}},
		"no right": {acquire, "*3\r\n:1\r\n:1\r\n-NOPERM no\r\n", own(machine.Denied, machine.Done),
			[]machine.Answer{machine.Done, machine.Done}},
		"released":      {settle, "*3\r\n:-3\r\n:1\r\n:2\r\n", own(machine.Answered, machine.Missing), []machine.Answer{machine.Done, machine.Mute}},
		"nonsense":      {settle, "*3\r\n:1\r\n:1\r\n$1\r\nx\r\n", own(machine.Denied, machine.Done), nil},
		"more nonsense": {acquire, "*3\r\n:1\r\n$1\r\nx\r\n:-2\r\n", own(machine.Denied, machine.Done), nil},
		"a token": {acquire, "*4\r\n:1\r\n:-3\r\n:-2\r\n:42\r\n", machine.Outcome{Token: 42},
			[]machine.Answer{machine.Done, machine.Missing}},
		"no right to count": {acquire, "*3\r\n:1\r\n:1\r\n-NOPERM no\r\n", own(machine.Denied, machine.Done), []machine.Answer{machine.Done, machine.Done}},
		"too many":          {acquire, "*5\r\n:1\r\n:1\r\n:-2\r\n:1\r\n:1\r\n", own(machine.Denied, machine.Done), nil},
		"too few":           {acquire, "*2\r\n:1\r\n:-2\r\n", own(machine.Denied, machine.Done), nil},
		"no list":           {settle, ":1\r\n", own(machine.Denied, machine.Done), nil},
		"all refused":       {settle, "-READONLY no\r\n", own(machine.Busy, machine.Done), nil},
	} {
		v, _, err := wire.Decode([]byte(x.text))
		if err != nil {
			t.Fatal(err)
		}
		reply := resp.Reply{Value: v}
		if v.Kind == wire.KindError {
			reply = resp.Reply{Err: wire.NewServerError(v.Bytes)}
		}
		o := reading(&x.c, reply)
		if o.Verdict != x.want.Verdict || o.Answer != x.want.Answer || o.TTL != x.want.TTL {
			t.Errorf("%s: %+v, want %+v", name, o, x.want)
		}
		if o.Token != x.want.Token || !slices.Equal(o.Also, x.also) {
			t.Errorf("%s: token %d, releases %v, want %d, %v", name, o.Token, o.Also, x.want.Token, x.also)
		}
	}
}
