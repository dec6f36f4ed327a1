package web

import (
	"crypto/subtle"
	"encoding/json"
	"mime"
	"net/http"
	"time"
)

// unlockJSON is a request to take a lock away from one holder.
type unlockJSON struct {
	ID     string `json:"id"`     // of a row
	Name   string `json:"name"`   // if it has no row: as somebody has typed it
	Holder string `json:"holder"` // as the view of the lock has it
}

// maxUnlock is how long such a request may be.
const maxUnlock = 512 << 10

// tokenHeader has the token of the page. A form of another site cannot send it, and a script of
// another site neither reads the page nor may send a header.
const tokenHeader = "X-Pawl-Token"

// unlock takes a lock away, from the holder that the person saw and from no other.
func (s *Server) unlock(w http.ResponseWriter, r *http.Request) {
	if s.cfg.Unlock == nil {
		http.Error(w, "this page only shows: start pawl web with --allow-unlock", http.StatusForbidden)
		return
	}
	if subtle.ConstantTimeCompare([]byte(r.Header.Get(tokenHeader)), []byte(s.token)) != 1 {
		http.Error(w, "the token of the page is missing or of another process: load the page again", http.StatusForbidden)
		return
	}
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/json" {
		http.Error(w, "the request must be JSON", http.StatusUnsupportedMediaType)
		return
	}
	var u unlockJSON
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxUnlock)).Decode(&u); err != nil || u.ID+u.Name == "" || u.Holder == "" {
		http.Error(w, "the lock and its holder are missing", http.StatusBadRequest)
		return
	}
	name, ok := s.named(u.ID, u.Name)
	if !ok {
		http.Error(w, "no such lock was seen lately", http.StatusNotFound)
		return
	}
	n, err := s.cfg.Unlock(r.Context(), name, u.Holder)
	s.cfg.Log.Warn("force-unlock", "lock", shown(name, maxWhole), "holder", shown(u.Holder, maxClaim), "removed", n, "err", err, "from", r.RemoteAddr)
	if err != nil && n == 0 {
		http.Error(w, shown(err.Error(), 1000), http.StatusBadGateway)
		return
	}
	done := unlockedJSON{Removed: n}
	if n > 0 {
		s.history.add(idOf(name), name, event{At: time.Now(), What: "unlocked", Holder: shown(u.Holder, maxClaim)})
	}
	if err != nil {
		done.Problem = shown(err.Error(), 1000)
	}
	answer(w, done)
}

// unlockedJSON is what was done: how many locks or permits were taken, and what failed after that.
type unlockedJSON struct {
	Removed int    `json:"removed"`
	Problem string `json:"problem,omitempty"`
}
