package intake

import (
	"net/http"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"tierway/openai"
)

// TestSilenceEndsABodyAfterAnyAmountOfData: data that arrived fast does not extend the limit of
// client_stall.
func TestSilenceEndsABodyAfterAnyAmountOfData(t *testing.T) {
	for sent, within := range map[int]time.Duration{0: bodyGrace, 10 << 10: 15 * time.Second, 1 << 20: 30 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			body := &silentBody{send: sent}
			began := time.Now()
			p := &pacedReader{r: body, control: http.NewResponseController(body), start: began, stall: 30 * time.Second}
			_, err := openai.Decode("", p, 32<<20, 32<<20, &BodyMemory{budget: &bodyBudget{limit: 1 << 30}})
			if took := time.Since(began); err == nil || took != within {
				t.Errorf("%d bytes, then silence: it ended after %v, want %v", sent, took, within)
			}
		})
	}
}

// silentBody is a body that returns its bytes at once and then waits for its deadline.
type silentBody struct {
	send  int
	until time.Time
}

func (s *silentBody) Read(p []byte) (int, error) {
	if n := min(s.send, len(p)); n > 0 {
		s.send -= n
		return n, nil
	}
	<-time.After(time.Until(s.until))
	return 0, os.ErrDeadlineExceeded
}

// Header, Write and WriteHeader make silentBody an http.ResponseWriter, because a ResponseController
// sets the read deadline through one.
func (s *silentBody) Header() http.Header { return nil }

func (s *silentBody) Write(p []byte) (int, error) { return len(p), nil }

func (s *silentBody) WriteHeader(int) {}

func (s *silentBody) SetReadDeadline(t time.Time) error { s.until = t; return nil }
