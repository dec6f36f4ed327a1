package engine_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"

	"github.com/pawl-lock/pawl/engine"
)

// A rediss:// URL is enough for a certificate that the system trusts. For one of
// your own, parse the URL and say whom to trust.
func ExampleNew_tls() {
	server := startTLSRedis() // with a certificate of its own
	defer server.Close()
	ctx := context.Background()

	cfg, err := engine.ParseURL(server.URL())
	if err != nil {
		log.Fatal(err)
	}
	cfg.TLS.RootCAs = server.Roots
	eng, err := engine.New(ctx, cfg)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()
	err = eng.Mutex("secret").Do(ctx, func(context.Context, *engine.Hold) error {
		fmt.Println("locked over TLS")
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}

	// Without that, the server is a stranger, and Open fails at once.
	_, err = engine.Open(ctx, server.URL())
	var untrusted *tls.CertificateVerificationError
	fmt.Println("refused:", errors.As(err, &untrusted))
	// Output:
	// locked over TLS
	// refused: true
}
