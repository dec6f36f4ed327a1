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
		what    lock.CommandKind
		text    string
		verdict lock.Result
		answer  lock.Reply
		ttl     time.Duration
	}{
		"granted":               {lock.Acquiring, ":-2\r\n", lock.Replied, lock.OK, 0},
		"taken":                 {lock.Acquiring, ":1500\r\n", lock.Replied, lock.HeldByOther, 1500 * time.Millisecond},
		"taken, ends now":       {lock.Acquiring, ":0\r\n", lock.Replied, lock.HeldByOther, 0},
		"taken without end":     {lock.Acquiring, ":-1\r\n", lock.Replied, lock.HeldByOther, -time.Millisecond},
		"an acquire's text":     {lock.Acquiring, "+OK\r\n", lock.Refused, 0, 0},
		"entered again":         {lock.Reentering, ":-2\r\n", lock.Replied, lock.OK, 0},
		"nothing to enter":      {lock.Reentering, ":-3\r\n", lock.Replied, lock.NotOwner, 0},
		"extended":              {lock.Extending, "*1\r\n:1\r\n", lock.Replied, lock.OK, 0},
		"nothing to extend":     {lock.Extending, "*1\r\n:0\r\n", lock.Replied, lock.NotOwner, 0},
		"no lock to extend":     {lock.Extending, "*1\r\n:-4\r\n", lock.Replied, lock.OtherType, 0},
		"not extended for now":  {lock.Extending, "*1\r\n:-5\r\n", lock.RetryLater, 0, 0},
		"an Extend's other":     {lock.Extending, "*1\r\n:7\r\n", lock.Refused, 0, 0},
		"an Extend's two":       {lock.Extending, "*2\r\n:1\r\n:1\r\n", lock.Refused, 0, 0},
		"an Extend without one": {lock.Extending, "*0\r\n", lock.Refused, 0, 0},
		"an Extend's number":    {lock.Extending, ":1\r\n", lock.Refused, 0, 0},
		"left":                  {lock.Decrementing, ":0\r\n", lock.Replied, lock.OK, 0},
		"nothing to leave":      {lock.Decrementing, ":-3\r\n", lock.Replied, lock.NotOwner, 0},
		"released":              {lock.Releasing, ":1\r\n", lock.Replied, lock.OK, 0},
		"released, unheard":     {lock.Releasing, ":2\r\n", lock.Replied, lock.NotPublished, 0},
		"nothing to release":    {lock.Releasing, ":-3\r\n", lock.Replied, lock.NotOwner, 0},
		"paid":                  {lock.Compensating, ":1\r\n", lock.Replied, lock.OK, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, _, err := wire.Decode([]byte(c.text))
			if err != nil {
				t.Fatal(err)
			}
			o := reading(&lock.Command{Action: c.what}, resp.Reply{Value: v})
			if o.Result != c.verdict || o.Reply != c.answer || o.TTL != c.ttl {
				t.Errorf("verdict %d, answer %d, TTL %v; want %d, %d, %v", o.Result, o.Reply, o.TTL, c.verdict, c.answer, c.ttl)
			}
			if failed := o.Err != nil; failed != (c.verdict != lock.Replied) {
				t.Errorf("error %v", o.Err)
			}
			if refused := errors.Is(o.Err, errRefused); refused != (c.verdict == lock.RetryLater) {
				t.Errorf("error %v", o.Err)
			}
		})
	}
}

// Each part of a batch has its own answer: a server may release, and refuse to grant.
func TestTheAnswersOfABatchAreThoseOfItsParts(t *testing.T) {
	t.Parallel()
	acquire, settle := lock.Command{Action: lock.Acquiring, Batched: 2}, lock.Command{Action: lock.Compensating, Batched: 2}
	own := func(v lock.Result, a lock.Reply) lock.Outcome {
		return lock.Outcome{Result: v, Reply: a}
	}
	for name, x := range map[string]struct {
		c    lock.Command
		text string
		want lock.Outcome
		also []lock.Reply
	}{
		"granted": {acquire, "*3\r\n:1\r\n:-3\r\n:-2\r\n", own(lock.Replied, lock.OK),
			[]lock.Reply{lock.OK, lock.NotOwner}},
		"held": {acquire, "*3\r\n:2\r\n:-3\r\n:1500\r\n", lock.Outcome{Reply: lock.HeldByOther, TTL: 1500 * time.Millisecond},
			[]lock.Reply{lock.NotPublished, lock.NotOwner}},
		"no memory": {acquire, "*3\r\n:1\r\n:1\r\n-OOM command not allowed\r\n", own(lock.RetryLater, lock.OK),
			[]lock.Reply{lock.OK, lock.OK}},
		"no right": {acquire, "*3\r\n:1\r\n:1\r\n-NOPERM no\r\n", own(lock.Refused, lock.OK),
			[]lock.Reply{lock.OK, lock.OK}},
		"released":      {settle, "*3\r\n:-3\r\n:1\r\n:2\r\n", own(lock.Replied, lock.NotOwner), []lock.Reply{lock.OK, lock.NotPublished}},
		"nonsense":      {settle, "*3\r\n:1\r\n:1\r\n$1\r\nx\r\n", own(lock.Refused, lock.OK), []lock.Reply{lock.OK}},
		"more nonsense": {acquire, "*3\r\n:1\r\n$1\r\nx\r\n:-2\r\n", own(lock.Refused, lock.OK), []lock.Reply{lock.OK}},
		"a token": {acquire, "*4\r\n:1\r\n:-3\r\n:-2\r\n:42\r\n", lock.Outcome{Token: 42},
			[]lock.Reply{lock.OK, lock.NotOwner}},
		"no right to count": {acquire, "*3\r\n:1\r\n:1\r\n-NOPERM no\r\n", own(lock.Refused, lock.OK), []lock.Reply{lock.OK, lock.OK}},
		"too many":          {acquire, "*5\r\n:1\r\n:1\r\n:-2\r\n:1\r\n:1\r\n", own(lock.Refused, lock.OK), nil},
		"too few":           {acquire, "*2\r\n:1\r\n:-2\r\n", own(lock.Refused, lock.OK), nil},
		"no list":           {settle, ":1\r\n", own(lock.Refused, lock.OK), nil},
		"all refused":       {settle, "-READONLY no\r\n", own(lock.RetryLater, lock.OK), nil},
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
		if o.Result != x.want.Result || o.Reply != x.want.Reply || o.TTL != x.want.TTL {
			t.Errorf("%s: %+v, want %+v", name, o, x.want)
		}
		also := o.BatchReplies[:o.BatchAnswers]
		if o.Token != x.want.Token || !slices.Equal(also, x.also) {
			t.Errorf("%s: token %d, releases %v, want %d, %v", name, o.Token, also, x.want.Token, x.also)
		}
	}
}
