package proxy

import (
	"math"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// answerState is the part of an answer that the client has received.
type answerState uint8

const (
	stateHeld    answerState = iota // nothing: any status is possible, another worker may be tried
	stateOpen                       // 200 and comments: another worker may be tried, a failure is an error event
	stateContent                    // content: no other worker may be tried
)

// answer is the client's side of an exchange: the sent part, and the heartbeats that can open a
// stream early. Its mutex synchronizes the timer of the heartbeats with the handler.
type answer struct {
	w       responseWriter
	control http.ResponseController
	stall   time.Duration // a write fails if the client accepts no data for this time
	stream  bool          // HTTP/2: the write deadline belongs to a stream, not to a connection

	abort  bool // the connection must be cut; owned by the handler
	status int  // the sent status; 0 while held

	stopped atomic.Bool // no further heartbeats

	mu       sync.Mutex // guards the rest; the last three are set once
	state    answerState
	err      error // the first failed write
	written  time.Time
	deadline time.Time // when the last write deadline was set; zero without one
	beat     *time.Timer
	every    time.Duration
	opened   func() // sets the headers of an answer that a heartbeat opens
}

type responseWriter interface {
	http.ResponseWriter
	WriteHeaderNow()
}

// header returns the header of the answer, which is sent with the status.
func (a *answer) header() http.Header { return a.w.Header() }

// continuer is a writer that can register a function, which the server calls after the handler.
type continuer interface{ ContinueAfterHandler(func()) }

// mayContinue reports whether the answer can be written after the handler.
func (a *answer) mayContinue() bool {
	_, ok := unwrapped(a.w).(continuer)
	return ok
}

// continueWith registers f with the server, which calls it after the handler. The head must be sent. The router's
// writer is not used any more.
func (a *answer) continueWith(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := unwrapped(a.w)
	a.w = sentHead{w}
	w.(continuer).ContinueAfterHandler(f)
}

// sentHead is the writer of an answer after its head was sent.
type sentHead struct{ http.ResponseWriter }

// WriteHeaderNow does nothing: the head is sent.
func (sentHead) WriteHeaderNow() {}

func (a *answer) init(w responseWriter, r *http.Request, stall time.Duration) {
	a.w, a.stall, a.stream = w, stall, r.ProtoMajor >= 2
	a.control = *http.NewResponseController(unwrapped(w)) // gin's own Flush loses the error
}

func unwrapped(w http.ResponseWriter) http.ResponseWriter {
	if u, ok := w.(interface{ Unwrap() http.ResponseWriter }); ok {
		return u.Unwrap()
	}
	return w
}

// startBeats starts heartbeats: a comment line after each period `every` without other data. The first one
// opens the answer.
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
		// A write is in progress. If it hangs, its deadline ends it.
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
	a.writeLocked(heartbeat, true) // kept in a.err for the handler
	a.beat.Reset(a.every)
}

// heartbeat is a comment: SDKs read an event, even an empty one, as a chunk. No blank line follows it.
// Some versions of openai-go read a blank line as an event without data, and openai-python does so after
// an id line.
var heartbeat = []byte(": keep-alive\n")

// stopBeats ends the heartbeats. Afterwards only the handler uses the answer.
func (a *answer) stopBeats() {
	a.stopped.Store(true)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.beat != nil {
		a.beat.Stop()
	}
}

// held reports whether nothing is sent yet, so that any status is possible.
func (a *answer) held() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state == stateHeld
}

// stopBeatsIfHeld stops the heartbeats of a held answer, so that it stays held, and reports whether the
// answer was held. An open answer keeps its heartbeats.
func (a *answer) stopBeatsIfHeld() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state != stateHeld {
		return false
	}
	a.stopped.Store(true)
	return true
}

// committed reports whether content was sent, so that no other worker may be tried.
func (a *answer) committed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state == stateContent
}

// sendHead sets the headers, sends the status and moves to stateContent. If a heartbeat has opened the
// answer, it only moves, because the status is already sent.
func (a *answer) sendHead(status int, set func(h http.Header)) {
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

// write sends bytes of content, and flushes them to the socket if flush is set. It returns the first
// error of all writes.
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
		if a.renewDeadlineLocked() != nil {
			return a.err
		}
		if _, a.err = a.w.Write(piece); a.err != nil {
			return a.err
		}
	}
	if flush && a.renewDeadlineLocked() == nil {
		a.err = a.control.Flush()
	}
	a.clearDeadlineLocked()
	a.written = time.Now()
	return a.err
}

// pieceBytes is the number of bytes that a client must accept within the stall time. The deadline is not renewed for
// each write, so the client may have only two thirds of this time: it needs 3 KiB/s with the default of 30 s.
const pieceBytes = 64 << 10

// renewDeadline gives the client the stall time for the end of the answer, which the server writes after the handler.
func (a *answer) renewDeadline() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err == nil {
		_ = a.renewDeadlineLocked() // kept in a.err
	}
}

// renewDeadlineLocked renews the write deadline after the client has accepted data. Setting it costs a timer, so
// it is renewed only after a quarter of the stall time.
func (a *answer) renewDeadlineLocked() error {
	if now := time.Now(); now.Sub(a.deadline) > a.stall/4 {
		a.deadline = now
		a.err = a.control.SetWriteDeadline(now.Add(a.stall))
	}
	return a.err
}

// clearDeadlineLocked removes the write deadline after a write over HTTP/2. There, net/http resets the
// stream at the deadline even if no write is pending, so the deadline would bound the worker's
// silence. Over HTTP/1 only a pending write fails, and the next write renews the deadline.
func (a *answer) clearDeadlineLocked() {
	if a.stream && a.err == nil {
		a.deadline = time.Time{}
		a.err = a.control.SetWriteDeadline(time.Time{})
	}
}
