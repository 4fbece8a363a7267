package proxy

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"tierway/openai"
	"tierway/routing"
)

func TestWorkerStatusesAreClassified(t *testing.T) {
	type want struct {
		passes, excluded, retry bool
		backoff                 time.Duration
		code                    openai.Code
		status                  int
	}
	for _, c := range []struct {
		status int
		after  time.Duration
		asked  bool
		want   want
	}{
		{status: 400, want: want{passes: true, excluded: true}},
		{status: 402, want: want{passes: true, excluded: true}},
		{status: 404, want: want{passes: true, excluded: true}},
		{status: 409, want: want{passes: true, excluded: true}},
		{status: 413, want: want{passes: true, excluded: true}},
		{status: 422, want: want{passes: true, excluded: true}},
		{status: 401, want: want{excluded: true, retry: true, backoff: backoffMin, code: openai.CodeWorkerAuthFailed,
			status: 502}},
		{status: 403, want: want{excluded: true, retry: true, backoff: backoffMin, code: openai.CodeWorkerAuthFailed,
			status: 502}},
		{status: 408, want: want{excluded: true, retry: true, code: openai.CodeWorkerTimeout, status: 504}},
		{status: 429, asked: true,
			want: want{excluded: true, retry: true, backoff: backoffMin, code: openai.CodeRateLimitExceeded, status: 429}},
		{status: 503, asked: true, want: want{excluded: true, retry: true, backoff: backoffMin, code: openai.CodeOverloaded,
			status: 503}},
		{status: 429, want: want{excluded: true, retry: true, backoff: backoffMin, code: openai.CodeRateLimitExceeded,
			status: 429}},
		{status: 429, after: 5 * time.Second, asked: true, want: want{excluded: true, retry: true, backoff: 5 * time.Second,
			code: openai.CodeRateLimitExceeded, status: 429}},
		{status: 503, after: time.Hour, asked: true,
			want: want{excluded: true, retry: true, backoff: backoffMax, code: openai.CodeOverloaded, status: 503}},
		{status: 503, want: want{excluded: true, retry: true, backoff: backoffMin, code: openai.CodeOverloaded, status: 503}},
		{status: 529, want: want{excluded: true, retry: true, backoff: backoffMin, code: openai.CodeOverloaded, status: 503}},
		{status: 529, after: 5 * time.Second, asked: true,
			want: want{excluded: true, retry: true, backoff: 5 * time.Second, code: openai.CodeOverloaded, status: 503}},
		{status: 501, want: want{excluded: true, retry: true, code: openai.CodeWorkerError, status: 502}},
		{status: 500, want: want{retry: true, code: openai.CodeWorkerError, status: 502}},
		{status: 502, want: want{retry: true, code: openai.CodeWorkerError, status: 502}},
		{status: 504, want: want{retry: true, code: openai.CodeWorkerError, status: 502}},
		{status: 508, want: want{excluded: true, retry: true, code: openai.CodeLoopDetected, status: 508}},
		{status: 302, want: want{retry: true, code: openai.CodeWorkerProtocol, status: 502}},
		{status: 100, want: want{retry: true, code: openai.CodeWorkerProtocol, status: 502}},
	} {
		f, passes := statusFailure(c.status, c.after, c.asked)
		got := want{passes: passes, excluded: errors.Is(f.fault, routing.ErrExcluded), retry: f.retry, backoff: f.backoff}
		if f.err != nil {
			got.code, got.status = f.err.Code, f.err.HTTPStatus()
		}
		if got != c.want {
			t.Errorf("%d (Retry-After %v): %+v, want %+v", c.status, c.after, got, c.want)
		}
		if c.asked && f.err.RetryAfter != max(c.after, time.Second) {
			t.Errorf("%d: the client's Retry-After is %v, the worker's %v", c.status, f.err.RetryAfter, c.after)
		}
		if f.fault == nil || !f.sent {
			t.Errorf("%d: the fault is %v, sent is %v", c.status, f.fault, f.sent)
		}
	}
}

func TestRetryAfterIsParsedAsSecondsAndAsDate(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		value string
		want  time.Duration
		ok    bool
	}{
		{"", 0, false}, {"7", 7 * time.Second, true}, {"0", 0, true}, {"2.5", 2500 * time.Millisecond, true},
		{"-1", 0, false}, {"NaN", 0, false}, {"Inf", retryAfterMax, true}, {"soon", 0, false},
		{"999999999999", retryAfterMax, true}, {"Fri, 31 Dec 9999 23:59:59 GMT", retryAfterMax, true},
		{now.Add(90 * time.Second).Format(http.TimeFormat), 90 * time.Second, true},
		{now.Add(-time.Hour).Format(http.TimeFormat), 0, true},
	} {
		h := http.Header{}
		if c.value != "" {
			h.Set("Retry-After", c.value)
		}
		got, ok := retryAfter(h, now)
		if got != c.want || ok != c.ok {
			t.Errorf("%q: %v, %v, want %v, %v", c.value, got, ok, c.want, c.ok)
		}
	}
	for name, want := range map[string]time.Duration{"Retry-After-Ms": 1500 * time.Millisecond,
		"X-Ms-Retry-After-Ms": 1500 * time.Millisecond} {
		if got, ok := retryAfter(http.Header{name: {"1500"}}, now); got != want || !ok {
			t.Errorf("%s: %v, %v", name, got, ok)
		}
	}
}
