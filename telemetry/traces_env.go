package telemetry

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
)

// Variables of the OpenTelemetry specification that count.
const (
	envDisabled       = "OTEL_SDK_DISABLED"
	envExporter       = "OTEL_TRACES_EXPORTER"
	envEndpoint       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	envTracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	envHeaders        = "OTEL_EXPORTER_OTLP_HEADERS"
	envTracesHeaders  = "OTEL_EXPORTER_OTLP_TRACES_HEADERS"
	envProtocol       = "OTEL_EXPORTER_OTLP_PROTOCOL"
	envTracesProtocol = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
	envSampler        = "OTEL_TRACES_SAMPLER"
	envSamplerArg     = "OTEL_TRACES_SAMPLER_ARG"
	envService        = "OTEL_SERVICE_NAME"
	envResource       = "OTEL_RESOURCE_ATTRIBUTES"
	envQueue          = "OTEL_BSP_MAX_QUEUE_SIZE"
	envBatch          = "OTEL_BSP_MAX_EXPORT_BATCH_SIZE"
	envDelay          = "OTEL_BSP_SCHEDULE_DELAY"
	envTimeout        = "OTEL_BSP_EXPORT_TIMEOUT"

	envOTLPTimeout       = "OTEL_EXPORTER_OTLP_TIMEOUT"
	envTracesTimeout     = "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT"
	envCompression       = "OTEL_EXPORTER_OTLP_COMPRESSION"
	envTracesCompression = "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION"
	envCertificate       = "OTEL_EXPORTER_OTLP_CERTIFICATE"
	envTracesCertificate = "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE"
	envClientCert        = "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"
	envTracesClientCert  = "OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE"
	envClientKey         = "OTEL_EXPORTER_OTLP_CLIENT_KEY"
	envTracesClientKey   = "OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY"
)

// environment reads variables and gathers what is wrong with them. Nothing in it
// keeps a gateway from starting: the environment is often not its operator's.
type environment struct {
	lookup   func(string) (string, bool)
	warnings []string
}

// get returns a variable; an empty one counts as unset, as the specification says.
func (e *environment) get(name string) string {
	if e.lookup == nil {
		return ""
	}
	v, _ := e.lookup(name)
	return strings.TrimSpace(v)
}

func (e *environment) warn(format string, args ...any) {
	e.warnings = append(e.warnings, fmt.Sprintf(format, args...))
}

// first returns the first variable that is set, and its name.
func (e *environment) first(names ...string) (name, value string) {
	for _, name = range names {
		if value = e.get(name); value != "" {
			return name, value
		}
	}
	return "", ""
}

// off tells whether the environment turns tracing off, whatever the configuration
// says.
func (e *environment) off() bool {
	disabled, exporter := strings.ToLower(e.get(envDisabled)), strings.ToLower(e.get(envExporter))
	switch {
	case disabled == "true", exporter == "none":
		return true
	case disabled != "" && disabled != "false":
		e.warn("%s=%q: it must be true or false; false is used", envDisabled, disabled)
	}
	if exporter != "" && exporter != "otlp" {
		e.warn("%s=%q: traces are exported by otlp only; set it to otlp, or to none to turn them off. They are off.", envExporter, exporter)
		return true
	}
	return false
}

// errNoEndpoint says that nobody asked for traces.
var errNoEndpoint = errors.New("no endpoint")

// tracesPath is where a collector takes traces, unless a URL says another place.
const tracesPath = "/v1/traces"

// endpoint returns where traces go: as the configuration says, else the
// environment. An error of the configuration is returned, one of the environment
// becomes a warning and errNoEndpoint.
func (e *environment) endpoint(configured string) (*url.URL, error) {
	if configured != "" {
		u, err := collectorURL(configured)
		if err != nil {
			return nil, fmt.Errorf("telemetry.otlp: %w", err)
		}
		if strings.Trim(u.Path, "/") == "" {
			u.Path = tracesPath
		}
		return u, nil
	}
	name, value := e.first(envTracesEndpoint, envEndpoint)
	if value == "" {
		return nil, errNoEndpoint
	}
	u, err := collectorURL(value)
	if err != nil {
		e.warn("%s: %v. Traces are off.", name, err)
		return nil, errNoEndpoint
	}
	if name == envEndpoint { // a base; the other one is taken as it is
		u = u.JoinPath(tracesPath)
	}
	return u, nil
}

// collectorURL reads a collector's URL. It is not repeated in an error, since it
// may hold a password.
func collectorURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return nil, errors.New("the value is no URL; give one such as http://jaeger:4318")
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return nil, errors.New("the URL must begin with http:// or https:// and name a host, as http://jaeger:4318")
	case u.User != nil:
		return nil, errors.New("a user in the URL is not sent; put credentials into OTEL_EXPORTER_OTLP_HEADERS, as authorization=Basic%20…")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("the URL has a query or fragment, which is not sent; leave it out")
	}
	return u, nil
}

// protocolJSON tells whether the collector is sent JSON; ok is false where it wants
// what is not spoken here. A configured endpoint overrules the environment, which
// then speaks of another collector.
func (e *environment) protocolJSON(configured bool) (asJSON, ok bool) {
	name, value := e.first(envTracesProtocol, envProtocol)
	switch {
	case value == "" || value == "http/protobuf":
		return false, true
	case value == "http/json":
		return true, true
	case configured:
		e.warn("%s=%q: traces are sent as http/protobuf to telemetry.otlp", name, value)
		return false, true
	}
	e.warn("%s=%q: traces are sent over HTTP only; set it to http/protobuf and the endpoint to the collector's port for OTLP over HTTP, by default 4318. Traces are off.", name, value)
	return false, false
}

// number reads a positive number of something.
func (e *environment) number(name, of string, usual, most int) int {
	v := e.get(name)
	if v == "" {
		return usual
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > most {
		e.warn("%s=%q: it must be a number of %s from 1 to %d; %d is used", name, v, of, most, usual)
		return usual
	}
	return n
}

// milliseconds reads a time.
func (e *environment) milliseconds(name string, usual time.Duration) time.Duration {
	const day = 24 * 60 * 60 * 1000
	return time.Duration(e.number(name, "milliseconds, without a unit,", int(usual.Milliseconds()), day)) * time.Millisecond
}

// resource says who exports: the service's name and version, and whatever else the
// environment says.
func (e *environment) resource(version string) *resource.Resource {
	attrs := []attribute.KeyValue{
		attribute.String("telemetry.sdk.name", "opentelemetry"), attribute.String("telemetry.sdk.language", "go"),
		attribute.String("telemetry.sdk.version", otel.Version()),
		attribute.String(AttrServiceName, "tierway"),
	}
	if version != "" {
		attrs = append(attrs, attribute.String(AttrServiceVersion, version))
	}
	for pair := range strings.SplitSeq(e.get(envResource), ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		key, value, ok := strings.Cut(pair, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		plain, err := url.PathUnescape(value)
		switch {
		case !ok || key == "":
			e.warn("%s: %q has not the form key=value; it is left out", envResource, pair)
			continue
		case err != nil:
			e.warn("%s: in %q is a %% that does not begin the code of a character; write it as %%25. It is taken as it is.", envResource, pair)
			plain = value
		}
		attrs = append(attrs, attribute.String(key, strings.ToValidUTF8(plain, "\ufffd")))
	}
	if name := e.get(envService); name != "" {
		attrs = append(attrs, attribute.String(AttrServiceName, name))
	}
	return resource.NewWithAttributes(SchemaURL, attrs...) // of a key that is there twice the last counts
}
