package web

import (
	"context"
	"net/http"
	"time"
)

const (
	// maxPages is how many pages may be open at a time.
	maxPages = 32
	// writeTimeout is for one write: a page that takes nothing for so long is gone.
	writeTimeout = 30 * time.Second
	// firstLook is how long a page waits for the look that its coming has begun.
	firstLook = time.Second
)

// events streams what changes. The page says in Last-Event-ID what it has seen.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		http.Error(w, "too many pages are open", http.StatusServiceUnavailable)
		return
	}
	_, before, news := s.board.next(s.board.latest())
	first := s.source.open()
	defer s.source.close()
	out := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	if out.Flush() != nil {
		return
	}
	if first || before == 0 {
		s.await(r.Context(), news, firstLook) // what is on the board is old
	}
	seen := s.board.seen(r.Header.Get("Last-Event-ID"))
	for r.Context().Err() == nil {
		data, now, news := s.board.next(seen)
		for _, d := range data {
			_ = out.SetWriteDeadline(time.Now().Add(writeTimeout))
			if _, err := w.Write(d); err != nil {
				return
			}
		}
		if len(data) > 0 && out.Flush() != nil {
			return
		}
		if seen = now; len(data) == 0 && !s.await(r.Context(), news, time.Hour) {
			return
		}
	}
}

// await waits for a publication. It returns false if the stream ends.
func (s *Server) await(ctx context.Context, news <-chan struct{}, atMost time.Duration) bool {
	late := time.NewTimer(atMost)
	defer late.Stop()
	select {
	case <-news:
	case <-late.C:
	case <-ctx.Done():
		return false
	case <-s.ended:
		return false
	}
	return true
}
