package wire

import (
	"regexp"
	"slices"
	"strings"
)

// ServerError is an error reply: the server received the command and refused it.
//
// It is the same whatever the server's generation, and whether the command itself was
// refused or one that its script called: where in a script it happened is left out.
type ServerError struct {
	// Code is the first word, upper case by convention: "WRONGTYPE", "BUSY". What the
	// ACL forbids is "NOPERM", inside scripts too, and "TRYAGAIN" is also the answer to a script about
	// a key that has gone, by its own hand perhaps, while the slot is being migrated.
	Code string
	// Message is the whole text, the code included.
	Message string
}

func (e *ServerError) Error() string { return e.Message }

// NewServerError reads an error line, without its type byte and CRLF.
func NewServerError(line []byte) *ServerError {
	message := withoutPlace(string(line))
	code, text, _ := strings.Cut(message, " ")
	switch {
	case code != "ERR":
	case strings.HasPrefix(text, denialBefore72) || strings.HasPrefix(text, denialSince72):
		code, message = "NOPERM", "NOPERM "+text
	case elsewhere.MatchString(text):
		code, message = "TRYAGAIN", Elsewhere
	}
	return &ServerError{Code: code, Message: message}
}

// What servers say, without a code, of a command in a script that the ACL forbids.
const (
	denialBefore72 = "The user executing the script can't "
	denialSince72  = "ACL failure in script: "
)

// Elsewhere is the message of a script that was refused when it had begun: one of its commands did
// not find a key, in a slot that leaves the node, or did not find all of its keys, in a slot that
// comes. (Or a key was in another slot, which no script of ours asks for.)
const Elsewhere = "TRYAGAIN Script attempted to access a non local key in a cluster node"

// elsewhere is what servers say of that, without a code: to a command alone they would say ASK or
// TRYAGAIN. Redis 6 begins with "Lua script", Redis 7 and Valkey 8 with "Script", Valkey 9 with
// neither.
var elsewhere = regexp.MustCompile(`^(?:[A-Za-z]+ )*[Aa]ttempted to access a non local key in a cluster node` +
	`|^Unable to execute command '[^']*' in script because undeclared keys were accessed during rehashing of the slot`)

// Servers put the place of the error around that of a command in a script. Up to Redis
// 6.2 it stands in front of the code, with a hyphen where the server itself refuses the
// command, and so it does in what pcall returns; from Redis 7.0 on it is the end.
//
//	ERR Error running script (call to f_SHA): @user_script:8: @user_script: 8: -READONLY You can't write ...
//	ERR Error running script (call to f_SHA): @user_script:8: WRONGTYPE Operation against a key ...
//	@user_script: 8: -READONLY You can't write ...
//	READONLY You can't write ... script: SHA, on @user_script:8.
//	READONLY You can't write ... script: on @user_script:8.        (Valkey 9.1)
//
// What a message quotes cannot stand in front of it.
var (
	placeBefore = regexp.MustCompile(`^(?:ERR Error running script \(call to f_[0-9a-f]{40}\): @user_script:\d+: )?(?:@user_script: \d+: -?)?`)
	placeBehind = regexp.MustCompile(` script: (?:[0-9a-f]{40}, )?on @user_script:\d+\.$`)
	codeFirst   = regexp.MustCompile(`^[A-Z][A-Z0-9_]+ `)
)

// withoutPlace returns the code and text of an error as the command gave it.
func withoutPlace(line string) string {
	if !strings.Contains(line, "@user_script") {
		return line
	}
	inner := line[len(placeBefore.FindString(line)):]
	switch {
	case len(inner) == len(line):
		return placeBehind.ReplaceAllString(line, "")
	case !codeFirst.MatchString(inner):
		return "ERR " + inner // of Lua, or a refusal that has no code
	}
	return inner
}

// Begins reports whether the message begins with one of these.
func (e *ServerError) Begins(texts ...string) bool {
	return slices.ContainsFunc(texts, func(text string) bool { return strings.HasPrefix(e.Message, text) })
}
