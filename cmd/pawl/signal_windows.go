package main

import "os"

// endSignals ask a process to end.
var endSignals = []os.Signal{os.Interrupt}

// passedOn are the signals that exec passes on to its command.
var passedOn = endSignals
