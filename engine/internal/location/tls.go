package location

import (
	"crypto/tls"

	"github.com/pawl-lock/pawl/engine/internal/lockerr"
)

// SentinelTLS is what sentinels are reached with: as servers are (nil), with TLS, or with none, as the setting
// sentinel_tls says. The setting tls_server_name is noted in both.
func SentinelTLS(servers, none *tls.Config, serverName, setting string) (sentinels *tls.Config, err error) {
	switch setting {
	case "on":
		if sentinels = servers; servers == nil {
			sentinels = &tls.Config{MinVersion: tls.VersionTLS12}
		}
	case "off":
		sentinels = none
	}
	if serverName == "" {
		return sentinels, nil
	}
	if servers == nil && (sentinels == nil || sentinels == none) {
		return nil, lockerr.Invalid("the URL's tls_server_name needs TLS: write rediss instead of redis")
	}
	for _, cfg := range []*tls.Config{servers, sentinels} {
		if cfg != nil && cfg != none {
			cfg.ServerName = serverName
		}
	}
	return sentinels, nil
}
