package state

import (
	"os"
	"testing"

	"tierway/e2e/backends"
	"tierway/e2e/gateway"
)

func TestMain(m *testing.M) {
	os.Exit(backends.Main(backends.RunnerFunc(func() int { return gateway.Main(m) })))
}
