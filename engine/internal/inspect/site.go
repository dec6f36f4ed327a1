package inspect

import (
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// Stack records where a function was called, from skip frames outwards.
func Stack(skip int) []uintptr {
	var pcs [16]uintptr
	n := runtime.Callers(skip+2, pcs[:])
	return append([]uintptr(nil), pcs[:n]...)
}

// enginePackage is the package whose functions call sites leave out.
const enginePackage = "github.com/pawl-lock/pawl/engine."

// Site is the first call outside the engine: "main.pay orders.go:42".
func Site(stack []uintptr) string {
	if len(stack) == 0 {
		return ""
	}
	frames := runtime.CallersFrames(stack)
	for {
		f, more := frames.Next()
		if !strings.HasPrefix(f.Function, enginePackage) || !more {
			return f.Function[strings.LastIndexByte(f.Function, '/')+1:] + " " + filepath.Base(f.File) + ":" + strconv.Itoa(f.Line)
		}
	}
}
