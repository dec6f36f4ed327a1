// Command pawl takes locks on a Redis or Valkey server from the command line:
// it runs commands under a lock, shows and clears locks, and demonstrates and
// measures the engine that it is made of.
package main

import "os"

func main() { os.Exit(run(os.Args[1:])) }
