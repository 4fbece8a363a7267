package main

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	silenceLibraries()
	os.Exit(m.Run())
}
