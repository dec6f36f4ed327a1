package script

import (
	"bytes"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/pawl-lock/pawl/resp"
)

// Reply codes of the scripts; see each script's head.
const (
	Renewed   = 1
	Done      = 1
	Unheard   = 2 // released, but the message was refused (ACL)
	Gone      = 0
	StillHeld = 0
	NoExpiry  = -1 // acquire: held by others, the key has no expiry
	Granted   = -2
	NotThere  = -3
	WrongType = -4
	Refused   = -5
	Unset     = -7 // a try: nobody has said how many permits there are
)

//go:embed lua/*.lua
var files embed.FS

// Script is one Lua text and the constant parts of its calls.
type Script struct {
	Name string
	Text string
	SHA  string
	verb [2]string // by resp.ScriptForm: "$7 EVALSHA $40 <sha>" or "$4 EVAL $n <text>", as RESP
}

// The scripts.
var (
	Acquire = load("acquire")
	Fenced  = load("fenced")
	Reenter = load("reenter")
	Leave   = load("leave")
	Release = load("announce", "release")
	Retire  = load("announce", "retire")
	Renew   = load("renew")
	Force   = load("announce", "force")
	State   = load("state")
	Several = load("announce", "several")

	// Of the queue of the engines that wait for a lock.
	Join     = load("announce", "front", "join")
	Withdraw = load("announce", "front", "withdraw")

	// Of a fair lock.
	Fair        = load("announce", "fairqueue", "fair")
	FairRelease = load("announce", "fairqueue!", "fairrelease")
	FairForce   = load("announce", "fairqueue", "fairforce")

	// Of a read-write lock; the others are as above.
	ReadAcquire  = load("readacquire")
	ReadReenter  = load("readreenter")
	ReadRenew    = load("readrenew")
	Raise        = load("raise")
	RWRelease    = load("announce", "rwrelease")
	RWForce      = load("announce", "rwforce")
	WriteAcquire = load("writeacquire")
	WriteRetire  = load("announce", "writeretire")

	Counter = load("announce", "counter")

	// Of semaphores whose permits have a lease.
	PermitTake  = load("announce", "permittake")
	PermitFree  = load("announce", "permitfree")
	PermitRenew = load("permitrenew")
	PermitSet   = load("announce", "permitset")
	PermitCount = load("announce", "permitcount")
)

var all = []*Script{
	Acquire, Fenced, Fair, FairRelease, FairForce, Reenter, Leave, Release, Retire, Renew, Force, State, Several, Join, Withdraw,
	ReadAcquire, ReadReenter, ReadRenew, Raise, RWRelease, RWForce, WriteAcquire, WriteRetire,
	Counter,
	PermitTake, PermitFree, PermitRenew, PermitSet, PermitCount,
}

// Texts returns every script's Lua, for SCRIPT LOAD.
func Texts() []string {
	texts := make([]string, len(all))
	for i, s := range all {
		texts[i] = s.Text
	}
	return texts
}

// load reads a script: the text of the last name, after the texts that it shares with others. A "!"
// behind a shared one has its function ask be given what pcall returns.
func load(names ...string) *Script {
	var text []byte
	for _, name := range names {
		name, tolerant := strings.CutSuffix(name, "!")
		part, err := files.ReadFile("lua/" + name + ".lua")
		if err != nil {
			panic("BUG: no such script: " + name)
		}
		if tolerant { // in the text, because the name of a call may be no variable, either
			part = bytes.ReplaceAll(part, []byte("ask(redis.call("), []byte("ask(redis.pcall("))
		}
		text = append(text, part...)
	}
	sum := sha1.Sum(text)
	s := &Script{Name: names[len(names)-1], Text: string(text), SHA: hex.EncodeToString(sum[:])}
	s.verb[resp.EvalSHA] = bulk("EVALSHA") + bulk(s.SHA)
	s.verb[resp.Eval] = bulk("EVAL") + bulk(s.Text)
	return s
}

func bulk(s string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(s), s) }
