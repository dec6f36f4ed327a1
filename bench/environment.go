package bench

import (
	"bufio"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// Conditions are what a run was made under: figures compare only if these do.
type Conditions struct {
	Date time.Time `json:"date"` // when it began, UTC
	Host string    `json:"host"`
	OS   string    `json:"os"`
	Arch string    `json:"arch"`
	// CPU is the processor's model; empty where the platform does not tell.
	CPU        string `json:"cpu,omitempty"`
	CPUs       int    `json:"cpus"`
	GOMAXPROCS int    `json:"gomaxprocs"`
	Go         string `json:"go"`
	// Pawl is the module's version, Commit what it was built from; empty if the binary
	// does not know.
	Pawl   string `json:"pawl"`
	Commit string `json:"commit,omitempty"`
	// LeaseS is what the watchdog gave a hold, WarmupS how long the loops ran before.
	LeaseS  float64 `json:"lease_s"`
	WarmupS float64 `json:"warmup_s"`
	// RSSBytes is the most memory that this process had so far; 0 if the platform does
	// not tell.
	RSSBytes int64 `json:"rss_bytes"`
	// ServerCPUPercent is what the servers used while it was measured, of one CPU; 0 if
	// they do not tell.
	ServerCPUPercent float64 `json:"server_cpu_percent"`
}

const module = "github.com/pawl-lock/pawl"

func conditionsOf(cfg Config) Conditions {
	c := Conditions{
		Date: time.Now().UTC(), OS: runtime.GOOS, Arch: runtime.GOARCH, CPU: cpuModel(),
		CPUs: runtime.NumCPU(), GOMAXPROCS: runtime.GOMAXPROCS(0), Go: runtime.Version(),
		LeaseS: cfg.lease().Seconds(), WarmupS: cfg.Warmup.Seconds(),
	}
	c.Host, _ = os.Hostname()
	if info, ok := debug.ReadBuildInfo(); ok {
		c.Pawl, c.Commit = pawlVersion(info)
	}
	return c
}

// pawlVersion finds the module in the binary, whose main module it may be or not.
func pawlVersion(info *debug.BuildInfo) (version, commit string) {
	if info.Main.Path != module {
		for _, dep := range info.Deps {
			if dep.Path == module {
				return dep.Version, ""
			}
		}
		return "", ""
	}
	modified := ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = ", with changes"
		}
	}
	if commit != "" {
		commit += modified
	}
	return info.Main.Version, commit
}

// cpuModel reads what Linux says of the first processor.
func cpuModel() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	defer f.Close()
	for in := bufio.NewScanner(f); in.Scan(); {
		if name, value, ok := strings.Cut(in.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
