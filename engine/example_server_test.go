package engine_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"math/big"
	"net"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/internal/embedded"
)

// startRedis starts a Redis server inside this process. It stands in for yours, so
// that the examples run anywhere.
func startRedis() *embedded.Server {
	s, err := embedded.Start("")
	if err != nil {
		log.Fatal(err)
	}
	return s
}

// tlsRedis is a Redis server behind TLS, with a certificate of its own.
type tlsRedis struct {
	Roots *x509.CertPool // a client that trusts these trusts the server

	redis    *embedded.Server
	listener net.Listener
	conns    sync.WaitGroup
}

func startTLSRedis() *tlsRedis {
	s := &tlsRedis{redis: startRedis(), Roots: x509.NewCertPool()}
	cert, err := selfSigned()
	if err != nil {
		log.Fatal(err)
	}
	s.Roots.AddCert(cert.Leaf)
	s.listener, err = tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}})
	if err != nil {
		log.Fatal(err)
	}
	s.conns.Go(func() {
		for {
			c, err := s.listener.Accept()
			if err != nil {
				return
			}
			s.conns.Go(func() { s.serve(c) })
		}
	})
	return s
}

// serve carries bytes both ways until one side ends.
func (s *tlsRedis) serve(front net.Conn) {
	defer front.Close()
	back, err := net.Dial("tcp", s.redis.Addr())
	if err != nil {
		return
	}
	defer back.Close()
	s.conns.Go(func() {
		_, _ = io.Copy(back, front)
		back.Close()
	})
	_, _ = io.Copy(front, back)
}

func (s *tlsRedis) URL() string { return "rediss://" + s.listener.Addr().String() }

func (s *tlsRedis) Close() {
	s.listener.Close()
	s.redis.Close()
	s.conns.Wait()
}

// selfSigned makes a certificate for 127.0.0.1.
func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, err
	}
	leaf, err := x509.ParseCertificate(der)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, err
}
