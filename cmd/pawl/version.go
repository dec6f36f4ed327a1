package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Show the version",
		Long:    "version shows the module's version, the commit it was built from, and Go's.",
		Example: "  pawl version",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			info, ok := debug.ReadBuildInfo()
			if !ok {
				return fmt.Errorf("this binary was built without build information: build it with go build or go install")
			}
			printVersion(cmd.OutOrStdout(), info)
			return nil
		},
	}
}

func printVersion(w io.Writer, info *debug.BuildInfo) {
	version := info.Main.Version
	if version == "" {
		version = "(devel)"
	}
	fmt.Fprintf(w, "pawl %s\n", version)
	settings := make(map[string]string)
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if commit := settings["vcs.revision"]; commit != "" {
		changed := ""
		if settings["vcs.modified"] == "true" {
			changed = ", with changes"
		}
		fmt.Fprintf(w, "commit %s%s\n", commit, changed)
	}
	fmt.Fprintf(w, "%s %s/%s\n", info.GoVersion, runtime.GOOS, runtime.GOARCH)
}
