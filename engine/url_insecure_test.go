package engine

import (
	"errors"
	"testing"
)

// Whoever asks for no verification, in whatever words, is told that a URL does not do that, and
// is not taken for somebody who asks for it.
func TestParseURL_NoVerification_IsRefusedInWhateverWords(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"skip_verify", "skip_tls_verify", "tlsSkipVerify", "noverify", "tls_no_verify", "sslNoVerify", "disable_verify",
		"disableTLSVerification", "ignore_verification", "insecure", "tlsInsecure", "allowInvalidCertificates", "trustServerCertificate",
	} {
		if _, err := ParseURL("rediss://h?" + name + "=true"); !errors.Is(err, ErrInvalid) || !hasText(err, "--insecure-skip-verify") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := ParseURL("rediss://h?" + name + "=false"); err != nil { // what the URL says anyway
			t.Errorf("%s: %v", name, err)
		}
	}
}
