package admin

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"tierway/decisions"
	"tierway/server/control"
)

const (
	// streamEvery is the interval of the events overview and workers.
	streamEvery = time.Second
	// maxEventStreams is the largest number of streams. All tabs of a browser share one.
	maxEventStreams = 64
)

// The topics of GET /admin/stream.
const (
	topicOverview  = "overview"
	topicWorkers   = "workers"
	topicDecisions = "decisions"
)

// hubTopics returns the topics of which the hub encodes the events.
func hubTopics() []string { return []string{topicOverview, topicWorkers} }

// frame has the encoded events of one second by topic. It is immutable.
type frame map[string][]byte

// hub encodes the events of all streams, once per interval. Its goroutine runs while a stream
// subscribes to one of its topics. It is safe for concurrent use.
type hub struct {
	recover *control.Recoverer
	// encode returns the data of the subscribed topics.
	encode func(now time.Time, wanted func(topic string) bool) map[string]any
	frame  atomic.Pointer[frame]    // the newest; nil: none yet
	topics atomic.Pointer[[]string] // with a subscribed stream

	mu     sync.Mutex     // guards the rest; held while the goroutine is started or ended
	wanted map[string]int // number of streams by topic
	joined int            // number of streams
	stop   chan struct{}  // closed to end the goroutine
	ended  chan struct{}  // closed by the goroutine at its end
}

// join begins the encoding of topics for one stream. The caller must call leave at the end of the stream,
// which waits for the end of the goroutine if the stream was the last one.
func (h *hub) join(topics []string) (leave func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.countLocked(topics, 1)
	if h.joined++; h.joined == 1 {
		h.stop, h.ended = make(chan struct{}), make(chan struct{})
		go func(stop <-chan struct{}, ended chan<- struct{}) {
			defer close(ended)
			const work = "encoding the events of the admin streams"
			h.recover.Run(work, func() { h.publish(time.Now()) })
			h.recover.Every(streamEvery, stop, work, h.publish)
		}(h.stop, h.ended)
	}
	return func() { h.leave(topics) }
}

func (h *hub) leave(topics []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.countLocked(topics, -1)
	if h.joined--; h.joined == 0 {
		close(h.stop)
		<-h.ended
		h.frame.Store(nil) // the next stream must not begin with an old state
	}
}

// countLocked changes the number of streams that subscribe to the topics. The caller must hold mu.
func (h *hub) countLocked(topics []string, by int) {
	var all []string
	for _, t := range topics {
		h.wanted[t] += by
	}
	for t, n := range h.wanted {
		if n > 0 {
			all = append(all, t)
		}
	}
	h.topics.Store(&all)
}

func (h *hub) publish(now time.Time) {
	next, topics := frame{}, *h.topics.Load()
	data := h.encode(now, func(topic string) bool { return slices.Contains(topics, topic) })
	for topic, v := range data {
		if text, err := json.Marshal(v); err == nil { // a number that JSON cannot represent has no event
			next[topic] = decisions.AppendEvent(nil, topic, text)
		}
	}
	h.frame.Store(&next)
}

// reader returns a function that appends the newest events of the topics, each only once.
func (h *hub) reader(topics []string) func([]byte) []byte {
	var last *frame
	return func(b []byte) []byte {
		f := h.frame.Load()
		if f == nil || f == last {
			return b
		}
		last = f
		for _, t := range topics {
			b = append(b, (*f)[t]...)
		}
		return b
	}
}

type streamAPI struct {
	*decisionAPI
	overview *overviewAPI
	hub      *hub
	open     atomic.Int32 // open streams of GET /admin/stream
}

// encode returns the data of the subscribed topics. All of them show the workers of one moment.
func (a *streamAPI) encode(now time.Time, wanted func(string) bool) map[string]any {
	pools, data := a.overview.fleet.allPools(now), map[string]any{}
	if wanted(topicOverview) {
		data[topicOverview] = a.overview.overviewOf(pools, now)
	}
	if wanted(topicWorkers) {
		data[topicWorkers] = workersOf(pools)
	}
	return data
}

func (a *streamAPI) streamEvents(ctx context.Context, in *struct {
	Topics []string `query:"topics" required:"true" minItems:"1" uniqueItems:"true" enum:"overview,workers,decisions" doc:"Topics of the events, separated by commas. The filters and last_event_id are for decisions."`
	decisions.Filter
	LastEvent
}) (*written, error) {
	if err := a.checkStream(&in.Filter); err != nil {
		return nil, err
	}
	err := reservePlace(&a.open, maxEventStreams, "streams of events", "Close one, or use GET /admin/overview.")
	if err != nil {
		return nil, err
	}
	f := &decisions.Follower{}
	if slices.Contains(in.Topics, topicDecisions) {
		f = a.follower(&in.Filter)
	}
	topics := slices.DeleteFunc(hubTopics(), func(t string) bool { return !slices.Contains(in.Topics, t) })
	begin := func() func() { return func() { a.open.Add(-1) } }
	if len(topics) > 0 {
		f.Others = a.hub.reader(topics)
		begin = func() func() {
			leave := a.hub.join(topics)
			return func() {
				defer a.open.Add(-1)
				leave()
			}
		}
	}
	return a.stream(ctx, f, in.position(), begin), nil
}

func eventsStream(registry huma.Registry, op *huma.Operation) {
	streams(registry, op)
	op.Responses["200"].Description = "Server-sent events. overview, each second: data is the body of GET " +
		"/admin/overview. workers, each second: data is the body of GET /admin/workers. decision, gap and dropped: as GET " +
		"/admin/decisions/stream sends them. Only their events have an id, with which the topic decisions resumes."
}
