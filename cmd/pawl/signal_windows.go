package main

import "os"

// endSignals ask a process to end.
var endSignals = []os.Signal{os.Interrupt}
