package inspect

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Channel is where engines listen for questions. No lock has it: the channel of a lock has a brace. It is
// among the channels that every user of a lock has the right to.
const Channel = "redisson_lock__channel:pawl-inspect"

// replyPrefix begins the name of every reply channel: an engine publishes an answer nowhere else.
const replyPrefix = Channel + ":"

// The bounds of what is sent, and of what is read.
const (
	version      = 1
	maxQuestion  = 128 << 10 // a name has 64 KiB at most, 88 in base64
	maxPattern   = 1 << 10   // a name of 64 KiB is compared with it in a fraction of a second
	maxAnswer    = 512 << 10
	maxUses      = 100 // of an answer
	maxUnder     = 8   // of a use
	maxText      = 256 // bytes of a host, a service, a call site
	MaxLabels    = 1 << 10
	maxEngineID  = 64
	maxChannel   = 128
	maxOwner     = 256
	bytesForUses = maxAnswer / 2 // of names: base64, and the rest
	maxWaiting   = 1 << 32       // of a name: sums of it are numbers still
)

// What a question asks for.
const (
	AboutName    = "name"    // holds and waits of one name
	AboutPattern = "pattern" // the holds of names that match, and how many wait
	AboutWaits   = "waits"   // all waits whose callers hold something, and one of the others for each name
)

// Question is what an asker publishes.
type Question struct {
	Version int    `json:"v"`
	ID      string `json:"id"`
	Reply   string `json:"to"` // the channel
	DB      int    `json:"db"`
	About   string `json:"about"`
	Text    []byte `json:"text,omitempty"` // the name as it stands on the server, or the pattern
	// Millis is how long the asker waits. An engine that comes to it later does not answer.
	Millis int64 `json:"ms"`
}

// Answer is what one engine publishes.
type Answer struct {
	Version  int               `json:"v"`
	Question string            `json:"id"`
	Engine   string            `json:"engine"`
	Host     string            `json:"host,omitempty"`
	PID      int               `json:"pid,omitempty"`
	Service  string            `json:"service,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	// Held and Waiting count all of the engine's locks, semaphores and latches. Dropped counts the questions that it has not
	// answered, because there were too many.
	Held    int    `json:"held"`
	Waiting int    `json:"waiting"`
	Dropped uint64 `json:"dropped,omitempty"`
	Names   []Name `json:"names,omitempty"`
	// More counts the holds and waits that were left out.
	More int `json:"more,omitempty"`
}

// Name is what an engine has of one name.
type Name struct {
	Name    []byte `json:"name,omitempty"` // empty: the one that was asked for
	Waiting int    `json:"waiting,omitempty"`
	Uses    []Use  `json:"uses,omitempty"`
}

// Use is a hold, or a wait.
type Use struct {
	Held   bool   `json:"held,omitempty"`
	Kind   string `json:"kind"`
	Owner  string `json:"owner,omitempty"` // of a hold: as on the server; of permits the first id
	Size   int    `json:"size,omitempty"`  // how many permits
	Millis int64  `json:"ms"`              // how long it has lasted
	// Renewals and Depth are those of a hold.
	Renewals int       `json:"renewals,omitempty"`
	Depth    int       `json:"depth,omitempty"`
	Site     string    `json:"site,omitempty"`
	Under    []Carried `json:"under,omitempty"` // of a wait: the holds of its context
}

// Carried is a hold that the context of a wait carries.
type Carried struct {
	Name  []byte `json:"name"`
	Owner string `json:"owner"`
	Kind  string `json:"kind"`
}

// For is how long the use has lasted.
func (u *Use) For() time.Duration { return time.Duration(u.Millis) * time.Millisecond }

var (
	errTooLong = errors.New("longer than allowed")
	errForm    = errors.New("not of the form that is expected")
	errVersion = errors.New("of another version")
)

// Encode is the message of a question.
func (q *Question) Encode() []byte {
	q.Version = version
	b, err := json.Marshal(q)
	if err != nil {
		panic("BUG: inspect: " + err.Error()) // it has no type that JSON lacks
	}
	return b
}

// parseQuestion reads the message of a question, which may be anybody's.
func parseQuestion(b []byte) (*Question, error) {
	q := new(Question)
	if len(b) > maxQuestion {
		return nil, errTooLong
	}
	if err := json.Unmarshal(b, q); err != nil {
		return nil, errForm
	}
	switch {
	case q.Version != version:
		return nil, errVersion
	case len(q.ID) > maxEngineID || len(q.Reply) > maxChannel || !strings.HasPrefix(q.Reply, replyPrefix) || strings.Contains(q.Reply, "{"):
		return nil, errForm // it publishes to no channel of a lock, whose waiters a message would wake: that of "pawl-inspect:{x}" has the prefix
	case q.About != AboutName && q.About != AboutPattern && q.About != AboutWaits:
		return nil, errForm
	case q.About == AboutPattern && len(q.Text) > maxPattern:
		return nil, errTooLong
	case q.Millis <= 0 || q.Millis > time.Hour.Milliseconds():
		return nil, errForm
	}
	return q, nil
}

// Encode is the message of an answer. What does not fit is left out, and counted.
func (a *Answer) Encode() []byte {
	a.Version = version
	a.cut()
	a.clamp()
	for {
		b, err := json.Marshal(a)
		if err != nil {
			panic("BUG: inspect: " + err.Error())
		}
		if len(b) <= maxAnswer {
			return b
		}
		for _, n := range a.Names[len(a.Names)/2:] {
			a.More += len(n.Uses)
		}
		a.Names = a.Names[:len(a.Names)/2]
	}
}

// parseAnswer reads the message of an answer, which may be anybody's.
func parseAnswer(b []byte) (*Answer, error) {
	a := new(Answer)
	if len(b) > maxAnswer {
		return nil, errTooLong
	}
	if err := json.Unmarshal(b, a); err != nil {
		return nil, errForm
	}
	switch {
	case a.Version != version:
		return nil, errVersion
	case a.Engine == "" || len(a.Engine) > maxEngineID:
		return nil, errForm
	}
	a.clamp()
	return a, nil
}

// Add adds what the engine has of a name. Of more than an answer has room for, the holds and waits
// that have lasted longest stay.
func (a *Answer) Add(n Name) {
	if a.Names = append(a.Names, n); len(a.Names) >= 8*maxUses {
		a.cut()
	}
}

// cut keeps the names whose holds and waits have lasted longest.
func (a *Answer) cut() {
	uses := 0
	for i := range a.Names {
		uses += len(a.Names[i].Uses)
	}
	if max(len(a.Names), uses) > maxUses {
		// Waits under a hold come first: a deadlock is among them.
		slices.SortStableFunc(a.Names, func(x, y Name) int {
			return cmp.Or(cmp.Compare(y.carries(), x.carries()), cmp.Compare(y.longest(), x.longest()))
		})
		a.dropFrom(min(len(a.Names), maxUses))
	}
}

// longest is how long the longest of the uses has lasted.
func (n *Name) longest() (ms int64) {
	for i := range n.Uses {
		ms = max(ms, n.Uses[i].Millis)
	}
	return ms
}

// carries is 1 if the context of a wait carries a hold, and else 0.
func (n *Name) carries() int {
	if slices.ContainsFunc(n.Uses, func(u Use) bool { return len(u.Under) > 0 }) {
		return 1
	}
	return 0
}

// clamp bounds what an answer says. It copies the lists: those that were read may have room for a list that is forty
// times as large as the message. A name takes half of what room is left at most: those of 64 KiB leave room for others.
func (a *Answer) clamp() {
	a.Host, a.Service = short(a.Host, maxText), short(a.Service, maxText)
	a.PID, a.Held, a.Waiting, a.More = max(a.PID, 0), max(a.Held, 0), max(a.Waiting, 0), max(a.More, 0)
	if size(a.Labels) > MaxLabels {
		a.Labels = nil
	}
	room, bytes := maxUses, bytesForUses
	var names []Name
	for i := range a.Names {
		n := &a.Names[i]
		size := len(n.Name)
		uses := slices.Clone(n.Uses[:min(len(n.Uses), room)])
		for j := range uses {
			size += uses[j].clamp()
		}
		if room == 0 || size > bytes/2 {
			a.More += max(len(n.Uses), 1)
			continue
		}
		a.More += len(n.Uses) - len(uses)
		names = append(names, Name{n.Name, min(max(n.Waiting, 0), maxWaiting), uses})
		room, bytes = room-max(len(uses), 1), bytes-size
	}
	a.Names = names
}

// dropFrom leaves the names from i on out.
func (a *Answer) dropFrom(i int) {
	for _, n := range a.Names[i:] {
		a.More += max(len(n.Uses), 1)
	}
	clear(a.Names[i:])
	a.Names = a.Names[:i]
}

// clamp bounds what an answer says of one use, and returns how much its names take.
func (u *Use) clamp() (bytes int) {
	u.Kind, u.Owner, u.Site = short(u.Kind, maxText), short(u.Owner, maxOwner), short(u.Site, maxText)
	u.Millis = min(max(u.Millis, 0), int64(100*365*24*time.Hour/time.Millisecond))
	u.Size, u.Renewals, u.Depth = max(u.Size, 0), max(u.Renewals, 0), max(u.Depth, 0)
	u.Under = slices.Clone(u.Under[:min(len(u.Under), maxUnder)])
	for i := range u.Under {
		c := &u.Under[i]
		c.Owner, c.Kind = short(c.Owner, maxOwner), short(c.Kind, maxText)
		bytes += len(c.Name)
	}
	return bytes
}

// size is how many bytes labels have.
func size(labels map[string]string) (n int) {
	for k, v := range labels {
		n += len(k) + len(v)
	}
	return n
}

// LabelsFit reports whether labels are short enough for an answer.
func LabelsFit(labels map[string]string) bool { return size(labels) <= MaxLabels }

// short cuts a text at most bytes, between two characters.
func short(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most]
}
