package kvcache

import (
	"context"
	"encoding/binary"
	"math"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tinylib/msgp/msgp"
	"go.uber.org/goleak"

	"tierway/engines/zmq"
	"tierway/memnet"
	"tierway/routing"
	"tierway/routing/kvindex"
	"tierway/workers/zmtp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// blockSize is the size of the publishers' blocks, in tokens.
const blockSize = 4

// publisher publishes and replays batches as an engine does. Block i of its prompts has the tokens
// i, i, i, i.
type publisher struct {
	pub    *zmq.Publisher
	router *zmq.Replier

	mu  sync.Mutex
	log [][]byte
}

// publish starts a publisher on the network of c.
func publish(t *testing.T, c *Caches) *publisher {
	p := &publisher{}
	var err error
	if p.pub, err = zmq.Publish(t.Context(), c.options.Network, "tcp://127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	if p.router, err = zmq.Reply(t.Context(), c.options.Network, "tcp://127.0.0.1:0", p.replay); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.pub.Close(); p.router.Close() })
	return p
}

// replay answers a request with all batches from a number on.
func (p *publisher) replay(request [][]byte, reply func(...[]byte) error) {
	p.mu.Lock()
	kept := slices.Clone(p.log)
	p.mu.Unlock()
	for n := binary.BigEndian.Uint64(request[1]); n < uint64(len(kept)); n++ {
		if reply(nil, nil, binary.BigEndian.AppendUint64(nil, n), kept[n]) != nil {
			return
		}
	}
	reply(nil, nil, binary.BigEndian.AppendUint64(nil, math.MaxUint64), nil) // the reader has left
}

// store publishes the first blocks of a prompt, or keeps them for replays only.
func (p *publisher) store(medium string, blocks int, live bool) {
	tokens := prompt(blocks)
	b := msgp.AppendFloat64(msgp.AppendArrayHeader(nil, 2), float64(time.Now().UnixNano())/1e9)
	b = msgp.AppendArrayHeader(b, 1)
	b = msgp.AppendString(msgp.AppendArrayHeader(b, 7), "BlockStored")
	b = msgp.AppendArrayHeader(b, uint32(blocks))
	for i := range blocks {
		b = msgp.AppendInt(b, 1000+i)
	}
	b = msgp.AppendArrayHeader(msgp.AppendNil(b), uint32(len(tokens)))
	for _, id := range tokens {
		b = msgp.AppendUint32(b, id)
	}
	b = msgp.AppendString(msgp.AppendNil(msgp.AppendInt(b, blockSize)), medium)
	p.send(b, live)
}

// send publishes a payload, or keeps it for replays only.
func (p *publisher) send(payload []byte, live bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log = append(p.log, payload)
	if live {
		p.pub.Send([]byte("kv"), binary.BigEndian.AppendUint64(nil, uint64(len(p.log)-1)), payload)
	}
}

// config names the publisher's ports, with or without its replay endpoint.
func (p *publisher) config(replay bool) Config {
	c := Config{Port: port(p.pub.Addr())}
	if replay {
		c.ReplayPort = port(p.router.Addr())
	}
	return c
}

func port(a net.Addr) int { return a.(*net.TCPAddr).Port }

func prompt(blocks int) (tokens []uint32) {
	for i := range blocks {
		tokens = append(tokens, slices.Repeat([]uint32{uint32(i)}, blockSize)...)
	}
	return tokens
}

func keysOf(blocks int) []uint64 {
	return kvindex.AppendKeys(nil, kvindex.Root("", blockSize), blockSize, prompt(blocks), nil, 0)
}

// run reads the streams on a network in memory until the test ends.
func run(t *testing.T, o Options) *Caches {
	network := memnet.New()
	o.Network = zmtp.Network{DialFunc: network.Dial, ListenFunc: network.Listen}
	c := New(o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); c.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return c
}

// cached returns the result of Lookup for a prompt of five blocks, by worker.
func cached(p *Pool) map[any]routing.CachedPrefix {
	var r routing.Request
	for _, size := range p.BlockSizes(nil) {
		p.Lookup(&r, size, keysOf(5), true)
	}
	all := map[any]routing.CachedPrefix{}
	for _, e := range r.Cached {
		all[e.Ref] = e
	}
	return all
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %s", what)
		}
	}
}
