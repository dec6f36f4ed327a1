package main

import (
	"errors"

	pawlpprof "github.com/pawl-lock/pawl/pprof"
)

// profiled runs f, and writes profiles of it into dir unless that is empty.
func profiled(dir string, f func() error) error {
	if dir == "" {
		return f()
	}
	stop, err := pawlpprof.Capture(dir)
	if err != nil {
		return err
	}
	err = f()
	return errors.Join(err, stop())
}
