package server

import (
	"context"
	"log/slog"

	"tierway/routing"
)

// logAccess writes a request's one line, made from its Decision alone.
func (s *Server) logAccess(d *routing.Decision) {
	if s.access == nil {
		return
	}
	level := slog.LevelInfo
	if d.Outcome == routing.Failed || d.Outcome == routing.Truncated {
		level = slog.LevelWarn
	}
	attrs := make([]slog.Attr, 0, 28) // as many as can be added below
	attrs = append(attrs,
		slog.String("request_id", d.RequestID), slog.String("method", d.Method), slog.String("route", d.Route),
		slog.Int("status", d.Status), slog.String("outcome", string(d.Outcome)), slog.Float64("duration_ms", d.DurationMs))
	text := func(key, value string) {
		if value != "" {
			attrs = append(attrs, slog.String(key, value))
		}
	}
	text("code", d.Code)
	text("cause", d.Cause)
	text("tenant", d.Tenant)
	text("class", d.Class)
	text("dialect", d.Dialect)
	text("requested_model", d.RequestedModel)
	text("model", d.Model)
	text("tier", d.Tier)
	text("rule", d.Rule)
	text("worker", d.Worker)
	text("reason", d.Reason)
	if n := len(d.Attempts); n > 0 {
		attrs = append(attrs, slog.Int("attempts", n), slog.Float64("overhead_ms", d.OverheadMs), slog.Float64("queue_ms", d.QueueMs))
	}
	if d.Stream {
		attrs = append(attrs, slog.Bool("stream", true))
	}
	if d.TTFTMs > 0 {
		attrs = append(attrs, slog.Float64("ttft_ms", d.TTFTMs))
	}
	if u := d.Usage; u != (routing.Usage{}) {
		attrs = append(attrs, slog.Int64("prompt_tokens", u.Prompt), slog.Int64("cached_tokens", u.Cached), slog.Int64("output_tokens", u.Output))
	}
	s.access.LogAttrs(context.Background(), level, "request", attrs...)
}
