package engines

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"net"
	"net/http"
	"strconv"
	"sync"

	"tierway/engines/zmq"

	"github.com/tinylib/msgp/msgp"
)

// replayBatches is how many batches an engine keeps for replays: vLLM's buffer_steps.
const replayBatches = 10_000

// eventTopic is the topic of all events: vLLM's, if none is set, is empty; the documents set this.
const eventTopic = "kv-events"

// cacheChange is one change of a prefix cache: blocks that were evicted, then blocks that were
// added behind each other.
type cacheChange struct {
	removed   []uint64
	stored    []uint64
	parent    uint64
	hasParent bool
	tokens    []uint32
	salt      string // of the prompt, if the first stored block begins it
}

// cacheEvents publishes the changes of an engine's cache in vLLM's form.
type cacheEvents struct {
	pub    *zmq.Publisher
	router *zmq.Replier
	size   int // tokens per block
	rank   int // of the engine
	clock  func() float64

	mu    sync.Mutex
	next  uint64   // number of the next batch
	batch [][]byte // the last batches
}

// PublishEvents begins to publish the changes of the engine's cache, and to answer requests for
// replays, as vLLM does with kv_events_config. The addresses are those of ZeroMQ, such as
// tcp://127.0.0.1:0. It must be called before the first request; Close ends it.
func (e *Engine) PublishEvents(ctx context.Context, publish, replay string) (err error) {
	l := &cacheEvents{size: e.cache.size, rank: e.rank,
		clock: func() float64 { return float64(e.c.Clock().UnixNano()) / 1e9 }}
	if l.pub, err = zmq.Publish(ctx, e.c.Network, publish); err != nil {
		return err
	}
	if l.router, err = zmq.Reply(ctx, e.c.Network, replay, l.replay); err != nil {
		l.pub.Close()
		return err
	}
	e.events, e.cache.changed = l, l.publish
	return nil
}

func (l *cacheEvents) close() {
	if l != nil {
		l.pub.Close()
		l.router.Close()
	}
}

// publish sends one batch. The cache calls it under its lock, so batches have the cache's order.
func (l *cacheEvents) publish(c cacheChange) {
	l.mu.Lock()
	defer l.mu.Unlock()
	payload := l.encode(c)
	l.batch = append(l.batch, payload)
	if len(l.batch) > 2*replayBatches {
		l.batch = append(l.batch[:0], l.batch[len(l.batch)-replayBatches:]...)
	}
	l.pub.Send([]byte(eventTopic), binary.BigEndian.AppendUint64(nil, l.next), payload)
	l.next++
}

// encode makes a batch: each evicted block by itself, then the stored ones.
func (l *cacheEvents) encode(c cacheChange) []byte {
	events := len(c.removed)
	if len(c.stored) > 0 {
		events++
	}
	b := msgp.AppendArrayHeader(nil, 3)
	b = msgp.AppendArrayHeader(msgp.AppendFloat64(b, l.clock()), uint32(events))
	for _, hash := range c.removed {
		b = msgp.AppendMapHeader(b, 4)
		b = appendText(b, "type", "BlockRemoved")
		b = appendHashes(b, []uint64{hash})
		b = appendText(b, "medium", "GPU")
		b = msgp.AppendInt(msgp.AppendString(b, "group_idx"), 0)
	}
	if len(c.stored) > 0 {
		b = l.appendStored(b, c)
	}
	return msgp.AppendInt(b, l.rank)
}

func (l *cacheEvents) appendStored(b []byte, c cacheChange) []byte {
	b = msgp.AppendMapHeader(b, 9)
	b = appendText(b, "type", "BlockStored")
	b = appendHashes(b, c.stored)
	b = msgp.AppendString(b, "parent_block_hash")
	if c.hasParent {
		b = msgp.AppendUint64(b, c.parent)
	} else {
		b = msgp.AppendNil(b)
	}
	b = msgp.AppendArrayHeader(msgp.AppendString(b, "token_ids"), uint32(len(c.tokens)))
	for _, id := range c.tokens {
		b = msgp.AppendUint32(b, id)
	}
	b = msgp.AppendInt(msgp.AppendString(b, "block_size"), l.size)
	b = appendText(b, "medium", "GPU")
	b = msgp.AppendArrayHeader(msgp.AppendString(b, "extra_keys"), uint32(len(c.stored)))
	for i := range c.stored {
		if i == 0 && !c.hasParent && c.salt != "" {
			b = msgp.AppendString(msgp.AppendArrayHeader(b, 1), c.salt)
		} else {
			b = msgp.AppendNil(b)
		}
	}
	b = msgp.AppendInt(msgp.AppendString(b, "group_idx"), 0)
	return appendText(b, "kv_cache_spec_kind", "full_attention")
}

func appendText(b []byte, key, value string) []byte {
	return msgp.AppendString(msgp.AppendString(b, key), value)
}

func appendHashes(b []byte, hashes []uint64) []byte {
	b = msgp.AppendArrayHeader(msgp.AppendString(b, "block_hashes"), uint32(len(hashes)))
	for _, h := range hashes {
		b = msgp.AppendUint64(b, h)
	}
	return b
}

// replay answers one request: an empty part and the first number. It sends the batches from that
// number on and an end marker, each with an empty part and the topic before it.
func (l *cacheEvents) replay(request [][]byte, reply func(...[]byte) error) {
	if len(request) != 2 || len(request[1]) != 8 {
		return
	}
	from := binary.BigEndian.Uint64(request[1])
	l.mu.Lock()
	kept := l.batch[max(0, len(l.batch)-replayBatches):]
	first := l.next - uint64(len(kept))
	kept = append([][]byte(nil), kept[min(max(from, first)-first, uint64(len(kept))):]...)
	l.mu.Unlock()
	number := max(from, first)
	for _, payload := range kept {
		if reply(nil, []byte(eventTopic), binary.BigEndian.AppendUint64(nil, number), payload) != nil {
			return
		}
		number++
	}
	reply(nil, nil, binary.BigEndian.AppendUint64(nil, math.MaxUint64), nil) // the peer has left
}

// eventSources serves GET /kv_event_sources: where the events of each data-parallel rank are.
func (e *Engine) eventSources(w http.ResponseWriter, _ *request) error {
	return writeEventSources(w, e)
}

func writeEventSources(w http.ResponseWriter, ranks ...*Engine) error {
	sources := map[string]any{}
	for _, e := range ranks {
		if e.events == nil {
			continue
		}
		sources[strconv.Itoa(e.rank)] = map[string]any{
			"enable_kv_cache_events": true, "publisher": "zmq", "endpoint": wildcard(e.events.pub.Addr()),
			"replay_endpoint": wildcard(e.events.router.Addr()), "buffer_steps": replayBatches, "topic": eventTopic}
	}
	return writeJSON(w, http.StatusOK, sources)
}

// wildcard returns the endpoint of a socket with * as host. vLLM listens on such an endpoint; to one
// with a host it connects.
func wildcard(bound net.Addr) string {
	if tcp, ok := bound.(*net.TCPAddr); ok {
		return fmt.Sprintf("tcp://*:%d", tcp.Port)
	}
	return zmq.Endpoint(bound)
}
