package main

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/exit"
)

// badValue is how pflag names a value that a flag cannot have, and the flag.
var badValue = regexp.MustCompile(`^invalid argument "([^"]*)" for "(?:-., )?--([\w-]+)" flag`)

// flagError is wrong usage of a flag. It says what to write, as far as that is clear.
func flagError(cmd *cobra.Command, err error, advice string) error {
	text := err.Error()
	if m := badValue.FindStringSubmatch(text); m != nil {
		if flag := cmd.Flags().Lookup(m[2]); flag != nil && flag.Value.Type() == "duration" {
			text += durationAdvice(m[1])
		}
		advice = "" // the flag is one of ours
	}
	return exit.Usagef(cmd, "%s%s", text, advice)
}

// durationAdvice says how to write a duration: others take a number for seconds.
func durationAdvice(value string) string {
	if _, err := strconv.ParseFloat(value, 64); err == nil {
		return ": write " + value + "s"
	}
	return ": units are ms, s, m and h"
}

// whereTheCommandIs says where the command of exec belongs, if a flag that exec does not know
// is probably the command's: without two dashes, or with words before them.
func whereTheCommandIs(cmd *cobra.Command, err error) string {
	words := cmd.Flags().Args() // before the flag
	if slices.Contains(os.Args, "--") && len(words) < 2 {
		return flockHabit(err)
	}
	switch len(words) {
	case 0:
		return "; the command follows two dashes, as in pawl exec NAME -- command"
	case 1:
		return "; the command follows two dashes, as in pawl exec " + dashed([]string{words[0], "command"})
	}
	return "; the command follows two dashes, as in pawl exec " + dashed(append(words, "..."))
}

// flockHabit says what the flags of flock(1) are called here.
func flockHabit(err error) string {
	switch text := err.Error(); {
	case strings.HasSuffix(text, "in -n"):
		return "; to try once write --wait 0"
	case strings.Contains(text, "'w' in -w"):
		return "; to wait for some time write --wait 5s"
	case strings.HasSuffix(text, "in -c"):
		return "; for a shell command write -- sh -c 'COMMAND'"
	}
	return ""
}

// dashed is a name and a command as they are to be written.
func dashed(args []string) string { return shellWords(args[:1]) + " -- " + shellWords(args[1:]) }

// interspersed puts a flag before each word.
func interspersed(flag string, words []string) (all []string) {
	for _, w := range words {
		all = append(all, flag, w)
	}
	return all
}

// plainWord needs no quotes in a shell.
var plainWord = regexp.MustCompile(`^[\w@%+=:,./-]+$`)

// shellWords writes words as a shell takes them, on one line, and not all of many.
func shellWords(words []string) string {
	const most, longest = 8, 60
	var text []string
	for i, w := range words {
		if i == most {
			text = append(text, "...")
			break
		}
		if w = strings.ToValidUTF8(w, "?"); len(w) > longest {
			w = "..."
		}
		if !plainWord.MatchString(w) {
			w = "'" + strings.ReplaceAll(strings.Map(printable, w), "'", `'\''`) + "'"
		}
		text = append(text, w)
	}
	return strings.Join(text, " ")
}

// printable replaces what a terminal would obey.
func printable(r rune) rune {
	if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
		return '?'
	}
	return r
}
