package script

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/resp"
)

// wakeups is a fair lock whose waiters may live: those are subscribed, and ask when they are told, and from then
// on again and again as long as the lock is free. The others have died.
type wakeups struct {
	*caller
	random  *rand.Rand
	conn    net.Conn
	answers *bufio.Reader
	owners  map[string]Owner
	lives   map[string]bool
	asks    map[string]bool
	story   []string
}

// said reads what has come so far, and notes who is told.
func (w *wakeups) said() {
	fmt.Fprint(w.conn, "PING\r\n")
	for prefix := queue(true).Channel.Name() + ":"; ; {
		line, err := w.answers.ReadString('\n')
		if err != nil {
			w.t.Fatal(err)
		}
		line = strings.TrimSpace(line)
		if owner, ok := strings.CutPrefix(line, prefix); ok && w.lives[owner] {
			w.asks[owner] = true
		}
		if line == "pong" {
			return
		}
	}
}

// listen begins or ends to listen to the channel of an owner.
func (w *wakeups) listen(owner string, lives bool) {
	delete(w.lives, owner)
	verb := "UNSUBSCRIBE"
	if lives {
		verb = "SUBSCRIBE"
	}
	fmt.Fprintf(w.conn, "%s %s:%s\r\n", verb, queue(true).Channel.Name(), owner)
	w.said()
	delete(w.asks, owner)
	if lives {
		w.lives[owner] = true
	}
}

func (w *wakeups) call(what string, encode func([]byte, resp.ScriptForm) []byte) {
	v, err := w.run(encode)
	if err != nil {
		w.t.Fatal(what, err)
	}
	w.said()
	w.story = append(w.story, fmt.Sprintf("%s -> %d; the queue is %v, and of it ask %v", what, v.Int, w.queued(), w.asks))
}

func (w *wakeups) ask(o Owner) {
	w.call(fmt.Sprint(o, " asks"), func(b []byte, f resp.ScriptForm) []byte { return AppendFair(b, f, queue(true), o, 9*time.Second, true) })
}

// release has an owner give the lock or its place back.
func (w *wakeups) release(o Owner) {
	w.call(fmt.Sprint(o, " releases"), func(b []byte, f resp.ScriptForm) []byte { return AppendFairRelease(b, f, queue(true), o, nobody, 0) })
}

func (w *wakeups) queued() (all []string) {
	list, _ := w.s.Do("LRANGE", queueName, "0", "-1").([]any)
	for _, o := range list {
		all = append(all, o.(string))
	}
	return all
}

// pass lets a second pass, and all who ask do.
func (w *wakeups) pass() {
	for _, o := range w.queued() {
		w.s.Do("ZINCRBY", timeoutName, "-1000", o)
	}
	for _, o := range w.queued() {
		if w.asks[o] && w.s.Do("EXISTS", lockName) == int64(0) {
			w.ask(w.owners[o])
		}
	}
}

// As long as the lock is free, somebody alive is told, or asks: random queues of ours and of Redisson's threads,
// of which some have died, and some leave.
func TestWhileAFairLockIsFreeSomebodyAliveKnows(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	seed := rand.Uint64()
	for round := range uint64(100) {
		conn, err := net.Dial("tcp", c.s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		w := &wakeups{
			caller: c, random: rand.New(rand.NewPCG(seed, round)), conn: conn, answers: bufio.NewReader(conn),
			owners: make(map[string]Owner), lives: make(map[string]bool), asks: make(map[string]bool),
		}
		w.listen("nobody", true) // a connection that listens answers a PING in its own way
		w.round()
		conn.Close()
		if t.Failed() {
			t.Fatalf("seed %d, round %d:\n%s", seed, round, strings.Join(w.story, "\n"))
		}
	}
}

func (w *wakeups) round() {
	w.s.Do("FLUSHALL")
	size, alive := 1+w.random.IntN(10), 0.1+w.random.Float64()/2
	if w.random.IntN(20) == 0 {
		size, alive = 40+w.random.IntN(50), 0.05
	}
	holder := Owner{Engine: me.Engine, ID: 2900000000000000029}
	w.ask(holder)
	for i := range size {
		o := Owner{Engine: []string{me.Engine, other.Engine}[w.random.IntN(2)], ID: 2100000000000000100 + int64(i)}
		if w.random.IntN(3) == 0 {
			o.ID = 100 + int64(i) // a thread of Redisson's
		}
		w.owners[o.String()] = o
		if w.random.Float64() < alive {
			w.listen(o.String(), true)
		}
		w.ask(o)
	}
	w.release(holder)
	for range 14 {
		if held, _ := w.s.Do("HKEYS", lockName).([]any); len(held) > 0 {
			clear(w.asks) // they sleep until they are told
			w.release(w.owners[held[0].(string)])
		}
		all := w.queued()
		asking := slices.DeleteFunc(slices.Clone(all), func(o string) bool { return !w.asks[o] })
		if len(asking) == 0 {
			if slices.ContainsFunc(all, func(o string) bool { return w.lives[o] }) {
				w.t.Error("nobody alive knows that the lock is free")
			}
			return
		}
		one := asking[w.random.IntN(len(asking))]
		switch w.random.IntN(4) {
		case 0:
			one = all[w.random.IntN(len(all))]
			fallthrough
		case 1: // a thread leaves without a word to anybody
			if o := w.owners[one]; o.ID > 1e11 {
				w.release(o)
				w.listen(one, false)
			}
		case 2:
			w.pass()
		default:
			w.ask(w.owners[one])
		}
	}
}
