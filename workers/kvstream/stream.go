package kvstream

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"tierway/workers/kvevents"
	"tierway/workers/zmtp"
)

// Bounds of time.
const (
	RetryReplay  = 30 * time.Second // pause after a replay without an answer
	replayLimit  = 30 * time.Second // for a whole replay
	replayAnswer = 5 * time.Second  // for each message of a replay
	dialLimit    = 5 * time.Second
	minBackoff   = 100 * time.Millisecond // between connections
	maxBackoff   = time.Second
	lateMessages = 10 * time.Second // for what a replaced connection still has
	faultWindow  = 30 * time.Second // for maxFaults
)

// maxFaults is the number of undecodable messages within faultWindow after which a stream is not read until the
// window ends: each may take as long to decode as thousands of usual ones.
const maxFaults = 4

// Config is the configuration of one stream.
type Config struct {
	Topic  string // prefix of the topics to subscribe to; "" is all
	Replay string // address of the replay endpoint; "" if there is none

	Network zmtp.Network // of the engine's endpoints
}

// Sink receives the batches of a stream. Its methods are called by one goroutine at a time.
type Sink interface {
	// Apply applies the events of the next batch. The batch is valid during the call only.
	Apply(b *kvevents.Batch)
	// Reset is called when the applied events no longer describe the engine's cache.
	Reset()
	// SetLive is called when the stream becomes live and when it ceases to be.
	SetLive(live bool)
	// Report is called for each happening. err is nil for Connected, Restarted, Replayed and Begun.
	Report(h Happening, err error)
}

// Happening is an incident of a stream, for metrics and logs.
type Happening uint8

// The happenings.
const (
	Connected    Happening = iota // the publisher is connected
	Lost                          // the connection failed or ended
	Gap                           // messages were lost
	Restarted                     // the engine has restarted
	Replayed                      // a replay is complete
	ReplayFailed                  // a replay is not complete
	Unsequenced                   // messages have no sequence number: gaps cannot be found
	Undecodable                   // a message is no batch of events
	Begun                         // the next batch is the engine's first
	Happenings                    // number of happenings
)

// String is the happening's name in metrics.
func (h Happening) String() string {
	return [Happenings]string{"connected", "lost", "gap", "restarted", "replayed", "replay_failed", "unsequenced",
		"undecodable", "begun"}[h]
}

// Stream follows one publisher.
type Stream struct {
	config Config
	sink   Sink

	mu          sync.Mutex       // Serve may read two connections of one publisher for a moment
	readers     []*reader        // the connections of Serve, in the order of their first message
	joinedAt    time.Time        // when the last of them joined
	decoder     kvevents.Decoder // of live messages
	known       bool             // last and lastTime are those of an applied batch
	last        uint64           // sequence number
	lastTime    float64          // Unix time in seconds
	live        bool
	begun       bool      // Begun was reported, and no batch was applied
	partial     bool      // a replay failed: the events before those that were read are unknown
	retryAt     time.Time // before this time no replay is requested
	unsequenced bool      // Unsequenced was reported
	replayed    span      // numbers that the last replay has applied; live messages may repeat them
	faults      int       // undecodable messages since faultsFrom
	faultsFrom  time.Time
	suspended   bool // after too many of them, until the next message is read
}

type reader struct {
	conn  *zmtp.Conn
	known bool   // last is set
	last  uint64 // number of its last message
}

// span is a range of sequence numbers; the zero span is empty.
type span struct {
	filled      bool
	first, last uint64
}

func (s *span) extend(number uint64) {
	if !s.filled {
		s.filled, s.first = true, number
	}
	s.last = number
}

func (s *span) contains(number uint64) bool { return s.filled && s.first <= number && number <= s.last }

// New returns a stream that is not live.
func New(config Config, sink Sink) *Stream { return &Stream{config: config, sink: sink} }

// Follow reads a publisher that binds an address until the context ends. After an error it connects
// again, after a pause of at most a second.
func (s *Stream) Follow(ctx context.Context, address string) {
	for backoff := minBackoff; ctx.Err() == nil; backoff = min(2*backoff, maxBackoff) {
		connected, err := s.followOnce(ctx, address)
		if ctx.Err() != nil {
			return
		}
		suspended := time.Duration(0)
		s.locked(func() {
			s.disconnect(err)
			suspended = s.suspendedForLocked()
		})
		if connected {
			backoff = minBackoff
		}
		pause := time.NewTimer(max(suspended, backoff/2+rand.N(backoff/2+1)))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
		}
	}
}

// followOnce reads one connection until it ends.
func (s *Stream) followOnce(ctx context.Context, address string) (connected bool, err error) {
	dial, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	c, err := s.config.Network.Dial(dial, address, zmtp.Sub, zmtp.Limits{})
	if err != nil {
		return false, err
	}
	defer c.Close() // it was only read
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	if err := c.Subscribe(s.config.Topic); err != nil {
		return false, err
	}
	s.locked(func() {
		s.setLive(false) // it is still live if its last reader has panicked
		s.connect(ctx, false)
	})
	from := &reader{conn: c}
	for m := (zmtp.Message{}); ; {
		if err := c.Receive(&m); err != nil {
			return true, err
		}
		if s.applyMessage(ctx, from, m.Parts); s.isSuspended() {
			return true, errFaults
		}
	}
}

// errFaults is the error of a connection that is closed because of its messages.
var errFaults = fmt.Errorf("kvstream: %d messages within %v are not batches of events; reading resumes later",
	maxFaults, faultWindow)

// isSuspended reports whether messages are dropped unread because too many were undecodable.
func (s *Stream) isSuspended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.suspendedForLocked() > 0
}

func (s *Stream) suspendedForLocked() time.Duration {
	if s.faults < maxFaults {
		return 0
	}
	return time.Until(s.faultsFrom.Add(faultWindow))
}

// recordFault records an undecodable message. Its events are unknown, so the sink's blocks no longer describe the
// engine's cache.
func (s *Stream) recordFault(err error) {
	s.sink.Report(Undecodable, err)
	s.sink.Reset()
	if now := time.Now(); s.faults == 0 || now.Sub(s.faultsFrom) >= faultWindow {
		s.faults, s.faultsFrom = 0, now
	}
	if s.faults++; s.faults >= maxFaults {
		s.suspended = true
		s.setLive(false)
	}
}

// locked runs a step with the lock.
func (s *Stream) locked(step func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	step()
}

// connect brings the stream up to date on a new connection. queued means that the publisher keeps messages
// for a disconnected reader, so that the next one may follow the last. The caller has the lock.
func (s *Stream) connect(ctx context.Context, queued bool) {
	s.sink.Report(Connected, nil)
	if !s.catchUp(ctx, false) && s.known && !queued {
		s.reset()
	}
	s.setLive(true)
}

// disconnect marks the stream as not live. The caller has the lock.
func (s *Stream) disconnect(err error) {
	s.setLive(false)
	s.sink.Report(Lost, err)
}

func (s *Stream) setLive(live bool) {
	if s.live != live {
		s.live = live
		s.sink.SetLive(live)
	}
}

// reset drops the state of the engine's cache and the position in the stream.
func (s *Stream) reset() {
	s.known, s.begun, s.replayed = false, false, span{}
	s.sink.Reset()
}

var errFrames = errors.New("kvstream: a message needs the parts topic, sequence number and payload")

// errNumber is the error of a live message with the number that marks the end of a replay.
var errNumber = errors.New("kvstream: the sequence number 2^64-1 marks the end of a replay and is invalid in a message")

// applyMessage applies one live message of a connection: topic, sequence number and payload, or topic and
// payload.
func (s *Stream) applyMessage(ctx context.Context, from *reader, parts [][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.decoder.Trim()
	if s.suspended && s.suspendedForLocked() <= 0 { // Serve goes on with the same connection
		s.suspended = false
		s.setLive(true)
	}
	switch {
	case len(parts) == 2:
		if !s.unsequenced {
			s.unsequenced = true
			s.sink.Report(Unsequenced, errFrames)
		}
		if b, err := s.decoder.Decode(parts[1]); err != nil {
			s.recordFault(err)
		} else {
			s.sink.Apply(b)
		}
	case len(parts) == 3 && len(parts[1]) == 8:
		number := binary.BigEndian.Uint64(parts[1])
		if number == math.MaxUint64 {
			s.sink.Report(Undecodable, errNumber)
			return
		}
		live := s.live
		b, err := s.decoder.Decode(parts[2])
		if err != nil {
			b = nil
		}
		s.applyNumbered(ctx, from, number, b)
		s.setLive(live)
		if err != nil {
			s.recordFault(err)
		}
	default:
		s.recordFault(errFrames)
	}
}

// applyNumbered applies a batch in its place; nil is a message that is no batch. After a replay the stream
// is not live.
func (s *Stream) applyNumbered(ctx context.Context, from *reader, number uint64, b *kvevents.Batch) {
	before := *from
	from.known, from.last = true, number
	switch {
	case s.partial && !time.Now().Before(s.retryAt):
		s.catchUp(ctx, true)
	case !s.known && number > 0 && !s.partial:
		s.catchUp(ctx, false)
	case s.known && number <= s.last && s.isRestart(from, &before, number, b):
		s.sink.Report(Restarted, nil)
		s.reset()
		s.catchUp(ctx, false)
	case s.known && number > s.last+1:
		s.sink.Report(Gap, fmt.Errorf("kvstream: %d messages were lost", number-s.last-1))
		s.catchUp(ctx, false)
	}
	if s.known && number <= s.last {
		return // a replay has applied it
	}
	if s.known && number > s.last+1 || s.begun && number > lastFirst { // no replay has filled the gap
		s.reset()
	}
	s.apply(number, b)
}

// isRestart reports whether a message with a number up to the last one is of another process of the engine.
// before is the state of the message's connection before it. Clocks may differ between two processes, so the
// numbers decide: one process numbers its messages in order, and sends each once to a connection. A message
// that is not of another process is a repeated one.
func (s *Stream) isRestart(from, before *reader, number uint64, b *kvevents.Batch) bool {
	switch later := b != nil && b.Time > s.lastTime; {
	case b != nil && number == s.last && b.Time == s.lastTime: // a forwarder has repeated it
		return false
	case before.known && number <= before.last:
		return true
	case s.replayed.contains(number): // it was on its way during the replay
		return later
	case later || !before.known:
		return true
	}
	// It may have been on its way when the publisher connected again. Else the numbers of another
	// connection were wrong.
	replaced := len(s.readers) > 0 && s.readers[len(s.readers)-1] != from
	return !replaced || time.Since(s.joinedAt) >= lateMessages
}

// lastFirst is the highest number of a first batch: vLLM begins with 0, llm-d-inference-sim with 1.
const lastFirst = 1

// apply gives a batch to the sink. b is nil for a message that is no batch: only its number counts.
func (s *Stream) apply(number uint64, b *kvevents.Batch) {
	if !s.known && number <= lastFirst {
		s.begin()
	}
	s.known, s.begun, s.last = true, false, number
	if b != nil {
		s.lastTime = b.Time
		s.sink.Apply(b)
	}
}

// begin reports that the next batch is the engine's first, once.
func (s *Stream) begin() {
	s.partial = false
	if !s.begun {
		s.begun = true
		s.sink.Report(Begun, nil)
	}
}
