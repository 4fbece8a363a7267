package proxy

import (
	"testing"
	"time"
)

func TestRetryBudgetIsFullAtStartAndGrowsByShareAndTrickle(t *testing.T) {
	now := time.Unix(0, 0)
	b := newRetryBudget()
	b.configure(0.2)
	takes := func() (n int) {
		for b.spendRetry(now) {
			n++
		}
		return n
	}
	if n := takes(); n != retryCap {
		t.Errorf("at the start %d retries, want %d", n, retryCap)
	}
	for range 100 {
		b.creditRequest()
	}
	if n := takes(); n < 19 || n > 20 {
		t.Errorf("after 100 requests %d retries, want 20", n)
	}
	now = now.Add(2 * time.Second)
	if n := takes(); n != 2*retryTrickle {
		t.Errorf("after two quiet seconds %d retries, want %d", n, 2*retryTrickle)
	}
	now = now.Add(-time.Hour)
	if n := takes(); n != 0 {
		t.Errorf("a clock that steps back gave %d retries", n)
	}
	now = now.Add(1000 * time.Hour)
	if n := takes(); n != retryCap {
		t.Errorf("a long quiet time saved up %d retries, want %d", n, retryCap)
	}
}
