package main

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/go-logr/logr"
)

// OB-01: the SDK reports a value that it cannot read, which may be a collector's key.
func TestOTelErrorsAreLoggedWithoutValues(t *testing.T) {
	var out bytes.Buffer
	log := logr.FromSlogHandler(otelLog{slog.New(slog.NewTextHandler(&out, nil))})
	log.Error(errors.New("missing secret"), "parse headers", "input", "secret")
	log.WithValues("input", "secret").WithName("secret").Error(nil, "parse url")
	log.V(1).Info("grpc is not a valid protocol", "input", "secret")
	log.V(4).Info("TracerProvider created", "config", "secret") // no problem
	for _, problem := range []string{`"parse headers"`, `"parse url"`, `"grpc is not a valid protocol"`} {
		if !strings.Contains(out.String(), "problem="+problem) {
			t.Errorf("%s is not logged", problem)
		}
	}
	if strings.Count(out.String(), "\n") != 3 || strings.Count(out.String(), "level=WARN") != 3 ||
		strings.Contains(out.String(), "secret") {
		t.Errorf("the log:\n%s", &out)
	}
}
