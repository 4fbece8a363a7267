package kvstream

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"tierway/workers/kvevents"
	"tierway/workers/zmtp"
)

var errHole = errors.New("kvstream: the replay has a hole")

// catchUp requests a replay from the last known batch on, that one included. If the engine has another
// batch at its number, or none, the engine has restarted. With whole it requests all batches that the
// engine still has, to complete a partial state. The stream is not live afterwards. catchUp returns false
// if it requested no replay: there is no endpoint, or the last replay failed less than RetryReplay ago.
func (s *Stream) catchUp(ctx context.Context, whole bool) (requested bool) {
	if s.config.Replay == "" {
		return false
	}
	if time.Now().Before(s.retryAt) {
		s.partial = true
		return false
	}
	s.setLive(false)
	s.replayed = span{}
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
	return true
}

// errRestarted is the error of a replay by another process of the engine than the known one.
var errRestarted = errors.New("kvstream: the engine has restarted")

// replay sends one request and applies the replies until the end marker. begun reports whether a reply
// came.
func (s *Stream) replay(ctx context.Context, whole bool) (begun bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, replayLimit)
	defer cancel()
	dial, cancelDial := context.WithTimeout(ctx, dialLimit)
	defer cancelDial()
	c, err := s.config.Network.Dial(dial, s.config.Replay, zmtp.Dealer, zmtp.Limits{})
	if err != nil {
		return false, err
	}
	defer c.Close() // it was only read
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
		if end, err := r.applyReply(m.Parts); end || err != nil {
			return r.begun, err
		}
	}
}

// replayReader reads the replies to one request.
type replayReader struct {
	stream  *Stream
	decoder kvevents.Decoder // not the stream's, which has a live message meanwhile
	next    uint64           // number of the next reply
	begun   bool
	whole   bool
}

// applyReply applies one reply: an empty part, the topic in newer engines, the sequence number and
// the payload. The end marker has the highest number and an empty payload.
func (r *replayReader) applyReply(parts [][]byte) (end bool, err error) {
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
		switch {
		case !r.begun && s.known && !r.whole:
			return true, errRestarted
		case !r.begun && !s.known: // the engine has published nothing
			s.begin()
		}
		return true, nil
	}
	b, err := r.decoder.Decode(parts[1])
	if err != nil { // its events are as unknown as those of a missing number
		s.sink.Report(Undecodable, err)
		return false, err
	}
	if !r.begun {
		r.begun = true
		switch {
		case s.known && !r.whole && number == s.last:
			if b.Time != s.lastTime {
				return false, errRestarted
			}
			s.replayed.extend(number)
			r.next++
			return false, nil
		case s.known, s.begun && number > lastFirst: // the engine's buffer begins later, or all of it is read
			s.reset()
		}
		r.next = number
	}
	if number != r.next {
		return false, errHole
	}
	r.next++
	s.replayed.extend(number)
	s.apply(number, b)
	return false, nil
}
