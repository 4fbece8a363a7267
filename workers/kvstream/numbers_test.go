package kvstream

import (
	"io"
	"math"
	"slices"
	"testing"

	"github.com/tinylib/msgp/msgp"
)

// batchOf is a batch of that time which stores one block.
func batchOf(at float64, hash uint64) []byte {
	b := msgp.AppendArrayHeader(nil, 3)
	b = msgp.AppendArrayHeader(msgp.AppendFloat64(b, at), 1)
	b = msgp.AppendString(msgp.AppendArrayHeader(b, 5), "BlockStored")
	b = msgp.AppendNil(msgp.AppendUint64(msgp.AppendArrayHeader(b, 1), hash))
	b = msgp.AppendInt(msgp.AppendUint32(msgp.AppendArrayHeader(b, 1), 7), 1)
	return msgp.AppendInt(b, 0)
}

// arrival is a message of the connection named by from, which stores the block hash.
type arrival struct {
	from   int
	number uint64
	at     float64
	hash   uint64
}

// TestStreamWithoutReplayFollowsTheNumbers: after each row, the sink has the blocks of the present process of
// the engine only, and it has the latest.
func TestStreamWithoutReplayFollowsTheNumbers(t *testing.T) {
	nan := math.NaN()
	for name, c := range map[string]struct {
		arrivals []arrival
		want     []uint64
		begun    int
	}{
		"one process":        {[]arrival{{0, 0, 10, 1}, {0, 1, 11, 2}, {0, 2, 12, 3}}, []uint64{1, 2, 3}, 1},
		"a late start":       {[]arrival{{0, 7, 10, 1}, {0, 8, 11, 2}}, []uint64{1, 2}, 0},
		"a gap":              {[]arrival{{0, 0, 10, 1}, {0, 2, 12, 3}, {0, 3, 13, 4}}, []uint64{3, 4}, 1},
		"a repeated message": {[]arrival{{0, 0, 10, 1}, {0, 1, 11, 2}, {0, 1, 11, 2}, {0, 2, 12, 3}}, []uint64{1, 2, 3}, 1},
		"a restart":          {[]arrival{{0, 5, 10, 1}, {0, 6, 11, 2}, {1, 0, 20, 3}, {1, 1, 21, 4}}, []uint64{3, 4}, 1},
		"a restart with an earlier clock": {[]arrival{{0, 5, 10, 1}, {0, 6, 11, 2}, {1, 0, 3, 3}, {1, 1, 4, 4}},
			[]uint64{3, 4}, 1},
		"a restart with an earlier clock, behind a forwarder": {[]arrival{{0, 5, 10, 1}, {0, 6, 11, 2}, {0, 0, 3, 3},
			{0, 1, 4, 4}}, []uint64{3, 4}, 1},
		"a restart with the same clock": {[]arrival{{0, 5, 10, 1}, {0, 6, 10, 2}, {1, 0, 10, 3}}, []uint64{3}, 1},
		"a restart after which the first messages are lost": {[]arrival{{0, 5, 10, 1}, {0, 6, 11, 2}, {1, 4, 3, 3},
			{1, 5, 4, 4}}, []uint64{3, 4}, 0},
		"a restart of an engine that begins with 1": {[]arrival{{0, 1, 10, 1}, {0, 2, 11, 2}, {1, 1, 3, 3}}, []uint64{3}, 2},
		"the highest number": {[]arrival{{0, 4, 10, 1}, {0, math.MaxUint64, 11, 2}, {0, 5, 12, 3}, {0, 6, 13, 4}},
			[]uint64{1, 3, 4}, 0},
		"the highest number first": {[]arrival{{0, math.MaxUint64, 11, 2}, {0, 0, 12, 3}, {0, 1, 13, 4}}, []uint64{3, 4}, 1},
		"the highest number with a later time": {[]arrival{{0, 4, 10, 1}, {0, math.MaxUint64, 1e300, 2}, {0, 5, 12, 3}},
			[]uint64{1, 3}, 0},
		"the number before the highest": {[]arrival{{0, 4, 10, 1}, {0, math.MaxUint64 - 1, 1e300, 2}, {0, 5, 12, 3},
			{0, 6, 13, 4}}, []uint64{3, 4}, 0},
		"2^63": {[]arrival{{0, 4, 10, 1}, {0, 1 << 63, 1e300, 2}, {0, 5, 12, 3}, {0, 6, 13, 4}}, []uint64{3, 4}, 0},
		"2^63 of another connection": {[]arrival{{0, 4, 10, 1}, {1, 1 << 63, 1e300, 2}, {2, 5, 12, 3}, {2, 6, 13, 4}},
			[]uint64{3, 4}, 0},
		"a wrap around": {[]arrival{{0, math.MaxUint64 - 2, 10, 1}, {0, math.MaxUint64 - 1, 11, 2}, {0, 0, 12, 3},
			{0, 1, 13, 4}}, []uint64{3, 4}, 1},
		"times that are no numbers": {[]arrival{{0, 5, nan, 1}, {0, 6, nan, 2}, {1, 0, 3, 3}, {1, 1, nan, 4}, {2, 0, 1, 5}},
			[]uint64{5}, 2},
		"an infinite time": {[]arrival{{0, 5, math.Inf(1), 1}, {1, 0, 3, 3}, {1, 1, 4, 4}}, []uint64{3, 4}, 1},
		"late messages of the last connection": {[]arrival{{0, 4, 10, 1}, {0, 5, 11, 2}, {1, 7, 13, 4}, {0, 6, 12, 3},
			{1, 8, 14, 5}}, []uint64{4, 5}, 0},
	} {
		s := newSink()
		d := newDelivery(t, s)
		for _, a := range c.arrivals {
			d.deliver(a)
		}
		got := s.blocks()
		if !slices.Equal(got, c.want) || s.counts[Begun] != c.begun {
			t.Errorf("%s: the sink has %v, and %d beginnings; want %v and %d", name, got, s.counts[Begun], c.want, c.begun)
		}
	}
}

// delivery gives messages of several connections to a stream, as Serve does.
type delivery struct {
	t      testing.TB
	stream *Stream
	from   map[int]*reader
}

func newDelivery(t testing.TB, sink Sink) *delivery {
	return &delivery{t: t, stream: New(Config{}, sink), from: map[int]*reader{}}
}

func (d *delivery) deliver(a arrival) {
	r := d.from[a.from]
	if r == nil {
		r = &reader{}
		d.from[a.from] = r
		if len(d.stream.readers) == maxReaders {
			d.stream.leave(d.stream.readers[0], io.EOF)
		}
		d.stream.join(d.t.Context(), r)
	}
	d.stream.applyMessage(d.t.Context(), r, message(a.number, batchOf(a.at, a.hash)))
}

// FuzzNumbers: whatever came before, a new process of the engine on a new connection is read from its first
// message on, and so is one that goes on with the last connection.
func FuzzNumbers(f *testing.F) {
	f.Add([]byte{0, 0, 1, 0, 1, 2, 1, 0, 9}, false)
	f.Add([]byte{0, 200, 255, 1, 5, 0, 0, 201, 3, 2, 202, 4}, true)
	f.Fuzz(func(t *testing.T, text []byte, same bool) {
		s := newSink()
		d := newDelivery(t, s)
		last := 0
		for ; len(text) >= 3; text = text[3:] {
			a := arrival{last + int(text[0]%2), uint64(text[1]), float64(text[2]), 7}
			switch text[1] {
			case 200:
				a.number = math.MaxUint64
			case 201:
				a.number = math.MaxUint64 - 1
			case 202:
				a.number = 1 << 63
			}
			switch text[2] {
			case 255:
				a.at = math.NaN()
			case 254:
				a.at = math.Inf(1)
			case 253:
				a.at = math.Inf(-1)
			}
			last = a.from
			d.deliver(a)
		}
		if !same {
			last++
		}
		begun := s.count(Begun)
		for n := range uint64(4) {
			d.deliver(arrival{last, n, 1000.5 + float64(n), 100 + n})
		}
		if got := s.blocks(); !slices.Equal(got, []uint64{100, 101, 102, 103}) || s.count(Begun) != begun+1 {
			t.Errorf("the sink has %v, after %d beginnings", got, s.count(Begun)-begun)
		}
	})
}
