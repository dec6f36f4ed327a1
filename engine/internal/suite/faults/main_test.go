package faults

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/dnstest"
)

func TestMain(m *testing.M) {
	dnstest.Install()
	goleak.VerifyTestMain(m, testkit.Endless()...)
}
