package telemetry

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// silenceSDK keeps the SDK from writing to standard error. It reads the environment of
// the process on its own and repeats there, word for word, what it cannot read,
// which may be a collector's key; all that it reads is read here first, and what it
// makes of it is overruled. What goes wrong later its exporter returns. Who writes
// is the SDK's state, one for the process: there is no other place to say it.
func silenceSDK() {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(error) {}))
	unset(otel.SetLogger)
}

// unset calls set with the zero value, which of a logger writes nothing.
func unset[T any](set func(T)) {
	var none T
	set(none)
}

// usualTimeout is the specification's for one attempt to send.
const usualTimeout = 10 * time.Second

// options are all that an exporter can be told. Each is given even where it is the
// usual one, for what is not given the exporter takes from the environment of the
// process. ok is false where traces cannot go to the collector as they are asked to.
func (e *environment) options(at *url.URL, asJSON bool) (options []otlptracehttp.Option, ok bool) {
	headers, headersOK := e.headers()
	trust, trustOK := e.tls(at.Scheme == "https")
	encoding := otlptracehttp.EncodingProtobuf
	if asJSON {
		encoding = otlptracehttp.EncodingJSON
	}
	timeout, _ := e.first(envTracesTimeout, envOTLPTimeout)
	return []otlptracehttp.Option{
		otlptracehttp.WithEndpointURL(at.String()), otlptracehttp.WithEncoding(encoding), otlptracehttp.WithHeaders(headers),
		otlptracehttp.WithTLSClientConfig(trust), otlptracehttp.WithCompression(e.compression()),
		otlptracehttp.WithTimeout(e.milliseconds(timeout, usualTimeout)),
	}, headersOK && trustOK
}

// headers are what each request to the collector carries. They are not repeated in
// a warning: most are keys.
func (e *environment) headers() (headers map[string]string, ok bool) {
	name, list := e.first(envTracesHeaders, envHeaders)
	headers = map[string]string{}
	for pair := range strings.SplitSeq(list, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		key, value, ok := strings.Cut(pair, "=")
		key = strings.TrimSpace(key)
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if !ok || err != nil || !token(key) || strings.ContainsFunc(value, control) {
			e.warn("%s: the headers must have the form name=value,name=value, with other characters than letters and digits as %%xx, as authorization=Bearer%%20x. Traces are off.", name)
			return nil, false
		}
		headers[key] = strings.TrimSpace(value)
	}
	return headers, true
}

// control tells whether a header's value cannot have a character (RFC 9110, 5.5).
func control(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }

// token tells whether a text can be a header's name (RFC 9110, 5.6.2).
func token(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0) {
			return false
		}
	}
	return s != ""
}

// compression is how what is sent is packed.
func (e *environment) compression() otlptracehttp.Compression {
	name, v := e.first(envTracesCompression, envCompression)
	switch v {
	case "", "none":
		return otlptracehttp.NoCompression
	case "gzip":
		return otlptracehttp.GzipCompression
	}
	e.warn("%s=%q: it must be gzip or none; none is used", name, v)
	return otlptracehttp.NoCompression
}

// tls is whom to trust and who to be towards a collector, nil for the usual. ok is
// false where a file that says so cannot be read: without it a collector is not the
// one that was meant, or does not take anything.
func (e *environment) tls(https bool) (trust *tls.Config, ok bool) {
	ca, caFile := e.first(envTracesCertificate, envCertificate)
	cert, certFile := e.first(envTracesClientCert, envClientCert)
	key, keyFile := e.first(envTracesClientKey, envClientKey)
	if caFile == "" && certFile == "" && keyFile == "" {
		return nil, true
	}
	if !https {
		name, file := e.first(ca, cert, key)
		e.warn("%s=%q: certificates are for a collector at https://, and this one is at http://; none is used", name, file)
		return nil, true
	}
	trust = &tls.Config{MinVersion: tls.VersionTLS12}
	if caFile != "" {
		trust.RootCAs = x509.NewCertPool()
		if err := addCertificates(trust.RootCAs, caFile); err != nil {
			e.warn("%s=%q: %v; give a file with certificates in PEM. Traces are off.", ca, caFile, err)
			return nil, false
		}
	}
	if certFile == "" && keyFile == "" {
		return trust, true
	}
	if certFile == "" || keyFile == "" {
		e.warn("%s and %s: one is set without the other; set both or none. Traces are off.", envClientCert, envClientKey)
		return nil, false
	}
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		e.warn("%s=%q, %s=%q: %v; give files with a certificate and its key in PEM. Traces are off.", cert, certFile, key, keyFile, err)
		return nil, false
	}
	trust.Certificates = []tls.Certificate{pair}
	return trust, true
}

// addCertificates adds the certificates of a file to those that are trusted.
func addCertificates(to *x509.CertPool, file string) error {
	pem, err := os.ReadFile(file)
	var at *os.PathError
	switch {
	case errors.As(err, &at):
		return fmt.Errorf("the file cannot be read: %w", at.Err) // its name stands before
	case err != nil:
		return err
	case !to.AppendCertsFromPEM(pem):
		return errors.New("the file has no certificate")
	}
	return nil
}

// limits bound what a span may have.
func (e *environment) limits() sdktrace.SpanLimits {
	return sdktrace.SpanLimits{
		AttributeValueLengthLimit:   e.limit(sdktrace.DefaultAttributeValueLengthLimit, "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT"),
		AttributeCountLimit:         e.limit(sdktrace.DefaultAttributeCountLimit, "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "OTEL_ATTRIBUTE_COUNT_LIMIT"),
		EventCountLimit:             e.limit(sdktrace.DefaultEventCountLimit, "OTEL_SPAN_EVENT_COUNT_LIMIT"),
		LinkCountLimit:              e.limit(sdktrace.DefaultLinkCountLimit, "OTEL_SPAN_LINK_COUNT_LIMIT"),
		AttributePerEventCountLimit: e.limit(sdktrace.DefaultAttributePerEventCountLimit, "OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT", "OTEL_ATTRIBUTE_COUNT_LIMIT"),
		AttributePerLinkCountLimit:  e.limit(sdktrace.DefaultAttributePerLinkCountLimit, "OTEL_LINK_ATTRIBUTE_COUNT_LIMIT", "OTEL_ATTRIBUTE_COUNT_LIMIT"),
	}
}

// limit reads a bound from the first variable that is set; below zero there is none.
func (e *environment) limit(usual int, names ...string) int {
	name, v := e.first(names...)
	if v == "" {
		return usual
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		e.warn("%s=%q: it must be a whole number, -1 for no bound; %d is used", name, v, usual)
		return usual
	}
	return n
}
