// Package interop is the internal/suite of Pawl beside the real Redisson: a Java program
// (bench/peers/redisson) and engines use the same locks of the same servers. It needs Java and
// Maven, so it runs only when it is asked to, by make interop and make interop-short:
//
//	PAWL_INTEROP=short go test ./engine/internal/suite/interop
//
// A new type of lock is a row of the table in types_test.go, and a case in the Java program.
package interop
