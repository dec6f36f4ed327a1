package driver

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/resp/wire"
)

// What the machine is told of an answer. One that no script gives is never a success.
func TestAnswersAreReadForTheMachine(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		what    lock.What
		text    string
		verdict lock.Verdict
		answer  lock.Answer
		ttl     time.Duration
	}{
		"granted":               {lock.Acquiring, ":-2\r\n", lock.Answered, lock.Done, 0},
		"taken":                 {lock.Acquiring, ":1500\r\n", lock.Answered, lock.Taken, 1500 * time.Millisecond},
		"taken, ends now":       {lock.Acquiring, ":0\r\n", lock.Answered, lock.Taken, 0},
		"taken without end":     {lock.Acquiring, ":-1\r\n", lock.Answered, lock.Taken, -time.Millisecond},
		"an acquire's text":     {lock.Acquiring, "+OK\r\n", lock.Denied, 0, 0},
		"entered again":         {lock.Reentering, ":-2\r\n", lock.Answered, lock.Done, 0},
		"nothing to enter":      {lock.Reentering, ":-3\r\n", lock.Answered, lock.Missing, 0},
		"extended":              {lock.Extending, "*1\r\n:1\r\n", lock.Answered, lock.Done, 0},
		"nothing to extend":     {lock.Extending, "*1\r\n:0\r\n", lock.Answered, lock.Missing, 0},
		"no lock to extend":     {lock.Extending, "*1\r\n:-4\r\n", lock.Answered, lock.Foreign, 0},
		"not extended for now":  {lock.Extending, "*1\r\n:-5\r\n", lock.Busy, 0, 0},
		"an Extend's other":     {lock.Extending, "*1\r\n:7\r\n", lock.Denied, 0, 0},
		"an Extend's two":       {lock.Extending, "*2\r\n:1\r\n:1\r\n", lock.Denied, 0, 0},
		"an Extend without one": {lock.Extending, "*0\r\n", lock.Denied, 0, 0},
		"an Extend's number":    {lock.Extending, ":1\r\n", lock.Denied, 0, 0},
		"left":                  {lock.Leaving, ":0\r\n", lock.Answered, lock.Done, 0},
		"nothing to leave":      {lock.Leaving, ":-3\r\n", lock.Answered, lock.Missing, 0},
		"released":              {lock.Unlocking, ":1\r\n", lock.Answered, lock.Done, 0},
		"released, unheard":     {lock.Unlocking, ":2\r\n", lock.Answered, lock.Mute, 0},
		"nothing to release":    {lock.Unlocking, ":-3\r\n", lock.Answered, lock.Missing, 0},
		"paid":                  {lock.Settling, ":1\r\n", lock.Answered, lock.Done, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, _, err := wire.Decode([]byte(c.text))
			if err != nil {
				t.Fatal(err)
			}
			o := reading(&lock.Command{What: c.what}, resp.Reply{Value: v})
			if o.Verdict != c.verdict || o.Answer != c.answer || o.TTL != c.ttl {
				t.Errorf("verdict %d, answer %d, TTL %v; want %d, %d, %v", o.Verdict, o.Answer, o.TTL, c.verdict, c.answer, c.ttl)
			}
			if failed := o.Err != nil; failed != (c.verdict != lock.Answered) {
				t.Errorf("error %v", o.Err)
			}
			if o.Ack != nil {
				t.Error("replicas were asked")
			}
			if refused := errors.Is(o.Err, errRefused); refused != (c.verdict == lock.Busy) {
				t.Errorf("error %v", o.Err)
			}
		})
	}
}

// Each part of a batch has its own answer: a server may release, and refuse to grant.
func TestTheAnswersOfABatchAreThoseOfItsParts(t *testing.T) {
	t.Parallel()
	two := &lock.Batch{IDs: []int64{7, 8}}
	acquire, settle := lock.Command{What: lock.Acquiring, Also: two}, lock.Command{What: lock.Settling, Also: two}
	own := func(v lock.Verdict, a lock.Answer) lock.Outcome {
		return lock.Outcome{Verdict: v, Answer: a}
	}
	for name, x := range map[string]struct {
		c    lock.Command
		text string
		want lock.Outcome
		also []lock.Answer
	}{
		"granted": {acquire, "*3\r\n:1\r\n:-3\r\n:-2\r\n", own(lock.Answered, lock.Done),
			[]lock.Answer{lock.Done, lock.Missing}},
		"held": {acquire, "*3\r\n:2\r\n:-3\r\n:1500\r\n", lock.Outcome{Answer: lock.Taken, TTL: 1500 * time.Millisecond},
			[]lock.Answer{lock.Mute, lock.Missing}},
		"no memory": {acquire, "*3\r\n:1\r\n:1\r\n-OOM command not allowed\r\n", own(lock.Busy, lock.Done),
			[]lock.Answer{lock.Done, lock.Done}},
		"no right": {acquire, "*3\r\n:1\r\n:1\r\n-NOPERM no\r\n", own(lock.Denied, lock.Done),
			[]lock.Answer{lock.Done, lock.Done}},
		"released":      {settle, "*3\r\n:-3\r\n:1\r\n:2\r\n", own(lock.Answered, lock.Missing), []lock.Answer{lock.Done, lock.Mute}},
		"nonsense":      {settle, "*3\r\n:1\r\n:1\r\n$1\r\nx\r\n", own(lock.Denied, lock.Done), nil},
		"more nonsense": {acquire, "*3\r\n:1\r\n$1\r\nx\r\n:-2\r\n", own(lock.Denied, lock.Done), nil},
		"a token": {acquire, "*4\r\n:1\r\n:-3\r\n:-2\r\n:42\r\n", lock.Outcome{Token: 42},
			[]lock.Answer{lock.Done, lock.Missing}},
		"no right to count": {acquire, "*3\r\n:1\r\n:1\r\n-NOPERM no\r\n", own(lock.Denied, lock.Done), []lock.Answer{lock.Done, lock.Done}},
		"too many":          {acquire, "*5\r\n:1\r\n:1\r\n:-2\r\n:1\r\n:1\r\n", own(lock.Denied, lock.Done), nil},
		"too few":           {acquire, "*2\r\n:1\r\n:-2\r\n", own(lock.Denied, lock.Done), nil},
		"no list":           {settle, ":1\r\n", own(lock.Denied, lock.Done), nil},
		"all refused":       {settle, "-READONLY no\r\n", own(lock.Busy, lock.Done), nil},
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
