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
		Long:    "version shows the version of pawl, the commit it was built from, and the version of Go.",
		Example: "  pawl version",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return showVersion(cmd.OutOrStdout()) },
	}
}

func showVersion(w io.Writer) error {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return fmt.Errorf("this binary was built without build information: build it with go build or go install")
	}
	return printVersion(w, info)
}

func printVersion(w io.Writer, info *debug.BuildInfo) error {
	version := info.Main.Version
	if version == "" {
		version = "(devel)"
	}
	settings := make(map[string]string)
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if commit := settings["vcs.revision"]; commit != "" {
		version += "\ncommit " + commit
		if settings["vcs.modified"] == "true" {
			version += ", with changes"
		}
	}
	_, err := fmt.Fprintf(w, "pawl %s\n%s %s/%s\n", version, info.GoVersion, runtime.GOOS, runtime.GOARCH)
	return err
}
