package store_test

import (
	"os"
	"testing"

	"tierway/e2e/backends"
	_ "tierway/fixedseed"
)

func TestMain(m *testing.M) { os.Exit(backends.Main(m)) }
