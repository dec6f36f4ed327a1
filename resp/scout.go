package resp

import (
	"context"
	"fmt"
)

// scout connects to one server, asks, and leaves, all within DialTimeout. It is how
// the layout of a deployment is found: off the hot path, and independent of the
// connections that carry commands. An error reply is an error, a *ServerError inside.
func (c *Config) scout(ctx context.Context, addr string, question ...string) (Value, error) {
	ctx, cancel := context.WithTimeout(ctx, c.DialTimeout)
	defer cancel()
	cfg := *c
	cfg.Network, cfg.Addr = networkOf(addr), addr
	conn, err := cfg.connect(ctx, roleScout)
	if err != nil {
		return Value{}, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err := conn.Write(AppendCommand(nil, question...)); err != nil {
		return Value{}, cfg.connectError(ctx, question[0], err)
	}
	in := replyStream{conn: conn}
	v, err := in.next()
	if err == nil && v.Kind == KindError {
		err = newServerError(v.Bytes)
	}
	if err != nil {
		return Value{}, cfg.connectError(ctx, question[0], err)
	}
	return v.Clone(), nil
}

// networkOf tells a path from host:port.
func networkOf(addr string) string {
	if addr != "" && addr[0] == '/' {
		return "unix"
	}
	return "tcp"
}

// elements returns the elements of an array, which borrow the same bytes.
func elements(v Value) []Value {
	list := make([]Value, 0, v.Len())
	v.Each(func(_ int, e Value) bool {
		list = append(list, e)
		return true
	})
	return list
}

// isPrimary judges the answer to ROLE.
func isPrimary(v Value) error {
	if role := roleOf(v); role != "master" {
		return fmt.Errorf("the server is no primary, its role is %q", role)
	}
	return nil
}

// roleOf is the first word of ROLE's answer.
func roleOf(v Value) (role string) {
	v.Each(func(_ int, e Value) bool {
		role = string(e.Bytes)
		return false
	})
	return role
}
