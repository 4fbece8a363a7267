package proxy

import (
	"net/http"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

func TestSteadyClientIsNotCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, inner := newAnswer(time.Second)
		w := &slowWire{wire: inner}
		a := answerOver(w, time.Second)
		a.sendHead(http.StatusOK, func(http.Header) {})
		if err := a.write(make([]byte, 40*pieceBytes), true); err != nil { // takes 4 s; the stall time is 1 s
			t.Error(err)
		}
	})
}

// slowWire accepts a piece in 100 ms, and fails after its deadline.
type slowWire struct {
	*wire
	until time.Time
}

func (w *slowWire) SetWriteDeadline(t time.Time) error { w.until = t; return nil }

func (w *slowWire) Write(p []byte) (int, error) {
	time.Sleep(100 * time.Millisecond)
	if time.Now().After(w.until) {
		return 0, os.ErrDeadlineExceeded
	}
	return w.wire.Write(p)
}
