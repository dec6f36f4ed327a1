package web

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// policy lets the page load what this server has, and nothing else. Nothing inline runs.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// guard refuses requests of other sites, and sets the headers of all answers.
//
// A site that somebody visits could point a name of its own at 127.0.0.1 (DNS rebinding), and would then be of the
// same origin as this page for a browser. The Host header has the name, and only known ones are
// answered.
func (s *Server) guard(next http.Handler) http.Handler {
	origin := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
		h.Set("Cache-Control", "no-store")
		site := r.Header.Get("Sec-Fetch-Site")
		switch {
		case !s.known(r.Host):
			http.Error(w, fmt.Sprintf("the host %q is none of this page's: to allow it, start pawl web with --host", shown(hostOf(r.Host), maxClaim)), http.StatusMisdirectedRequest)
		case strings.HasPrefix(r.URL.Path, "/api/") && site != "" && site != "same-origin" && site != "none":
			http.Error(w, "requests of other sites are refused", http.StatusForbidden)
		case origin.Check(r) != nil:
			http.Error(w, "requests of other sites are refused", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// known reports whether a Host header names this page. The port does not matter: a page of another port
// is of another origin.
func (s *Server) known(host string) bool {
	host = hostOf(host)
	for _, k := range append([]string{"localhost", "127.0.0.1", "::1"}, s.cfg.Hosts...) {
		if strings.EqualFold(strings.Trim(k, "[]"), host) {
			return true
		}
	}
	return false
}

// hostOf is a Host header without its port and brackets.
func hostOf(header string) string {
	if host, _, err := net.SplitHostPort(header); err == nil {
		return host
	}
	return strings.Trim(header, "[]")
}

// Loopback reports whether only processes of this machine can reach an address to listen on.
func Loopback(addr string) bool {
	host := hostOf(addr)
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
