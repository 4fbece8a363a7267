package kvstream

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
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
)

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
	readers     []*zmtp.Conn     // the connections of Serve, in the order of their first message
	decoder     kvevents.Decoder // of live messages
	known       bool             // last and lastTime are those of an applied batch
	last        uint64           // sequence number
	lastTime    float64          // Unix time in seconds
	live        bool
	begun       bool      // Begun was reported, and no batch was applied
	partial     bool      // a replay failed: the events before those that were read are unknown
	retryAt     time.Time // before this time no replay is requested
	unsequenced bool      // Unsequenced was reported
}

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
		s.locked(func() { s.disconnect(err) })
		if connected {
			backoff = minBackoff
		}
		pause := time.NewTimer(backoff/2 + rand.N(backoff/2+1))
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
	defer c.Close() //nolint:errcheck // it was only read
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	if err := c.Subscribe(s.config.Topic); err != nil {
		return false, err
	}
	s.locked(func() {
		s.setLive(false) // it is still live if its last reader has panicked
		s.connect(ctx, false)
	})
	for m := (zmtp.Message{}); ; {
		if err := c.Receive(&m); err != nil {
			return true, err
		}
		s.applyMessage(ctx, m.Parts)
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
	s.known, s.begun = false, false
	s.sink.Reset()
}

// errFrames is the error of a message with wrong parts.
var errFrames = errors.New("kvstream: a message needs the parts topic, sequence number and payload")

// applyMessage applies one live message: topic, sequence number and payload, or topic and payload.
func (s *Stream) applyMessage(ctx context.Context, parts [][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.decoder.Trim()
	switch {
	case len(parts) == 2:
		if !s.unsequenced {
			s.unsequenced = true
			s.sink.Report(Unsequenced, errFrames)
		}
		if b := s.decode(&s.decoder, parts[1]); b != nil {
			s.sink.Apply(b)
		}
	case len(parts) == 3 && len(parts[1]) == 8:
		live := s.live
		s.applyNumbered(ctx, binary.BigEndian.Uint64(parts[1]), s.decode(&s.decoder, parts[2]))
		s.setLive(live)
	default:
		s.sink.Report(Undecodable, errFrames)
	}
}

// applyNumbered applies a batch in its place; nil is a message that is no batch. After a replay the stream
// is not live.
func (s *Stream) applyNumbered(ctx context.Context, number uint64, b *kvevents.Batch) {
	switch {
	case s.partial && !time.Now().Before(s.retryAt):
		s.catchUp(ctx, true)
	case !s.known && number > 0 && !s.partial:
		s.catchUp(ctx, false)
	case s.known && number <= s.last && b != nil && b.Time > s.lastTime:
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

// decode returns nil for a message that is no batch of events.
func (s *Stream) decode(d *kvevents.Decoder, payload []byte) *kvevents.Batch {
	b, err := d.Decode(payload)
	if err != nil {
		s.sink.Report(Undecodable, err)
		return nil
	}
	return b
}
