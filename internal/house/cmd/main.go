// Command cmd prints how much a reader of package engine has to take in, and fails if that is more
// than the limits: see package house. It runs at the root of the repository:
//
//	go run ./internal/house/cmd            fails beyond the limits
//	go run ./internal/house/cmd -ratchet   fails beyond the limits and the recorded values
//	go run ./internal/house/cmd -record    lowers the recorded values to those of the tree
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/pawl-lock/pawl/internal/house"
)

func main() {
	root := flag.String("root", ".", "the tree to measure")
	ratchet := flag.Bool("ratchet", false, "let a row be beyond its limit that is not beyond its recorded value")
	record := flag.Bool("record", false, "lower the recorded values to those of the tree")
	flag.Parse()
	if err := run(*root, *ratchet, *record); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(root string, ratchet, record bool) error {
	rows, err := house.Measure(os.DirFS(root))
	if err != nil {
		return err
	}
	file := filepath.Join(root, filepath.FromSlash(house.RecordedFile))
	var recorded house.Recorded // without any, the limits alone count
	if ratchet || record {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if recorded, err = house.ParseRecorded(string(text)); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	fmt.Print(house.Table(rows, recorded))
	if record {
		return os.WriteFile(file, []byte(recorded.Lowered(rows).Format(rows)), 0o644)
	}
	if grown := recorded.Grown(rows); len(grown) > 0 {
		var keys []string
		for _, row := range grown {
			keys = append(keys, row.Key)
		}
		return fmt.Errorf("over: %s", strings.Join(keys, ", "))
	}
	return nil
}
