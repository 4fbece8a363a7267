package kvstream

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"testing"
	"testing/synctest"

	"tierway/workers/zmtp"
)

// serve accepts publishers on a network until the test ends, and returns the address.
func serve(t *testing.T, on zmtp.Network, streams func(topic []byte) *Stream) (address string) {
	t.Helper()
	l, err := on.Listen(t.Context(), "tcp://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, l, streams) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// publish sends a batch that stores its number plus 1.
func publish(t *testing.T, c net.Conn, e *fakeEngine, topic string, number uint64) {
	t.Helper()
	for uint64(len(e.log)) <= number {
		e.send(true, "store", uint64(len(e.log))+1)
	}
	if err := writeMessage(c, []byte(topic), binary.BigEndian.AppendUint64(nil, number), e.log[number]); err != nil {
		t.Fatal(err)
	}
}

// hasReaders waits until a stream has a number of connections.
func hasReaders(t *testing.T, s *Stream, n int) {
	t.Helper()
	eventually(t, "end of a connection", func() (holds bool) {
		s.locked(func() { holds = len(s.readers) == n })
		return holds
	})
}

func TestServeTellsPublishersApartByTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sinks := map[string]*setSink{"kv@a": newSink(), "kv@b": newSink()}
		streams := map[string]*Stream{}
		for topic, s := range sinks {
			streams[topic] = New(Config{}, s)
		}
		e := startFake(t)
		e.send(false, "store", 5)
		c := e.dialAsPublisher(t, serve(t, e.zmtp(), func(topic []byte) *Stream { return streams[string(topic)] }))
		for _, topic := range []string{"kv@a", "kv@stranger", "kv@b"} {
			if err := writeMessage(c, []byte(topic), make([]byte, 8), e.log[0]); err != nil {
				t.Fatal(err)
			}
		}
		for topic, s := range sinks {
			eventually(t, "event of "+topic, func() bool { return s.knows(map[uint64]bool{5: true}) })
		}
		c.Close()
		for topic, s := range sinks {
			eventually(t, "end of "+topic, func() bool { return !s.isLive() && s.count(Lost) == 1 })
		}
	})
}

func TestStreamIsLostWhenTheLastOfItsConnectionsEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s := startFake(t), newSink()
		stream := New(Config{}, s)
		address := serve(t, e.zmtp(), func([]byte) *Stream { return stream })
		old := e.dialAsPublisher(t, address)
		publish(t, old, e, "kv", 0)
		eventually(t, "first event", func() bool { return s.knows(map[uint64]bool{1: true}) })
		young := e.dialAsPublisher(t, address) // the publisher dials again before the gateway knows that the old one is gone
		publish(t, young, e, "kv", 1)
		eventually(t, "second event", func() bool { return s.knows(map[uint64]bool{1: true, 2: true}) })
		old.Close()
		hasReaders(t, stream, 1)
		stranger := e.dialAsPublisher(t, address)
		if err := writeMessage(stranger, []byte("kv")); err != nil {
			t.Fatal(err)
		}
		hasReaders(t, stream, 2)
		stranger.Close()
		hasReaders(t, stream, 1)
		if !s.isLive() || s.count(Lost) != 0 {
			t.Errorf("%+v with an open connection", s)
		}
		young.Close()
		eventually(t, "end of the stream", func() bool { return !s.isLive() && s.count(Lost) == 1 })
	})
}

func TestNewConnectionDisplacesTheOldestOfTheSameTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s := startFake(t), newSink()
		stream := New(Config{}, s)
		address := serve(t, e.zmtp(), func([]byte) *Stream { return stream })
		var all []net.Conn
		for i := range uint64(maxReaders + 1) {
			c := e.dialAsPublisher(t, address)
			publish(t, c, e, "kv", i)
			all = append(all, c)
			eventually(t, "event", func() bool { return s.has(i + 1) })
		}
		if _, err := io.Copy(io.Discard, all[0]); err != nil {
			t.Errorf("the oldest connection: %v", err)
		}
		hasReaders(t, stream, maxReaders)
		publish(t, all[1], e, "kv", maxReaders+1)
		eventually(t, "event of a kept connection", func() bool { return s.has(maxReaders + 2) })
		if !s.isLive() || s.count(Lost) != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestStrangersTakeLittleMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := startFake(t)
		address := serve(t, e.zmtp(), func([]byte) *Stream { return nil })
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		const strangers, size = 8, 4<<20 - 64
		part := make([]byte, size)
		for range strangers {
			c := e.dialAsPublisher(t, address)
			if err := writeMessage(c, []byte("stranger"), part); err != nil {
				t.Fatal(err)
			}
			c.Write(binary.BigEndian.AppendUint64([]byte("\x01\x08stranger\x02"), size)) // the next one fails
			if _, err := c.Write(part[:size-1]); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		runtime.GC()
		runtime.ReadMemStats(&after)
		if n := int64(after.HeapAlloc) - int64(before.HeapAlloc); n > 8<<20 {
			t.Errorf("%d strangers hold %d bytes", strangers, n)
		}
		c := e.dialAsPublisher(t, address)
		c.Write(binary.BigEndian.AppendUint64([]byte{3}, maxTopic+1)) // Copy fails then
		if _, err := io.Copy(io.Discard, c); err != nil {
			t.Errorf("a topic over the limit: %v", err)
		}
	})
}
