package redisadmin

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/resp/wire"
)

// Conn is a connection for what is done beside the measuring: counting, foreign
// holds, looking for leftovers. It has no goroutine and does nothing unasked, so
// that it disturbs no figure. It belongs to one goroutine.
type Conn struct {
	cfg  engine.Config
	ID   string // of the connection, for CLIENT LIST; "" if the server does not say
	conn net.Conn
	dec  wire.Decoder
	in   []byte // read and not decoded yet
	buf  []byte // in lies in it
	out  []byte

	stale bool // conn is closed: each dials
}

const (
	connectTimeout = 5 * time.Second
	// adminTimeout bounds one exchange; a server that is flooded may take long.
	adminTimeout = 30 * time.Second
)

// Patience bounds connecting, of the engine too.
func Patience(cfg engine.Config) time.Duration { return cmp.Or(cfg.DialTimeout, connectTimeout) }

// Dial connects to the first of the addresses.
func Dial(ctx context.Context, cfg engine.Config) (*Conn, error) {
	a := &Conn{cfg: cfg, buf: make([]byte, 64<<10)}
	return a, a.dial(ctx)
}

func (a *Conn) dial(ctx context.Context) error {
	cfg := a.cfg
	network, addr := "tcp", cfg.Addrs[0]
	if addr[0] == '/' {
		network = "unix"
	}
	ctx, cancel := context.WithTimeout(ctx, Patience(cfg))
	defer cancel()
	var conn net.Conn
	var err error
	if secure := cfg.TLS.Clone(); secure != nil {
		if cfg.RefreshTLS != nil {
			err = cfg.RefreshTLS(secure)
		}
		if err == nil {
			conn, err = (&tls.Dialer{Config: secure}).DialContext(ctx, network, addr)
		}
	} else {
		conn, err = new(net.Dialer).DialContext(ctx, network, addr)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", engine.ErrUnavailable, err)
	}
	a.conn, a.in, a.out, a.dec, a.stale = conn, nil, nil, wire.Decoder{}, false
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := a.handshake(ctx, cfg); err != nil {
		conn.Close()
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: %s does not answer: %w", engine.ErrUnavailable, addr, context.Cause(ctx))
		}
		return err
	}
	return nil
}

// Ask is Do for a question that may be asked again: if the connection is gone, it is
// made anew once. A run does not end because somebody else ended it.
func (a *Conn) Ask(words ...string) (resp.Value, error) {
	v, err := a.Do(words...)
	if err == nil || errors.As(err, new(*resp.ServerError)) {
		return v, err
	}
	a.conn.Close()
	if err := a.dial(context.Background()); err != nil {
		return resp.Value{}, err
	}
	return a.Do(words...)
}

func (a *Conn) handshake(ctx context.Context, cfg engine.Config) (err error) {
	var words [][]string
	if cfg.Credentials != nil {
		if cfg.Username, cfg.Password, err = cfg.Credentials(ctx); err != nil {
			return fmt.Errorf("%w: %w", engine.ErrUnavailable, err)
		}
	}
	switch {
	case cfg.Username != "":
		words = append(words, []string{"AUTH", cfg.Username, cfg.Password})
	case cfg.Password != "":
		words = append(words, []string{"AUTH", cfg.Password})
	}
	if cfg.DB != 0 {
		words = append(words, []string{"SELECT", strconv.Itoa(cfg.DB)})
	}
	for _, w := range words {
		if _, err := a.Do(w...); err != nil {
			return fmt.Errorf("%w: %s: %w", engine.ErrUnavailable, w[0], err)
		}
	}
	a.ID = ""
	v, err := a.Do("CLIENT", "ID")
	switch {
	case err == nil:
		a.ID = strconv.FormatInt(v.Int, 10)
	case !errors.As(err, new(*resp.ServerError)):
		return err // there is no answer, and the next one would be taken for it
	}
	return nil
}

// Close closes the connection.
func (a *Conn) Close() { a.conn.Close() }

// Do sends one command. The value is valid until the next call.
func (a *Conn) Do(words ...string) (resp.Value, error) {
	a.add(words...)
	if err := a.flush(); err != nil {
		return resp.Value{}, err
	}
	return a.next()
}

// add queues a command for flush; each is answered by one next.
func (a *Conn) add(words ...string) { a.out = wire.AppendCommand(a.out, words...) }

func (a *Conn) flush() error {
	if err := a.conn.SetDeadline(time.Now().Add(adminTimeout)); err != nil {
		return err
	}
	_, err := a.conn.Write(a.out)
	a.out = a.out[:0]
	return away(err)
}

// away says of an error of the connection that the server is away.
func away(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", engine.ErrUnavailable, err)
}

// next reads the next answer.
func (a *Conn) next() (resp.Value, error) {
	for {
		v, n, err := a.dec.Decode(a.in)
		if err != nil {
			return resp.Value{}, err
		}
		if n > 0 {
			a.in = a.in[n:]
			if v.Kind == wire.KindError {
				code, _, _ := strings.Cut(string(v.Bytes), " ")
				return resp.Value{}, &resp.ServerError{Code: code, Message: string(v.Bytes)}
			}
			return v, nil
		}
		if err := a.read(); err != nil {
			return resp.Value{}, err
		}
	}
}

// read reads more, after what is there.
func (a *Conn) read() error {
	if 2*len(a.in) > len(a.buf) {
		a.buf = make([]byte, 4*len(a.in))
	}
	n := copy(a.buf, a.in)
	m, err := a.conn.Read(a.buf[n:])
	a.in = a.buf[:n+m]
	if m > 0 {
		return nil
	}
	return away(err)
}

// batch is how many commands are sent before their answers are read: few enough
// that the answers fit into the sockets' buffers.
const batch = 500

// each sends the commands that make appends for 0 <= i < n, of which answers each,
// and reads all answers. After an error the next call begins anew: it must not take the
// answers that are left for its own.
func (a *Conn) each(n, answers int, add func(i int)) (err error) {
	if a.stale {
		if err := a.dial(context.Background()); err != nil {
			return err
		}
	}
	defer func() {
		if err != nil {
			a.conn.Close()
			a.stale = true
		}
	}()
	for done := 0; done < n; {
		end := min(n, done+batch/answers)
		for i := done; i < end; i++ {
			add(i)
		}
		if err := a.flush(); err != nil {
			return err
		}
		for range (end - done) * answers {
			if _, err := a.next(); err != nil {
				return err
			}
		}
		done = end
	}
	return nil
}

// Info returns a section of INFO by its names.
func (a *Conn) Info(section string) (map[string]string, error) {
	v, err := a.Ask("INFO", section)
	if err != nil {
		return nil, err
	}
	fields := make(map[string]string)
	for line := range strings.Lines(string(v.Bytes)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields, nil
}
