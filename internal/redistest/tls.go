package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// serverCert is a server's certificate, made when the server is, and signed by
// itself: trusting it trusts nothing else.
type serverCert struct {
	cert     *x509.Certificate
	certFile string
	keyFile  string
	pair     tls.Certificate
}

// makeCert makes a certificate for 127.0.0.1 and localhost and puts it into dir.
func makeCert(dir string) (*serverCert, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "redistest"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		DNSNames:              []string{"localhost"},
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	c := &serverCert{certFile: filepath.Join(dir, "cert.pem"), keyFile: filepath.Join(dir, "key.pem")}
	if c.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	if err := writePEM(c.certFile, "CERTIFICATE", der); err != nil {
		return nil, err
	}
	c.pair = tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	return c, writePEM(c.keyFile, "PRIVATE KEY", keyDER)
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// TLSConfig returns a client's configuration that trusts this server and nobody
// else, and shows the certificate that the server asks for with ClientCerts. It is nil
// unless Config.TLS is set.
func (p *Process) TLSConfig() *tls.Config {
	if p.cert == nil {
		return nil
	}
	pool := x509.NewCertPool()
	pool.AddCert(p.cert.cert)
	cfg := &tls.Config{RootCAs: pool, ServerName: "localhost", MinVersion: tls.VersionTLS12}
	if p.cfg.ClientCerts {
		cfg.Certificates = []tls.Certificate{p.cert.pair}
	}
	return cfg
}

// setUpTLS makes the certificate, where the configuration asks for one.
func (p *Process) setUpTLS() error {
	if !p.cfg.TLS {
		return nil
	}
	if p.cfg.cert != nil {
		p.cert = p.cfg.cert
		return nil
	}
	cert, err := makeCert(p.dir)
	if err != nil {
		return fmt.Errorf("redistest: certificate: %w", err)
	}
	p.cert = cert
	return nil
}
