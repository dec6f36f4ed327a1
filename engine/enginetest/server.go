package enginetest

import (
	"time"

	"github.com/pawl-lock/pawl/internal/embedded"
)

// server is what an Env needs of a server: faults, and a look at the data, past all clients. A fault
// goes for every client that connects by the Env's URL.
type server interface {
	Down()
	Up() error
	Delay(d time.Duration)
	DropReplies(n int)
	Refuse(text string)
	Heal() // ends the three above
	SetReplicas(n int)
	Close()

	// Type is what a key is: a hash, a string and so on, "none" if there is none.
	Type(db int, key string) string
	Keys(db int) []string
	Owners(db int, key string) []string // the fields of a hash
	Queued(db int, key string) []string // the elements of a list
	// Own makes the key a hash with that owner only; it is never free meanwhile.
	Own(db int, key, owner string, lease time.Duration)
	Overwrite(db int, key, text string, lease time.Duration)
	Delete(db int, key string)
	Publish(channel, message string)
}

// local is the server inside the test's process. Its data can be had while it is down.
type local struct{ *embedded.Server }

func (s local) Heal() {
	s.Delay(0)
	s.DropReplies(0)
	s.Refuse("")
}

func (s local) Type(db int, key string) string {
	if at := s.Redis().DB(db); at.Exists(key) {
		return at.Type(key)
	}
	return "none"
}

func (s local) Keys(db int) []string { return s.Redis().DB(db).Keys() }

func (s local) Owners(db int, key string) []string {
	owners, _ := s.Redis().DB(db).HKeys(key)
	return owners
}

func (s local) Queued(db int, key string) []string {
	queued, _ := s.Redis().DB(db).List(key)
	return queued
}

func (s local) Own(db int, key, owner string, lease time.Duration) {
	at := s.Redis().DB(db)
	at.HSet(key, owner, "1")
	for _, other := range s.Owners(db, key) {
		if other != owner {
			at.HDel(key, other)
		}
	}
	at.SetTTL(key, lease)
}

func (s local) Overwrite(db int, key, text string, lease time.Duration) {
	at := s.Redis().DB(db)
	at.Del(key)
	_ = at.Set(key, text)
	at.SetTTL(key, lease)
}

func (s local) Delete(db int, key string) { s.Redis().DB(db).Del(key) }

func (s local) Publish(channel, message string) { s.Redis().Publish(channel, message) }
