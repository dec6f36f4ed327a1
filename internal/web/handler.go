package web

import (
	"bytes"
	"context"
	"crypto/rand"
	"embed"
	"html"
	"log/slog"
	"net/http"
	"path"
	"time"
)

// Config is what a Server needs.
type Config struct {
	Locks   Locks
	Pattern string        // of the names that are listed
	Every   time.Duration // between two looks
	// Hosts are names of the page in the browser's address, beside localhost.
	Hosts []string
	// Unlock takes a lock away from a holder, and returns how many locks or permits it took. Nil: nobody may.
	Unlock func(ctx context.Context, name, holder string) (int, error)
	Log    *slog.Logger
}

// Server answers the requests of the page.
type Server struct {
	cfg         Config
	board       *board
	history     *history
	source      *source
	token       string
	handler     http.Handler
	slots       chan struct{} // one for each open page
	inspections chan struct{}
	ended       chan struct{} // closed when Run ends
}

//go:embed assets
var assets embed.FS

// New makes a Server. Run must be called once.
func New(cfg Config) *Server {
	s := &Server{
		cfg: cfg, board: newBoard(), history: new(history), token: rand.Text(),
		slots: make(chan struct{}, maxPages), inspections: make(chan struct{}, maxInspections), ended: make(chan struct{}),
	}
	s.source = newSource(cfg, s.board, s.history)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.page)
	mux.HandleFunc("GET /assets/{file}", file)
	mux.HandleFunc("GET /api/events", s.events)
	mux.HandleFunc("GET /api/lock", s.lock)
	mux.HandleFunc("POST /api/unlock", s.unlock)
	s.handler = s.guard(mux)
	return s
}

// Run looks at the locks while pages are open, until ctx ends. Then all streams end.
func (s *Server) Run(ctx context.Context) {
	defer close(s.ended)
	s.source.run(ctx)
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// page is index.html with the token, if there is anything that needs it.
func (s *Server) page(w http.ResponseWriter, _ *http.Request) {
	text, _ := assets.ReadFile("assets/index.html")
	token := ""
	if s.cfg.Unlock != nil {
		token = html.EscapeString(s.token)
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(bytes.ReplaceAll(text, []byte("{{token}}"), []byte(token)))
}

// types are those of the files beside index.html: the tables of the machine are not to be trusted.
var types = map[string]string{
	".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".txt": "text/plain; charset=utf-8", ".svg": "image/svg+xml",
}

// file is one of the files beside index.html.
func file(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	text, err := assets.ReadFile("assets/" + name)
	kind := types[path.Ext(name)]
	if err != nil || kind == "" {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", kind)
	_, _ = w.Write(text)
}
