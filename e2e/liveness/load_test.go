package liveness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"tierway/http1"
)

const (
	// clientPatience is the time after which a client leaves.
	clientPatience = 12 * time.Second
	// shortAnswer is the usual length of an answer in tokens.
	shortAnswer = 24
	// systemTokens and userTokens are the lengths of the two messages of a prompt.
	systemTokens = 512
	userTokens   = 64
)

// The prefixes of prompts.
const (
	sharedPrefix   = "shared"   // one system message, and a question of its own for each request
	uniquePrefix   = "unique"   // no common tokens
	repeatedPrefix = "repeated" // two prompts that are sent again and again
)

// load is a steady stream of requests.
type load struct {
	gap     time.Duration // mean time between two requests; each gap is 0.5 to 1.5 times as long
	stream  bool
	prefix  string
	tenants int
	length  func() int // of the next answer, in tokens; nil: shortAnswer
	patient bool       // clients do not leave

	sent   int // requests so far
	owned  sync.WaitGroup
	mu     sync.Mutex // guards the rest
	served []served
}

// served is a request as its client saw it.
type served struct {
	began, contentAt, ended time.Time // contentAt is zero without content
	err                     error     // nil: the answer is complete
}

// usualLoad returns five requests per second.
func usualLoad(stream bool, prefix string, tenants int) *load {
	return &load{gap: 200 * time.Millisecond, stream: stream, prefix: prefix, tenants: tenants}
}

// drive sends requests to the gateway until a time. Their answers may arrive later.
func (l *load) drive(c *cluster, until time.Time) {
	for {
		gap := l.nextGap(c)
		if time.Now().Add(gap).After(until) {
			time.Sleep(time.Until(until))
			return
		}
		time.Sleep(gap)
		l.start(c)
	}
}

// driveCount sends n requests.
func (l *load) driveCount(c *cluster, n int) {
	for range n {
		time.Sleep(l.nextGap(c))
		l.start(c)
	}
}

func (l *load) nextGap(c *cluster) time.Duration {
	return time.Duration((0.5 + c.random.Float64()) * float64(l.gap))
}

// start sends one request.
func (l *load) start(c *cluster) {
	l.sent++
	l.startBody(c, l.body(c, l.sent), tenantNames[l.sent%l.tenants])
}

// startBody sends a request with a body.
func (l *load) startBody(c *cluster, body, tenant string) {
	l.owned.Go(func() {
		s := l.send(c, body, tenant)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.served = append(l.served, s)
	})
}

// wait waits until all requests have ended, and returns them in the order of their ends.
func (l *load) wait() []served {
	l.owned.Wait()
	return l.served
}

// failures returns the requests that began at or after a time and failed.
func (l *load) failures(since time.Time) (failed []served) {
	for _, s := range l.wait() {
		if s.err != nil && !s.began.Before(since) {
			failed = append(failed, s)
		}
	}
	return failed
}

// body returns the body of request i.
func (l *load) body(c *cluster, i int) string {
	system, user := 0, i
	switch l.prefix {
	case uniquePrefix:
		system = i
	case repeatedPrefix:
		user = c.random.IntN(2)
	}
	question := text(user, userTokens)
	if l.length != nil {
		question += fmt.Sprint(lengthMark, l.length())
	}
	return chatBody(l.stream, text(system, systemTokens), question)
}

// text returns a text of a number of tokens. Different numbers give texts that differ from the first token.
func text(number, tokens int) string {
	unit := fmt.Sprintf("%07d ", number)
	return strings.Repeat(unit, tokens*bytesPerToken/len(unit))
}

// chatBody returns a chat completion with two messages, whose texts need no escapes.
func chatBody(stream bool, system, user string) string {
	return fmt.Sprintf(`{"model":"%s","stream":%v,"messages":[{"role":"system","content":"%s"},{"role":"user","content":"%s"}]}`,
		modelName, stream, system, user)
}

// errStatus is an answer with another status than 200.
var errStatus = errors.New("status")

// send sends a request and reads the answer.
func (l *load) send(c *cluster, body, tenant string) (s served) {
	ctx, cancel := context.WithCancel(context.Background())
	if !l.patient {
		ctx, cancel = context.WithTimeout(context.Background(), clientPatience)
	}
	defer cancel()
	s.began = time.Now()
	defer func() { s.ended = time.Now() }()
	resp, err := c.client.Send(ctx, &http1.Request{Method: http.MethodPost, Path: "/v1/chat/completions",
		Header: http.Header{"Authorization": {"Bearer " + tenant}, "Content-Type": {"application/json"}},
		Body:   [][]byte{[]byte(body)}})
	if err != nil {
		s.err = err
		return s
	}
	defer resp.Body.Close()
	var answer []byte
	for buf := make([]byte, 4<<10); err == nil; {
		var n int
		n, err = resp.Body.Read(buf)
		answer = append(answer, buf[:n]...)
		if s.contentAt.IsZero() && bytes.Contains(answer, contentMark) {
			s.contentAt = time.Now()
		}
	}
	switch {
	case !errors.Is(err, io.EOF):
		s.err = err
	case resp.Status != http.StatusOK:
		s.err = fmt.Errorf("%w %d: %.200s", errStatus, resp.Status, answer)
	case !bytes.Contains(answer, []byte(`"stop"`)):
		s.err = fmt.Errorf("the answer ends without a finish_reason: %s", answer[max(0, len(answer)-300):])
	}
	return s
}

// answerKind names the kind of answer of a load.
func answerKind(stream bool) string {
	if stream {
		return "stream"
	}
	return "whole"
}
