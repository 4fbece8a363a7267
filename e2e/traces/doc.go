// Package traces looks at the gateway through a collector of OpenTelemetry: a
// receiver in the test takes what the real binary and the engines behind it export,
// and the tests ask it for whole traces.
package traces
