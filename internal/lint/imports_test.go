package lint

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// layers orders the module's packages: a package imports only its own subtree and
// packages of lower layers, tests aside. The longest prefix counts.
//
// pprof stands beside the core, not below it: engine, resp and wheel label their
// goroutines with runtime/pprof themselves.
var layers = map[string]int{
	"internal/clock":      0,
	"internal/invariants": 0,
	"internal/pasted":     0,
	"internal/redact":     0,

	"wheel": 5,

	"resp/wire":                 0,
	"resp/internal/slot":        0,
	"resp/internal/replyreader": 1,
	"resp/internal/request":     1,
	"resp/internal/fifo":        2,
	"resp/internal/socket":      2,
	"resp/internal/pipeline":    3,
	"resp/internal/topology":    3,
	"resp/internal/pubsub":      3,
	"resp/internal/replication": 4,
	"resp/internal/suspicion":   4,
	"resp/internal/handshake":   4,
	"resp":                      5,

	"engine/internal/waitq":    1,
	"engine/internal/serial":   1,
	"engine/internal/lockerr":  1,
	"engine/internal/lock":     2,
	"engine/internal/ctxwatch": 2,
	"engine/internal/counter":  3,
	"engine/internal/quorum":   3,
	"engine/internal":          6,
	"engine/internal/driver":   8,
	"engine/internal/recovery": 7,
	"engine":                   9,

	"internal/respio":           9,  // what the test servers share
	"internal":                  10, // test servers and other tools
	"pprof":                     10,
	"engine/enginetest":         11,
	"resp/internal/requesttest": 11,
	"engine/internal/sim/model": 10,
	"engine/internal/sim":       11,
	"engine/internal/testkit":   11, // what the suites share
	"engine/internal/suite":     12,
	"bench/internal/process":    0,
	"bench/internal/latency":    0,
	"bench/internal/turns":      1,
	"bench/internal/redisadmin": 11,
	"bench":                     12,
	"cmd/pawl/internal/exit":    12,
	"cmd/pawl/internal/target":  13,
	"cmd":                       14,
}

// core are the packages that every user of the engine links.
var core = []string{"engine", "resp", "wheel", "internal/clock", "internal/invariants", "internal/pasted", "internal/redact"}

// testPackages lie among them, but only tests import them.
var testPackages = []string{"engine/enginetest", "engine/internal/testkit", "engine/internal/sim", "engine/internal/sim/model", "resp/internal/requesttest"}

// worldly are the packages of the engine that make a world, and may draw lots.
var worldly = []string{"engine/internal/env", "engine/internal/sim"}

// coreModules are the modules that core may import directly. Another one needs a
// reason that convinces in DESIGN.md: every user of the engine pays for it.
var coreModules = []string{
	"github.com/panjf2000/gnet/v2",
	"github.com/tidwall/redcon",
	"github.com/RussellLuo/timingwheel",
	"github.com/cespare/xxhash/v2",
	"golang.org/x/sys",
}

// layerOf returns the layer of a package and the prefix that gave it, "" if none.
func layerOf(name string) (prefix string, layer int) {
	for p, l := range layers {
		if within(name, p) && len(p) > len(prefix) {
			prefix, layer = p, l
		}
	}
	return prefix, layer
}

// within reports whether the path is prefix or lies below it.
func within(path, prefix string) bool {
	return path == prefix || strings.HasPrefix(path, prefix+"/")
}

func isCore(name string) bool {
	return slices.ContainsFunc(core, func(c string) bool { return within(name, c) }) && !slices.Contains(testPackages, name)
}

func TestImports_Layers_GoOneWay(t *testing.T) {
	t.Parallel()
	for _, tags := range []string{"", "pawl_nognet", "pawl_invariants"} {
		for _, p := range listPackages(t, tags) {
			for _, complaint := range importComplaints(p) {
				t.Errorf("%s (tags %q)", complaint, tags)
			}
		}
	}
}

// importComplaints checks what one package imports.
func importComplaints(p goPackage) []string {
	var all []string
	complain := func(format string, args ...any) {
		all = append(all, p.ImportPath+" "+fmt.Sprintf(format, args...))
	}
	home, layer := layerOf(p.name())
	if home == "" {
		complain("has no layer: add it to the table")
	}
	for _, imp := range p.Imports {
		name := inModule(imp)
		if name == "" {
			if isCore(p.name()) && !standard(imp) && !ofModules(imp, coreModules) {
				complain("imports %s, which users of the engine must not have to link", imp)
			}
			continue
		}
		if to, l := layerOf(name); to != home && l >= layer {
			complain("imports %s, of a layer that is not below its own", name)
		}
	}
	if decides := p.name() == "engine" || within(p.name(), "engine/internal"); decides && !slices.Contains(worldly, p.name()) {
		for _, imp := range []string{"math/rand/v2", "crypto/rand"} {
			if slices.Contains(p.Imports, imp) {
				complain("imports %s: take it from engine/internal/env, or a simulation cannot decide it", imp)
			}
		}
	}
	for _, imp := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
		if why, bad := forbidden[imp]; bad {
			complain("imports %s: %s", imp, why)
		}
	}
	if isCore(p.name()) || within(p.name(), "cmd") || within(p.name(), "bench") || within(p.name(), "pprof") {
		for _, dep := range []string{"testing", "net/http/pprof"} {
			if slices.Contains(p.Deps, dep) {
				complain("links %s, if indirectly", dep)
			}
		}
	}
	return all
}

// forbidden are imports that no package has, not even a test.
var forbidden = map[string]string{
	"net/http/pprof": "it registers itself on the user's default mux; pprof.Handler serves through runtime/pprof",
	"math/rand":      "use math/rand/v2, and crypto/rand for what must not be guessed",
	"io/ioutil":      "deprecated",
}

// standard reports whether an import path is of the standard library.
func standard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}

func ofModules(importPath string, modules []string) bool {
	return slices.ContainsFunc(modules, func(m string) bool { return within(importPath, m) })
}

func TestImports_Nognet_HasNoGnet(t *testing.T) {
	t.Parallel()
	for _, p := range listPackages(t, "pawl_nognet") {
		i := slices.IndexFunc(p.Deps, func(dep string) bool { return ofModules(dep, []string{"github.com/panjf2000"}) })
		if i >= 0 {
			t.Errorf("with the tag pawl_nognet, %s still links %s", p.ImportPath, p.Deps[i])
		}
	}
}

func TestImportComplaints_Samples_AreFound(t *testing.T) {
	t.Parallel()
	pkg := func(name string, imports ...string) goPackage {
		return goPackage{ImportPath: modulePath + "/" + name, Imports: imports}
	}
	in := func(name string) string { return modulePath + "/" + name }
	for _, good := range []goPackage{
		pkg("wheel", "time", in("internal/clock"), "github.com/RussellLuo/timingwheel"),
		pkg("engine", in("resp"), in("wheel"), in("engine/internal/waitq")),
		pkg("engine/internal/watchdog", in("engine/internal/script"), in("resp")),
		pkg("engine/internal/driver", in("engine/internal/recovery"), in("engine/internal/lock")),
		pkg("engine/internal/recovery", in("engine/internal/env"), in("engine/internal/lock"), in("wheel")),
		pkg("engine/enginetest", in("engine"), in("internal/embedded"), "testing"),
		pkg("engine/internal/env", in("resp"), "math/rand/v2", "crypto/rand"),
		pkg("engine/internal/testkit", in("engine"), in("internal/redistest"), "testing", "go.uber.org/goleak"),
		pkg("bench", in("bench/internal/process"), in("engine"), in("pprof"), in("internal/redistest"), "github.com/HdrHistogram/hdrhistogram-go"),
		pkg("cmd/pawl", in("cmd/pawl/internal/target"), in("cmd/pawl/internal/exit"), in("bench"), in("engine"), "github.com/spf13/cobra"),
		pkg("internal/fakenode", in("internal/respio"), "github.com/tidwall/redcon"),
	} {
		if got := importComplaints(good); got != nil {
			t.Errorf("%s: %q", good.ImportPath, got)
		}
	}
	for _, bad := range []goPackage{
		pkg("resp", in("engine")),
		pkg("resp", in("wheel")),
		pkg("resp", in("resp/internal/requesttest")),
		pkg("resp/wire", in("resp/internal/request")),
		pkg("resp/internal/socket", in("resp/internal/pipeline")),
		pkg("resp/internal/pubsub", in("resp/internal/pipeline")),
		pkg("resp/internal/pipeline", in("resp")),
		pkg("resp/internal/topology", in("resp")),
		pkg("resp/internal/topology", in("resp/internal/pipeline")),
		pkg("resp/internal/pipeline", in("resp/internal/replication")),
		pkg("resp/internal/replication", in("resp")),
		pkg("resp/internal/handshake", in("resp/internal/replication")),
		pkg("resp/internal/handshake", in("resp")),
		pkg("engine", in("pprof")),
		pkg("engine/internal/lock", in("engine/internal/script")),
		pkg("engine/internal/lock", in("engine/internal/recovery")),
		pkg("engine/internal/lock", in("engine/internal/counter")),
		pkg("engine/internal/counter", in("engine/internal/script")),
		pkg("engine/internal/env", in("engine/internal/recovery")),
		pkg("engine/internal/recovery", in("engine/internal/driver")),
		pkg("engine/internal/recovery", in("engine")),
		pkg("engine/internal/lock", in("engine/internal/quorum")),
		pkg("engine", "math/rand/v2"),
		pkg("engine/internal/watchdog", "math/rand/v2"),
		pkg("engine", "crypto/rand"),
		pkg("engine", in("engine/enginetest")),
		pkg("engine", in("engine/internal/testkit")),
		pkg("engine/internal/testkit", in("engine/internal/suite/faults")),
		pkg("engine", in("internal/embedded")),
		pkg("engine/internal/waitq", in("engine")),
		pkg("engine", "github.com/alicebob/miniredis/v2"),
		pkg("engine", "github.com/HdrHistogram/hdrhistogram-go"),
		pkg("wheel", in("resp")),
		pkg("pprof", in("bench")),
		pkg("pprof", "net/http/pprof"),
		pkg("bench", in("cmd/pawl")),
		pkg("bench/internal/process", in("engine")),
		pkg("bench/internal/redisadmin", in("bench")),
		pkg("internal/clock", in("engine")),
		pkg("elsewhere"),
		pkg("cmd/pawl/internal/exit", in("cmd/pawl/internal/target")),
		{ImportPath: in("engine"), XTestImports: []string{"net/http/pprof"}},
		{ImportPath: in("resp"), Deps: []string{"testing"}},
		{ImportPath: in("cmd/pawl"), Deps: []string{"testing"}},
	} {
		if got := importComplaints(bad); len(got) == 0 {
			t.Errorf("%s importing %q passed", bad.ImportPath, bad.Imports)
		}
	}
}
