package main

import (
	"context"
	"log/slog"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
)

// logOTel sends the reports of the OpenTelemetry SDK to the program's log instead of standard
// error.
func logOTel(log *slog.Logger) {
	reports := otelLog{log}
	otel.SetLogger(logr.FromSlogHandler(reports))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { reports.warn(err.Error()) }))
}

// otelLog is a slog.Handler for reports of the SDK. It omits their values and errors, because
// these may repeat environment variables with a collector's key.
type otelLog struct{ log *slog.Logger }

// Enabled is part of slog.Handler. The SDK's warnings have the level -1.
func (otelLog) Enabled(_ context.Context, level slog.Level) bool { return level >= -1 }

func (o otelLog) Handle(_ context.Context, report slog.Record) error {
	o.warn(report.Message)
	return nil
}

func (o otelLog) WithAttrs([]slog.Attr) slog.Handler { return o }

func (o otelLog) WithGroup(string) slog.Handler { return o }

func (o otelLog) warn(problem string) {
	o.log.Warn("OpenTelemetry SDK reported a problem; check the OTEL_* variables", "problem", problem)
}
