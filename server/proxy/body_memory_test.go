package proxy

import (
	"bytes"
	"net/http"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"tierway/openai"
)

// TestNoTenantTakesTheMemoryOfOthers: whatever tenants hold, one that holds nothing
// finds memory free, and nothing is given back twice.
func TestNoTenantTakesTheMemoryOfOthers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const limit = 1 << 20
		var b bodyBudget
		b.configure(limit, 1)
		var all []*bodyMemory
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			if i := rapid.IntRange(-1, len(all)-1).Draw(t, "which"); i >= 0 && rapid.Bool().Draw(t, "end") {
				all[i].release()
				all[i].release()
				continue
			}
			m := &bodyMemory{budget: &b, tenant: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "tenant")}
			all = append(all, m)
			_ = m.Reserve(rapid.Int64Range(1, limit).Draw(t, "bytes"))
		}
		held, _ := b.sizes()
		var sum int64
		for _, m := range all {
			sum += m.held
		}
		if held != sum || held >= limit {
			t.Fatalf("%d bytes are held, %d by requests", held, sum)
		}
		if !b.reserve("d", (limit-held)/2) {
			t.Fatalf("a tenant that holds nothing gets nothing of %d free bytes", limit-held)
		}
		b.release("d", (limit-held)/2)
		for _, m := range all {
			m.release()
		}
		if held, _ := b.sizes(); held != 0 || len(b.by) != 0 {
			t.Fatalf("%d bytes of %d tenants are left", held, len(b.by))
		}
	})
}

// TestTheLongestBodyFitsBesideAnotherTenantsBacklog: in a budget of eight times its length,
// announced or not.
func TestTheLongestBodyFitsBesideAnotherTenantsBacklog(t *testing.T) {
	const longest = 1 << 20
	var b bodyBudget
	b.configure(8*longest, longest)
	backlog := bodyMemory{budget: &b, tenant: "a"}
	for backlog.Reserve(longest/64) == nil {
	}
	for _, hint := range []int64{longest, -1} {
		m := bodyMemory{budget: &b, tenant: "b"}
		if body, err := openai.Decode("", bytes.NewReader(make([]byte, longest)), hint, longest, &m); err != nil || len(body) != longest {
			t.Errorf("announced as %d: %d bytes, %v, beside %d", hint, len(body), err, backlog.held)
		}
		m.release()
	}
	backlog.release()
}

// TestSilenceEndsABodyWhateverCameBefore: a megabyte that came at once is no credit for
// silence, which client_stall bounds.
func TestSilenceEndsABodyWhateverCameBefore(t *testing.T) {
	for sent, within := range map[int]time.Duration{0: bodyGrace, 10 << 10: 15 * time.Second, 1 << 20: 30 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			body := &silentBody{send: sent}
			began := time.Now()
			p := &paced{r: body, control: http.NewResponseController(body), start: began, stall: 30 * time.Second}
			_, err := openai.Decode("", p, 32<<20, 32<<20, &bodyMemory{budget: &bodyBudget{limit: 1 << 30}})
			if took := time.Since(began); err == nil || took != within {
				t.Errorf("%d bytes, then silence: it ended after %v, want %v", sent, took, within)
			}
		})
	}
}

// silentBody is a body that sends its bytes at once and then waits for its deadline.
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

// Header, Write and WriteHeader make it a http.ResponseWriter, as whose deadline
// the reader's is set.
func (s *silentBody) Header() http.Header { return nil }

func (s *silentBody) Write(p []byte) (int, error) { return len(p), nil }

func (s *silentBody) WriteHeader(int) {}

func (s *silentBody) SetReadDeadline(t time.Time) error { s.until = t; return nil }
