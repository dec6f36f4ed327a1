package engine

import "github.com/pawl-lock/pawl/engine/internal/script"

// scriptTexts are loaded into the server at every connect.
var scriptTexts = script.Texts()
