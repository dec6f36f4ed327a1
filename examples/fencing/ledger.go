package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/ncruces/go-sqlite3/driver"
)

// errFenced: a holder with a higher token has written, so the lock was lost; or the hold has no token.
var errFenced = errors.New("the token is not that of the latest holder")

// ledger is a table of accounts. Each row keeps the highest token that has written it.
type ledger struct{ db *sql.DB }

func openLedger(file string) (*ledger, error) {
	db, err := driver.Open("file:" + file + "?_pragma=busy_timeout(10000)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	_, err = db.Exec(`CREATE TABLE IF NOT EXISTS accounts (
		name    TEXT PRIMARY KEY,
		balance INTEGER NOT NULL,
		token   INTEGER NOT NULL)`)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &ledger{db}, nil
}

// set writes a balance for the holder of a token. The condition is part of the UPDATE, so the
// database decides in one step: asking first and writing then would leave a gap to be paused in.
func (l *ledger) set(ctx context.Context, account string, balance, token int64) error {
	res, err := l.db.ExecContext(ctx, `UPDATE accounts SET balance = ?1, token = ?2 WHERE name = ?3 AND token <= ?2 AND ?2 > 0`,
		balance, token, account)
	if err != nil {
		return err
	}
	n, err := res.RowsAffected()
	if err == nil && n == 0 {
		err = fmt.Errorf("account %s, token %d: %w", account, token, errFenced)
	}
	return err
}

// balance reads one. An account that is not there is made, with nothing in it: tokens are at least 1.
func (l *ledger) balance(ctx context.Context, account string) (n int64, err error) {
	_, err = l.db.ExecContext(ctx, `INSERT INTO accounts (name, balance, token) VALUES (?, 0, 0) ON CONFLICT DO NOTHING`, account)
	if err == nil {
		err = l.db.QueryRowContext(ctx, `SELECT balance FROM accounts WHERE name = ?`, account).Scan(&n)
	}
	return n, err
}
