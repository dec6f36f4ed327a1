package exit

import "os"

// EndSignals ask a process to end.
var EndSignals = []os.Signal{os.Interrupt}
