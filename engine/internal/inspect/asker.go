package inspect

import (
	"context"
	"encoding/hex"
	"errors"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/env"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/internal/invariants"
	"github.com/pawl-lock/pawl/resp"
)

const (
	// Patience is how long answers are waited for. A server that is far away has roundTrips of its round trip.
	Patience   = 200 * time.Millisecond
	roundTrips = 4
	// maxPublish is how long the server may take to have the question published: two round trips.
	maxPublish = time.Second
	// maxAnswers bounds how many engines are asked at once, and maxKept the bytes of what they say.
	maxAnswers = 10_000
	maxKept    = 64 << 20
)

// World is what an Asker needs of an engine.
type World struct {
	Client   env.Client
	Clock    clock.Clock
	Verb     string // PUBLISH or SPUBLISH
	DB       int
	RandRead func([]byte)
	After    func(time.Duration) (over <-chan struct{}, stop func() bool)
	Wait     func(a, b, c <-chan struct{}) int
}

// Answers are what came back.
type Answers struct {
	// All are those that can be read. Of two in the name of one engine at least one is a lie; nobody knows which.
	All []*Answer
	// Silent is how many listen and have not answered in their own names in time.
	Silent int
	// Err is why nobody could be asked; nil if the question was published.
	Err error
}

// ErrSlow is the Err of Answers if the server did not take the question in time.
var ErrSlow = errors.New("the server did not publish the question in time")

// Ask asks all engines. It returns when all that listen have answered, when Patience is over since the question
// was published, or when ctx ends.
func (w *World) Ask(ctx context.Context, about, text string) Answers {
	q := &Question{DB: w.DB, About: about, Text: []byte(text), Millis: Patience.Milliseconds()}
	w.name(q)
	a := &asker{id: q.ID, seen: make(map[string]bool), listens: make(chan struct{}), news: make(chan struct{}, 1)}
	a.channel.Init(q.Reply, a)
	a.channel.Quiet = true
	w.Client.Subscribe(&a.channel)
	defer w.Client.Unsubscribe(&a.channel)

	over, stop := w.After(maxPublish)
	defer func() { stop() }()
	if w.Wait(a.listens, over, ctx.Done()) != 0 {
		return Answers{Err: ErrSlow}
	}
	if a.refused != nil {
		return Answers{Err: a.refused}
	}
	var p published
	started, done := w.Clock.Now(), make(chan struct{})
	w.Client.Submit(w.Client.Route(Channel), &publication{verb: w.Verb, channel: Channel, message: q.Encode(), result: &p, done: done})
	if w.Wait(done, over, ctx.Done()) != 0 {
		return Answers{Err: ErrSlow}
	}
	if p.err != nil {
		return Answers{Err: p.err}
	}
	stop()
	over, stop = w.After(max(Patience, min(roundTrips*p.now.Sub(p.sent), maxPublish)) - w.Clock.Now().Sub(started)) // a paused process has measured its pause
	for a.read(); a.answered < p.receivers; a.read() {
		if w.Wait(a.news, over, ctx.Done()) != 0 {
			break
		}
	}
	return Answers{All: a.all, Silent: int(max(p.receivers-a.answered, 0))}
}

// name gives a question its id, and a channel for the answers. In a cluster that is on the server that publishes the
// question: another one may be down.
func (w *World) name(q *Question) {
	for range 1000 {
		var id [16]byte
		w.RandRead(id[:])
		q.ID = hex.EncodeToString(id[:])
		q.Reply = replyPrefix + q.ID
		if w.Client.AddrOf(w.Client.Route(q.Reply)) == w.Client.AddrOf(w.Client.Route(Channel)) {
			return
		}
	}
}

// asker collects the answers to one question.
type asker struct {
	id      string
	channel resp.Channel
	listens chan struct{} // closed when the channel is confirmed or refused
	refused error
	news    chan struct{}

	// The goroutine that asks reads the answers, not the event loop.
	all      []*Answer
	seen     map[string]bool
	answered int64 // engines

	mu        sync.Mutex
	confirmed bool // or refused: listens is closed
	came      [][]byte
	bytes     int
}

// ChannelEvent implements resp.ChannelHandler.
func (a *asker) ChannelEvent(ev resp.ChannelEvent, message []byte, err error) {
	defer invariants.FailStop()
	a.mu.Lock()
	defer a.mu.Unlock()
	switch ev {
	case resp.Subscribed, resp.Refused:
		if !a.confirmed {
			a.confirmed, a.refused = true, err
			close(a.listens)
		}
	case resp.Message:
		if a.bytes += len(message); a.bytes > maxKept || len(a.came) == maxAnswers {
			return
		}
		a.came = append(a.came, append([]byte(nil), message...))
		select {
		case a.news <- struct{}{}:
		default:
		}
	}
}

// read reads what has come.
func (a *asker) read() {
	a.mu.Lock()
	came := a.came
	a.came = nil
	a.mu.Unlock()
	for _, message := range came {
		answer, err := parseAnswer(message)
		if err != nil || answer.Question != a.id || len(a.all) == maxAnswers {
			continue
		}
		a.all = append(a.all, answer)
		if !a.seen[answer.Engine] {
			a.seen[answer.Engine] = true
			a.answered++
		}
	}
}
