package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/embedded"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// TestMain is the program that is paused, if a test asks for that.
func TestMain(m *testing.M) {
	if url := os.Getenv("FENCING_URL"); url != "" {
		_, err := add(context.Background(), url, os.Getenv("FENCING_DB"), "alice", 1, func(token int64) {
			fmt.Println("has read, with token", token)
			_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // until the test has seen it
		})
		fmt.Println("fenced:", errors.Is(err, errFenced))
		os.Exit(0)
	}
	goleak.VerifyTestMain(m,
		// gnet's worker pool starts these two when it is imported; they never end.
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"),
	)
}

// A holder is stopped between reading and writing, for longer than its lease. Others write. Then
// it goes on, and the database refuses its write.
func TestAHolderThatWasPausedCannotWrite(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	file := filepath.Join(t.TempDir(), "ledger.db")
	url := s.URL() + "?lease=1s"

	paused := exec.Command(os.Args[0], "-test.run=^$")
	paused.Env = append(os.Environ(), "FENCING_URL="+url, "FENCING_DB="+file)
	in, inErr := paused.StdinPipe()
	out, outErr := paused.StdoutPipe()
	if err := errors.Join(inErr, outErr, paused.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = paused.Process.Kill() })
	lines := bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); err != nil || line != "has read, with token 1\n" {
		t.Fatalf("it says %q, %v", line, err)
	}
	if err := paused.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var tokens []int64
	for range 3 { // the first waits until the lease has ended
		if _, err := add(ctx, url, file, "alice", 10, func(token int64) { tokens = append(tokens, token) }); err != nil {
			t.Fatal(err)
		}
	}
	if fmt.Sprint(tokens) != "[2 3 4]" {
		t.Errorf("the others have tokens %v", tokens)
	}

	if err := errors.Join(paused.Process.Signal(syscall.SIGCONT), in.Close()); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(lines)
	if err != nil || !strings.Contains(string(rest), "fenced: true\n") {
		t.Errorf("it says %q, %v", rest, err)
	}
	if err := paused.Wait(); err != nil {
		t.Error(err)
	}
	accounts, err := openLedger(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = accounts.db.Close() }()
	if n, err := accounts.balance(ctx, "alice"); n != 30 || err != nil {
		t.Errorf("alice has %d, want 30; %v", n, err)
	}
}

// A row is made with token 0, and a hold of a plain Mutex has token 0: it must not write.
func TestLedger_TokenZero_IsRefused(t *testing.T) {
	t.Parallel()
	accounts, err := openLedger(filepath.Join(t.TempDir(), "ledger.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = accounts.db.Close() }()
	ctx := context.Background()
	if _, err := accounts.balance(ctx, "alice"); err != nil { // makes the row
		t.Fatal(err)
	}
	if err := accounts.set(ctx, "alice", 10, 0); !errors.Is(err, errFenced) {
		t.Errorf("token 0 writes: %v", err)
	}
	if err := accounts.set(ctx, "alice", 10, 1); err != nil {
		t.Error(err)
	}
	if n, err := accounts.balance(ctx, "alice"); n != 10 || err != nil {
		t.Errorf("alice has %d, want 10; %v", n, err)
	}
}

// The first holder writes twice. When another has written, its token is refused.
func Example() {
	server, err := embedded.Start("")
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	file := filepath.Join(os.TempDir(), fmt.Sprintf("fencing-%d.db", os.Getpid()))
	defer func() { _ = os.Remove(file) }()
	accounts, err := openLedger(file)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = accounts.db.Close() }()

	ctx := context.Background()
	eng, err := engine.Open(ctx, server.URL())
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = eng.Close() }()
	lock := eng.FencedMutex("account:alice")
	hold := func() *engine.Hold {
		h, err := lock.Lock(ctx)
		if err != nil {
			log.Fatal(err)
		}
		return h
	}
	fmt.Println(accounts.balance(ctx, "alice"))
	first := hold()
	fmt.Println(accounts.set(ctx, "alice", 10, first.Token()))
	fmt.Println(accounts.set(ctx, "alice", 20, first.Token()))
	_ = first.Unlock(ctx) // or it was lost, and nobody has told the first
	second := hold()
	fmt.Println(accounts.set(ctx, "alice", 30, second.Token()))
	fmt.Println(accounts.set(ctx, "alice", 15, first.Token()))
	fmt.Println(accounts.balance(ctx, "alice"))
	_ = second.Unlock(ctx)
	// Output:
	// 0 <nil>
	// <nil>
	// <nil>
	// <nil>
	// account alice, token 1: the token is not that of the latest holder
	// 30 <nil>
}
