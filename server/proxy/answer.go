package proxy

import (
	"math"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// answerState is how much of an answer the client has.
type answerState uint8

const (
	stateHeld    answerState = iota // nothing: any status is possible, another worker may be tried
	stateOpen                       // 200 and comments: another worker may be tried, a failure is an error frame
	stateContent                    // content: no other worker, ever
)

// answer is the client's side of an exchange: what was sent, and the heartbeat
// that opens a stream early. Its mutex keeps the heartbeat's timer and the
// handler apart.
type answer struct {
	w       responseWriter
	control *http.ResponseController
	stall   time.Duration // a write that the client does not take for this long fails
	stream  bool          // the write deadline belongs to a stream of HTTP/2, not to a connection

	abort  bool // the connection must end without a clean end; the handler's alone
	status int  // as sent; 0 while held

	stopped atomic.Bool // no heartbeat any more

	mu       sync.Mutex // guards the rest; the last three are set once
	state    answerState
	err      error // the first failed write
	written  time.Time
	deadline time.Time // when the last write deadline was set; zero while none is
	beat     *time.Timer
	every    time.Duration
	opened   func() // sets the headers that are known when a heartbeat opens the answer
}

// responseWriter is gin's.
type responseWriter interface {
	http.ResponseWriter
	WriteHeaderNow()
}

// header is the header of the answer, which is sent with the status.
func (a *answer) header() http.Header { return a.w.Header() }

func (a *answer) init(w responseWriter, r *http.Request, stall time.Duration) {
	a.w, a.stall, a.stream = w, stall, r.ProtoMajor >= 2
	a.control = http.NewResponseController(unwrapped(w)) // gin's own Flush loses the error
}

// unwrapped returns net/http's writer below gin's.
func unwrapped(w http.ResponseWriter) http.ResponseWriter {
	if u, ok := w.(interface{ Unwrap() http.ResponseWriter }); ok {
		return u.Unwrap()
	}
	return w
}

// startBeats sends a comment after each `every` without anything else, the
// first of which opens the answer.
func (a *answer) startBeats(every time.Duration, opened func()) {
	if every <= 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.every, a.opened, a.written = every, opened, time.Now()
	a.beat = time.AfterFunc(math.MaxInt64, a.onBeat) // set before it can fire
	a.beat.Reset(every)
}

// onBeat runs on the timer's goroutine.
func (a *answer) onBeat() {
	if !a.mu.TryLock() {
		// Somebody is writing. If that write hangs, its deadline ends it.
		if !a.stopped.Load() {
			a.beat.Reset(a.every)
		}
		return
	}
	defer a.mu.Unlock()
	if a.stopped.Load() || a.err != nil {
		return
	}
	if rest := a.every - time.Since(a.written); rest > 0 {
		a.beat.Reset(rest)
		return
	}
	if a.state == stateHeld {
		a.opened()
		a.headLocked(http.StatusOK, stateOpen)
	}
	a.writeLocked(heartbeat, true) //nolint:errcheck // kept in a.err for the handler
	a.beat.Reset(a.every)
}

// heartbeat is a comment: an event, even an empty one, is a chunk to the SDKs.
var heartbeat = []byte(": keep-alive\n\n")

// stopBeats ends the heartbeats: after it only the handler touches the
// answer.
func (a *answer) stopBeats() {
	a.stopped.Store(true)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.beat != nil {
		a.beat.Stop()
	}
}

// held reports whether a real status can still be sent.
func (a *answer) held() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state == stateHeld
}

// hold ends the heartbeats of an answer that is held, and reports whether it was:
// from then on it stays held. An open answer keeps its heartbeats.
func (a *answer) hold() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state != stateHeld {
		return false
	}
	a.stopped.Store(true)
	return true
}

// committed reports whether content was sent, so that no other worker may be
// tried.
func (a *answer) committed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state == stateContent
}

// head sends the status and moves to content. On an answer that a heartbeat
// has opened it only moves.
func (a *answer) head(status int, set func(h http.Header)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state == stateHeld {
		set(a.w.Header())
		a.headLocked(status, stateContent)
		return
	}
	a.state = stateContent
}

func (a *answer) headLocked(status int, next answerState) {
	a.state, a.status = next, status
	a.w.WriteHeader(status)
	a.w.WriteHeaderNow()
}

// write sends bytes of content, and flushes them to the socket if asked.
// Its error is the first that any write has had.
func (a *answer) write(p []byte, flush bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.writeLocked(p, flush)
}

func (a *answer) writeLocked(p []byte, flush bool) error {
	if a.err != nil {
		return a.err
	}
	for piece := range slices.Chunk(p, pieceBytes) {
		if a.rollLocked() != nil {
			return a.err
		}
		if _, a.err = a.w.Write(piece); a.err != nil {
			return a.err
		}
	}
	if flush && a.rollLocked() == nil {
		a.err = a.control.Flush()
	}
	a.clearLocked()
	a.written = time.Now()
	return a.err
}

// pieceBytes is how much a client must take within the stall time: in the default
// 30 s, 2.2 KiB a second.
const pieceBytes = 64 << 10

// rollLocked renews the write deadline, which rolls with what the client takes.
// Setting it costs a timer, so it is kept for a quarter of the stall time.
func (a *answer) rollLocked() error {
	if now := time.Now(); now.Sub(a.deadline) > a.stall/4 {
		a.deadline = now
		a.err = a.control.SetWriteDeadline(now.Add(a.stall))
	}
	return a.err
}

// clearLocked removes the write deadline after a write to a stream of HTTP/2.
// There, net/http resets the stream when the deadline passes, even if no write is
// pending: it would bound the worker's silence. On a connection of HTTP/1 only a
// pending write fails, and the next write renews the deadline.
func (a *answer) clearLocked() {
	if a.stream && a.err == nil {
		a.deadline = time.Time{}
		a.err = a.control.SetWriteDeadline(time.Time{})
	}
}
