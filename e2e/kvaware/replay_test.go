package kvaware

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"tierway/e2e/conversations"
	"tierway/engines"
)

// sample is the result of one request.
type sample struct {
	ttft                   time.Duration // from sending to the first token
	late                   time.Duration // delay of the sending after the request's time
	prompt, cached, output int64
	err                    error
}

// call is one request that is about to be sent.
type call struct {
	*conversations.Chat
	body   []byte
	tokens []uint32 // nil unless the route needs them
}

// route returns the URL, without a path, to which a request is sent. The caller calls sent when the response
// begins.
type route func(c *call) (url string, sent func())

// to is the route to one server.
func to(url string) route { return func(*call) (string, func()) { return url, func() {} } }

// preparation is the time before a request's time at which its body is made.
const preparation = 50 * time.Millisecond

// replay sends the chats at their times, divided by speed, and returns their results.
func replay(ctx context.Context, chats []*conversations.Chat, speed float64, tokens bool, where route) []sample {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}}
	defer client.CloseIdleConnections()
	samples := make([]sample, len(chats))
	begin := time.Now().Add(preparation)
	var all sync.WaitGroup
	for i, c := range chats {
		at := begin.Add(time.Duration(float64(c.At) / speed))
		<-time.After(time.Until(at.Add(-preparation)))
		all.Go(func() {
			prepared := &call{Chat: c, body: c.Body()}
			if tokens {
				prepared.tokens, samples[i].err = engines.ChatTokens(prepared.body)
			}
			<-time.After(time.Until(at))
			samples[i].send(ctx, client, prepared, at, where)
		})
	}
	all.Wait()
	return samples
}

// send sends a chat and reads its response.
func (s *sample) send(ctx context.Context, client *http.Client, c *call, at time.Time, where route) {
	s.late = time.Since(at) // the routing by the test is not part of it
	url, sent := where(c)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", bytes.NewReader(c.body))
	if err != nil {
		s.err = err
		return
	}
	request.Header.Set("Content-Type", "application/json")
	began := time.Now()
	response, err := client.Do(request)
	sent()
	if err != nil {
		s.err = err
		return
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		s.err = fmt.Errorf("request %d: status %d", c.Number, response.StatusCode)
		return
	}
	if err := s.read(bufio.NewReader(response.Body), began); err != nil {
		s.err = fmt.Errorf("request %d: %w", c.Number, err)
	}
}

// read reads a stream up to its usage.
func (s *sample) read(from *bufio.Reader, began time.Time) error {
	for {
		line, err := from.ReadSlice('\n')
		if err != nil {
			return err
		}
		switch {
		case s.ttft == 0 && bytes.Contains(line, []byte(`"content":"`)) && !bytes.Contains(line, []byte(`"content":""`)):
			s.ttft = time.Since(began)
		case bytes.Contains(line, []byte(`"usage":{`)):
			return s.readUsage(line)
		}
	}
}

func (s *sample) readUsage(line []byte) error {
	var chunk struct {
		Usage struct {
			Prompt  int64 `json:"prompt_tokens"`
			Output  int64 `json:"completion_tokens"`
			Details struct {
				Cached int64 `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	err := json.Unmarshal(bytes.TrimPrefix(line, []byte("data: ")), &chunk)
	s.prompt, s.output, s.cached = chunk.Usage.Prompt, chunk.Usage.Output, chunk.Usage.Details.Cached
	return err
}

// greedy is a router that reads the real state of each engine: its running and waiting prompts, its cache
// and its speed. It chooses the engine with the earliest first token.
type greedy struct {
	mu        sync.Mutex
	fleet     *fleet
	predicted time.Duration // times to first token, in total
}

func (g *greedy) route(c *call) (url string, sent func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	best, soonest, n := 0, time.Duration(0), len(g.fleet.engines)
	for k := range n {
		i := (c.Number + k) % n // equal engines take turns
		if d := g.fleet.engines[i].TimeToFirst(c.tokens); k == 0 || d < soonest {
			best, soonest = i, d
		}
	}
	g.predicted += soonest
	return g.fleet.servers[best].URL, g.fleet.engines[best].Expect(c.tokens)
}
