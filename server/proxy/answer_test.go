package proxy

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"
)

// wire is the client's side of an answer. It counts write deadlines.
type wire struct {
	*httptest.ResponseRecorder
	deadlines int
	broken    error
}

func (w *wire) SetWriteDeadline(time.Time) error { w.deadlines++; return nil }

func (w *wire) FlushError() error { w.Flush(); return w.broken }

func newAnswer(stall time.Duration) (*answer, *wire) {
	w := &wire{ResponseRecorder: httptest.NewRecorder()}
	return answerOver(w, stall), w
}

func answerOver(w http.ResponseWriter, stall time.Duration) *answer {
	gin.SetMode(gin.ReleaseMode)
	c, _ := gin.CreateTestContext(w)
	a := &answer{}
	a.init(c.Writer, httptest.NewRequest(http.MethodPost, "/", nil), stall)
	return a
}

// sentBeats returns the number of sent heartbeats.
func sentBeats(a *answer, w *wire) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return strings.Count(w.Body.String(), string(heartbeat))
}

func TestFirstHeartbeatOpensTheAnswerAndLaterOnesFillPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, w := newAnswer(time.Minute)
		opened := 0
		a.startBeats(15*time.Second, func() { opened++ })
		time.Sleep(14 * time.Second)
		synctest.Wait()
		if !a.held() {
			t.Fatal("the answer opened before the first heartbeat")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if a.held() || a.committed() || opened != 1 || w.Code != http.StatusOK {
			t.Fatalf("held %v, committed %v, opened %d times with %d", a.held(), a.committed(), opened, w.Code)
		}
		a.sendHead(http.StatusOK, func(http.Header) { t.Error("an open answer got headers again") })
		if !a.committed() {
			t.Error("content did not commit")
		}
		// Events every ten seconds leave no pause to fill.
		for range 6 {
			time.Sleep(10 * time.Second)
			if err := a.write([]byte("data: {}\n\n"), true); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if n := sentBeats(a, w); n != 1 {
			t.Errorf("%d heartbeats, want only the first", n)
		}
		time.Sleep(31 * time.Second)
		synctest.Wait()
		if n := sentBeats(a, w); n != 3 {
			t.Errorf("%d heartbeats after a pause of 31 s, want 3", n)
		}
		a.stopBeats()
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := sentBeats(a, w); n != 3 {
			t.Errorf("%d heartbeats after the end, want 3", n)
		}
	})
}

func TestHeartbeatDoesNotBlockOnAPendingWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, w := newAnswer(time.Minute)
		a.startBeats(time.Second, func() {})
		a.mu.Lock() // a hanging write
		time.Sleep(10 * time.Second)
		synctest.Wait()
		a.mu.Unlock()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		a.stopBeats()
		if w.Body.Len() == 0 {
			t.Error("no heartbeat after the write ended")
		}
	})
}

func TestEveryWriteAfterAFailedOneReturnsItsError(t *testing.T) {
	a, w := newAnswer(time.Minute)
	a.sendHead(http.StatusOK, func(http.Header) {})
	if err := a.write([]byte("x"), true); err != nil {
		t.Fatal(err)
	}
	w.broken = errors.New("broken pipe")
	if err := a.write([]byte("y"), true); !errors.Is(err, w.broken) {
		t.Errorf("the write's error is %v", err)
	}
	w.broken = nil
	if err := a.write([]byte("z"), true); err == nil {
		t.Error("a write after a failed one succeeded")
	}
	if got := w.Body.String(); got != "xy" {
		t.Errorf("sent %q", got)
	}
}

func TestWriteDeadlineIsRenewedButNotAtEveryWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, w := newAnswer(40 * time.Second)
		a.sendHead(http.StatusOK, func(http.Header) {})
		for range 21 { // 20 s
			if err := a.write([]byte("x"), true); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if w.deadlines != 2 {
			t.Errorf("%d deadlines in 20 s of a stall of 40 s, want 2", w.deadlines)
		}
	})
}
