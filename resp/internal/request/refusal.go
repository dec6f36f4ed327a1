package request

import (
	"strings"

	"github.com/pawl-lock/pawl/resp/wire"
)

// Refusal is what an error reply says beside its text: of what, whether the command may have
// been executed nevertheless, and for how long. The handshake, redirects, pub/sub, the search
// for the layout and the answers of scripts all read it from one table, [Refusals].
//
// The zero Refusal is that of a text that nobody foresaw. It harms nobody: it says something of
// this command alone, which may have been executed, and nothing of when it will be accepted.
type Refusal struct {
	Of       Scope
	Executed Executed
	Lasts    Duration
}

// Scope is what a refusal says something of.
type Scope uint8

const (
	// OfCommand: another command may be accepted.
	OfCommand Scope = iota
	// OfConnection: every command is refused on this connection; another one may be better.
	OfConnection
	// OfNode: every command, or every write, is refused by this server.
	OfNode
	// OfDeployment: the part of the keys is served by another server, or by none.
	OfDeployment
)

func (s Scope) String() string {
	return [...]string{"command", "connection", "node", "deployment"}[s]
}

// Executed is whether a refused command may have been executed, in part at least.
type Executed uint8

const (
	// Perhaps: the error may come from the middle of a script.
	Perhaps Executed = iota
	// No: the server refused the command before it began, so it may be sent again or elsewhere.
	No
)

func (e Executed) String() string { return [...]string{"perhaps", "no"}[e] }

// Duration is how long a refusal lasts.
type Duration uint8

const (
	// Unforeseen: nobody knows.
	Unforeseen Duration = iota
	// Passing: it is over by itself, mostly within seconds.
	Passing
	// Unclear: a mistake of somebody, or a server that is still being set up. It is reported at
	// once, and tried again at the ordinary pace.
	Unclear
	// Unauthorized: until the credentials are others, or the rights of their user.
	Unauthorized
	// Permanent: until somebody changes the configuration of the client or of the server.
	Permanent
)

func (d Duration) String() string {
	return [...]string{"unforeseen", "passing", "unclear", "unauthorized", "permanent"}[d]
}

// NotNow reports whether the same command may be accepted later, elsewhere, or over another
// connection, without anybody's help.
func (r Refusal) NotNow() bool {
	return r.Lasts == Passing || r.Executed == No && r.Of != OfCommand && r.Lasts != Permanent
}

// Unready reports whether a server is there, and cannot serve anybody at the moment.
func (r Refusal) Unready() bool {
	return r.Lasts == Passing && (r.Of == OfConnection || r.Of == OfNode)
}

// NeedsHuman reports whether it takes somebody who changes something, as far as can be known.
func (r Refusal) NeedsHuman() bool { return r.Lasts >= Unclear }

// Forbidden reports whether the user of the connection may not do that (an ACL).
func (r Refusal) Forbidden() bool { return r.Of == OfCommand && r.Lasts == Unauthorized }

// Apart reports whether the keys of the command are at two nodes, while their slot moves.
func (r Refusal) Apart() bool { return r.Of == OfCommand && r.Lasts == Passing }

// Rows of the table that somebody must know from others.
const (
	unknownCommand = "ERR unknown command" // renamed, or a proxy
	wrongArity     = "ERR wrong number of arguments"
	notCompiled    = "ERR Error compiling script"
	noScript       = "NOSCRIPT"
)

// UnknownCommand reports whether the server does not know the command.
func UnknownCommand(e *wire.ServerError) bool { return e.Begins(unknownCommand) }

// WrongArity reports whether the server knows the command, with other arguments.
func WrongArity(e *wire.ServerError) bool { return e.Begins(wrongArity) }

// NoScript reports whether the server does not have the script that is called by its name.
func NoScript(e *wire.ServerError) bool { return e.Code == noScript }

// Names reports whether the words, which may be nobody's in the table, name the command that is refused, or
// say that a command is unknown, and do not say which.
func Names(e *wire.ServerError, command string) bool {
	r := RefusalOf(e)
	return r.Of == OfCommand && !r.NotNow() && (e.Message == unknownCommand || strings.Contains(strings.ToLower(e.Message), command))
}

// NotCompiled reports whether the text of a script is no Lua.
func NotCompiled(e *wire.ServerError) bool { return e.Begins(notCompiled) }

// Refusals is the table: the first row whose Text begins the message decides, else the row of the
// Code. NewServerError has given codes to some texts that come without one.
var Refusals = [...]struct {
	Code, Text string // one of them
	Refusal
}{
	// Who serves what.
	{Code: "MOVED", Refusal: Refusal{OfDeployment, No, Passing}},
	{Code: "ASK", Refusal: Refusal{OfDeployment, No, Passing}},
	{Code: "CLUSTERDOWN", Refusal: Refusal{OfDeployment, No, Passing}},
	{Text: "ERR No such master with that name", Refusal: Refusal{OfDeployment, No, Permanent}},
	{Text: "ERR This instance has cluster support disabled", Refusal: Refusal{OfDeployment, No, Permanent}},

	// The state of a server.
	{Code: "LOADING", Refusal: Refusal{OfNode, No, Passing}},
	{Code: "BUSY", Refusal: Refusal{OfNode, No, Passing}},
	{Code: "READONLY", Refusal: Refusal{OfNode, No, Passing}},
	{Code: "MASTERDOWN", Refusal: Refusal{OfNode, No, Passing}},
	{Code: "OOM", Refusal: Refusal{OfNode, No, Passing}},
	{Code: "MISCONF", Refusal: Refusal{OfNode, No, Passing}},
	{Code: "NOREPLICAS", Refusal: Refusal{OfNode, No, Passing}},

	// The connection, and the credentials that it was made with.
	{Text: "ERR max number of clients", Refusal: Refusal{OfConnection, No, Passing}},
	{Code: "DENIED", Refusal: Refusal{OfConnection, No, Permanent}}, // protected mode
	{Code: "NOAUTH", Refusal: Refusal{OfConnection, No, Unauthorized}},
	{Code: "WRONGPASS", Refusal: Refusal{OfConnection, No, Unauthorized}},
	{Text: "ERR invalid password", Refusal: Refusal{OfConnection, No, Unauthorized}},          // before Redis 6, and Envoy
	{Text: "ERR AUTH <password> called without", Refusal: Refusal{OfConnection, No, Unclear}}, // a password for a server without one, or before it has it
	{Text: "ERR Client sent AUTH, but no", Refusal: Refusal{OfConnection, No, Unclear}},       // the same before Redis 6
	{Text: "ERR invalid DB index", Refusal: Refusal{OfConnection, No, Permanent}},
	{Text: "ERR DB index is out of range", Refusal: Refusal{OfConnection, No, Permanent}},
	{Text: "ERR SELECT is not allowed", Refusal: Refusal{OfConnection, No, Permanent}}, // a cluster

	// The command alone.
	{Text: wire.Elsewhere, Refusal: Refusal{OfCommand, Perhaps, Passing}},
	{Code: "TRYAGAIN", Refusal: Refusal{OfCommand, No, Passing}}, // its keys are apart while their slot moves
	{Code: "NOPERM", Refusal: Refusal{OfCommand, No, Unauthorized}},
	{Code: "CROSSSLOT", Refusal: Refusal{OfCommand, No, Permanent}},
	{Code: noScript, Refusal: Refusal{OfCommand, No, Permanent}},
	{Code: "WRONGTYPE", Refusal: Refusal{OfCommand, No, Permanent}},
	{Text: unknownCommand, Refusal: Refusal{OfCommand, No, Permanent}},
	{Text: "ERR unknown subcommand", Refusal: Refusal{OfCommand, No, Permanent}},
	{Text: "ERR Unknown subcommand", Refusal: Refusal{OfCommand, No, Permanent}},
	{Text: wrongArity, Refusal: Refusal{OfCommand, No, Permanent}},
	{Text: notCompiled, Refusal: Refusal{OfCommand, No, Permanent}},
}

// byCode has the rows that have a code.
var byCode = func() map[string]Refusal {
	rows := make(map[string]Refusal)
	for _, row := range Refusals {
		if row.Code != "" {
			rows[row.Code] = row.Refusal
		}
	}
	return rows
}()

// RefusalOf looks up what an error reply says. It may be called on an event loop.
func RefusalOf(e *wire.ServerError) Refusal {
	for i := range Refusals {
		if text := Refusals[i].Text; text != "" && e.Begins(text) {
			return Refusals[i].Refusal
		}
	}
	return byCode[e.Code]
}
