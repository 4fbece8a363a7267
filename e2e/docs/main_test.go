package docs

import (
	"os"
	"testing"

	"tierway/e2e/gateway"
)

func TestMain(m *testing.M) { os.Exit(gateway.Main(m)) }
