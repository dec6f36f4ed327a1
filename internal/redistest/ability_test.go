package redistest

import "testing"

func TestLacksTLS_WhatServersSay_IsUnderstood(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]bool{
		"Reading the configuration file, at line 2\n>>> 'tls-port 1'\nBad directive or wrong number of arguments": true,
		"# Missing implement of connection type tls\n# Failed finding TLS support.":                               true,
		"# No tls-cert-file configured!\n# Failed to configure TLS. Check logs for more info.":                    false,
	} {
		if got := lacksTLS([]byte(said)); got != want {
			t.Errorf("%v of a server that says\n%s", got, said)
		}
	}
}

func TestProgram_Versions_CanWhatTheyCan(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]program{
		"Redis server v=6.2.14 sha=0":  {version: "Redis 6.2.14"},
		"Redis server v=7.0.15 sha=0":  {version: "Redis 7.0.15", seven: true},
		"Redis server v=8.2.3 sha=0":   {version: "Redis 8.2.3", seven: true},
		"Redis server v=8.4.0 sha=0":   {version: "Redis 8.4.0", seven: true, moves: true},
		"Redis server v=8.10.1 sha=0":  {version: "Redis 8.10.1", seven: true, moves: true},
		"Valkey server v=8.1.1 sha=0":  {version: "Valkey 8.1.1", seven: true},
		"Valkey server v=9.1.2 sha=0":  {version: "Valkey 9.1.2", seven: true, nine: true, moves: true},
		"Valkey server v=10.0.0 sha=0": {version: "Valkey 10.0.0", seven: true, nine: true, moves: true},
	} {
		if got, ok := programOf(answer); got != want || !ok {
			t.Errorf("%s: %+v, %v", answer, got, ok)
		}
	}
}
