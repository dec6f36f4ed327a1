// Package interop is the suite of Pawl beside the real Redisson: a Java program
// (bench/peers/redisson) and engines use the same locks of the same servers. It needs Java and
// Maven, so it runs only when it is asked to, by make interop and make interop-short:
//
//	PAWL_INTEROP=short go test ./engine/suite/interop
//
// A new type of lock is a row of the table in types_test.go, and a case in the Java program.
package interop
