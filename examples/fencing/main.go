// Fencing adds an amount to a balance in an SQL database, under a lock of Pawl's. It reads the
// balance and writes it back, so two at the same time would lose an amount: the lock keeps them
// apart. A process that is paused for longer than its lease does not know that it has lost the
// lock, and goes on where it was. Its write carries a fencing token, and the database refuses it.
//
//	fencing -redis redis://127.0.0.1:6379 -db ledger.db -account alice -add 10
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/pawl-lock/pawl/engine"
)

func main() {
	url := flag.String("redis", "redis://127.0.0.1:6379", "where the locks are")
	file := flag.String("db", "ledger.db", "the database")
	account := flag.String("account", "alice", "whose balance")
	amount := flag.Int64("add", 0, "what to add to it")
	flag.Parse()
	balance, err := add(context.Background(), *url, *file, *account, *amount, func(int64) {})
	if err != nil {
		fmt.Fprintln(os.Stderr, "fencing:", err)
		os.Exit(1)
	}
	fmt.Println(*account, "has", balance)
}

// add adds an amount and returns the balance. It calls read between reading and writing.
func add(ctx context.Context, url, file, account string, amount int64, read func(token int64)) (balance int64, err error) {
	accounts, err := openLedger(file)
	if err != nil {
		return 0, err
	}
	defer func() { _ = accounts.db.Close() }()
	eng, err := engine.Open(ctx, url)
	if err != nil {
		return 0, err
	}
	defer func() { _ = eng.Close() }()
	err = eng.FencedMutex("account:"+account).Do(ctx, func(ctx context.Context, h *engine.Hold) error {
		if balance, err = accounts.balance(ctx, account); err != nil {
			return err
		}
		read(h.Token())
		balance += amount
		// Not ctx: it ends with the hold, and would hide what this shows. A program of your
		// own passes it; then most late writes are not even tried, and the token stops the rest.
		return accounts.set(context.WithoutCancel(ctx), account, balance, h.Token())
	})
	return balance, err
}
