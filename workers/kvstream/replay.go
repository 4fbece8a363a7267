package kvstream

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"tierway/workers/zmtp"
)

// Errors of a replay.
var (
	errHole = errors.New("kvstream: the replay has a hole")
)

// catchUp requests a replay of the batches after the last known one, and that one too. If the
// engine has another batch at its number, or none, the engine has restarted. whole requests all
// batches that the engine still has, to complete a partial state.
func (s *Stream) catchUp(ctx context.Context, whole bool) {
	if s.config.Replay == "" {
		return
	}
	begun, err := s.replay(ctx, whole)
	if errors.Is(err, errRestarted) {
		s.sink.Report(Restarted, nil)
		s.reset()
		_, err = s.replay(ctx, false)
	}
	switch {
	case err == nil:
		s.partial = false
		s.sink.Report(Replayed, nil)
	case ctx.Err() == nil:
		s.sink.Report(ReplayFailed, err)
		if begun || !whole {
			s.reset()
		}
		s.partial, s.retryAt = true, time.Now().Add(RetryReplay)
	}
}

// errRestarted is the error of a replay that is not of the engine's process that was known.
var errRestarted = errors.New("kvstream: the engine has restarted")

// replay asks once and applies the replies until the end marker. begun says that a reply came.
func (s *Stream) replay(ctx context.Context, whole bool) (begun bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, replayLimit)
	defer cancel()
	dial, cancelDial := context.WithTimeout(ctx, dialLimit)
	defer cancelDial()
	c, err := zmtp.Dial(dial, s.config.Replay, zmtp.Dealer, zmtp.Limits{})
	if err != nil {
		return false, err
	}
	defer c.Close() //nolint:errcheck // it was only read
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	from := uint64(0)
	if s.known && !whole {
		from = s.last
	}
	if err := c.Send(nil, binary.BigEndian.AppendUint64(nil, from)); err != nil {
		return false, err
	}
	r := replayReader{stream: s, next: from, whole: whole}
	for m := (zmtp.Message{}); ; {
		silent := time.AfterFunc(replayAnswer, func() { c.Close() })
		err := c.Receive(&m)
		silent.Stop()
		if err != nil {
			return r.begun, fmt.Errorf("replay from %d: %w", from, err)
		}
		if end, err := r.takeReply(m.Parts); end || err != nil {
			return r.begun, err
		}
	}
}

// replayReader reads the replies to one request.
type replayReader struct {
	stream *Stream
	next   uint64 // number of the next reply
	begun  bool
	whole  bool
}

// takeReply reads one reply: an empty part, the topic in newer engines, the sequence number and
// the payload. The end marker has the highest number and an empty payload.
func (r *replayReader) takeReply(parts [][]byte) (end bool, err error) {
	if len(parts) > 0 && len(parts[0]) == 0 {
		parts = parts[1:]
	}
	if len(parts) == 3 {
		parts = parts[1:]
	}
	if len(parts) != 2 || len(parts[0]) != 8 {
		return false, errFrames
	}
	number, s := binary.BigEndian.Uint64(parts[0]), r.stream
	if number == math.MaxUint64 || len(parts[1]) == 0 {
		if !r.begun && s.known && !r.whole {
			return true, errRestarted
		}
		return true, nil
	}
	b := s.decode(parts[1])
	if !r.begun {
		r.begun = true
		switch {
		case s.known && !r.whole && number == s.last:
			if b != nil && b.Time != s.lastTime {
				return false, errRestarted
			}
			r.next++
			return false, nil
		case s.known: // the engine's buffer begins later, or the whole is read
			s.reset()
		}
		r.next = number
	}
	if number != r.next {
		return false, errHole
	}
	r.next++
	s.apply(number, b)
	return false, nil
}
