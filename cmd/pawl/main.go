// Command pawl takes locks on a Redis or Valkey server from the command line:
// it runs commands under a lock, shows and clears locks, and demonstrates and
// measures the engine that it is made of.
//
// A file here is a command: its flags, its help, and what it prints. Which servers the flags
// name is in internal/target, how a command ends in internal/exit. The work of exec and demo
// is in the module's internal/execlock and internal/demo, that of bench in package bench.
package main

import "os"

func main() { os.Exit(run(os.Args[1:])) }
