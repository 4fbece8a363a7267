package store_test

import (
	"os"
	"testing"

	"tierway/e2e/backends"
)

func TestMain(m *testing.M) { os.Exit(backends.Main(m)) }
