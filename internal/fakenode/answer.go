package fakenode

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/tidwall/redcon"
)

// answer is what the node does without a rule: enough of Redis for a client to
// connect, load scripts, subscribe and ping.
func (c *Conn) answer(cmd Command) {
	if Connect(cmd) {
		return
	}
	args := cmd.Words[1:]
	switch name := cmd.Name(); name {
	case "PING":
		c.ping(args)
	case "HELLO":
		c.Write(hello())
	case "ECHO":
		if len(args) != 1 {
			c.refuseArity(name)
			return
		}
		c.Write(redcon.AppendBulkString(nil, args[0]))
	case "AUTH", "SELECT", "CLIENT", "READONLY", "ASKING":
		c.Write(redcon.AppendOK(nil))
	case "QUIT":
		c.Write(redcon.AppendOK(nil))
		c.Close()
	case "SCRIPT":
		c.script(args)
	case "EVAL":
		if len(args) < 2 {
			c.refuseArity(name)
			return
		}
		c.node.load(args[0])
		c.Write(redcon.AppendInt(nil, 1))
	case "EVALSHA":
		if len(args) < 2 {
			c.refuseArity(name)
			return
		}
		if !c.node.loaded(args[0]) {
			c.Write(redcon.AppendError(nil, NoScript))
			return
		}
		c.Write(redcon.AppendInt(nil, 1))
	case "SUBSCRIBE", "UNSUBSCRIBE", "SSUBSCRIBE", "SUNSUBSCRIBE":
		c.subscribe(strings.ToLower(name), args)
	case "PUBLISH":
		if len(args) != 2 {
			c.refuseArity(name)
			return
		}
		c.Write(redcon.AppendInt(nil, int64(c.node.Publish(args[0], args[1]))))
	default:
		c.Write(redcon.AppendError(nil, fmt.Sprintf("ERR unknown command '%s', the fake node has no rule for it", cmd.Words[0])))
	}
}

// hello is the answer of a single server to HELLO 2.
func hello() []byte {
	out := redcon.AppendArray(nil, 8)
	for _, word := range []string{"server", "redis", "version", "7.0.15", "mode", "standalone", "role", "master"} {
		out = redcon.AppendBulkString(out, word)
	}
	return out
}

func (c *Conn) refuseArity(name string) {
	c.Write(redcon.AppendError(nil, "ERR wrong number of arguments for '"+strings.ToLower(name)+"' command"))
}

// ping answers in the form that depends on whether the connection subscribes.
func (c *Conn) ping(args []string) {
	c.write.Lock()
	defer c.write.Unlock()
	text := strings.Join(args, " ")
	switch {
	case len(c.write.channels) > 0:
		c.writeLocked(redcon.AppendBulkString([]byte("*2\r\n$4\r\npong\r\n"), text))
	case text == "":
		c.writeLocked([]byte("+PONG\r\n"))
	default:
		c.writeLocked(redcon.AppendBulkString(nil, text))
	}
}

func (c *Conn) script(args []string) {
	switch {
	case len(args) == 2 && strings.EqualFold(args[0], "LOAD"):
		c.Write(redcon.AppendBulkString(nil, c.node.load(args[1])))
	case len(args) >= 2 && strings.EqualFold(args[0], "EXISTS"):
		out := redcon.AppendArray(nil, len(args)-1)
		for _, sha := range args[1:] {
			n := int64(0)
			if c.node.loaded(sha) {
				n = 1
			}
			out = redcon.AppendInt(out, n)
		}
		c.Write(out)
	case len(args) >= 1 && strings.EqualFold(args[0], "FLUSH"):
		c.node.FlushScripts()
		c.Write(redcon.AppendOK(nil))
	default:
		c.Write(redcon.AppendError(nil, "ERR unknown subcommand of SCRIPT"))
	}
}

// load remembers a script and returns its SHA1.
func (n *Node) load(text string) string {
	sum := sha1.Sum([]byte(text))
	sha := hex.EncodeToString(sum[:])
	n.mu.Lock()
	defer n.mu.Unlock()
	n.scripts[sha] = true
	return sha
}

func (n *Node) loaded(sha string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.scripts[strings.ToLower(sha)]
}

// FlushScripts forgets every script, so that EVALSHA answers NOSCRIPT.
func (n *Node) FlushScripts() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.scripts)
}

// subscribe serves both directions; verb is echoed in each confirmation, which
// tells how many channels the connection is subscribed to after it.
func (c *Conn) subscribe(verb string, channels []string) {
	c.write.Lock()
	defer c.write.Unlock()
	wanted := !strings.HasSuffix(verb, "unsubscribe")
	if len(channels) == 0 {
		if wanted {
			c.writeLocked(redcon.AppendError(nil, "ERR wrong number of arguments for '"+verb+"' command"))
			return
		}
		for ch := range c.write.channels {
			channels = append(channels, ch)
		}
	}
	var out []byte
	confirm := func(channel []byte) {
		out = redcon.AppendArray(out, 3)
		out = redcon.AppendBulkString(out, verb)
		out = append(out, channel...)
		out = redcon.AppendInt(out, int64(len(c.write.channels)))
	}
	for _, ch := range channels {
		if wanted {
			c.write.channels[ch] = true
		} else {
			delete(c.write.channels, ch)
		}
		confirm(redcon.AppendBulkString(nil, ch))
	}
	if len(channels) == 0 {
		confirm(redcon.AppendNull(nil)) // UNSUBSCRIBE from everything, with nothing to leave
	}
	c.writeLocked(out)
}

// publish sends a message if the connection is subscribed to channel.
func (c *Conn) publish(channel, payload string) bool {
	c.write.Lock()
	defer c.write.Unlock()
	if !c.write.channels[channel] {
		return false
	}
	out := redcon.AppendArray(nil, 3)
	for _, s := range []string{"message", channel, payload} {
		out = redcon.AppendBulkString(out, s)
	}
	c.writeLocked(out)
	return true
}
