package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	// maxDemoLoad is the greatest rate of the background load per second. The simulated engines serve it
	// without a queue.
	maxDemoLoad = 50
	// demoLoadInflight limits the requests in flight: twice those of maxDemoLoad.
	demoLoadInflight = 200
)

// demoLoad sends the requests of two applications to a demo's gateway, so that a new user sees traffic.
type demoLoad struct {
	url  string            // base URL of the data plane
	rate float64           // mean requests per second; 0: none
	keys map[string]string // by tenant
}

// startDemoLoad starts a load, which ends with ctx. The caller must call stop, which cancels the requests of the load
// and returns when all have ended.
func startDemoLoad(ctx context.Context, l demoLoad) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		transport := &http.Transport{MaxIdleConnsPerHost: demoLoadInflight, DisableCompression: true}
		defer transport.CloseIdleConnections()
		l.sendAll(ctx, &http.Client{Transport: transport})
	})
	return func() {
		cancel()
		running.Wait()
	}
}

// sendAll sends requests at random times until ctx ends, and returns when all have ended.
func (l demoLoad) sendAll(ctx context.Context, client *http.Client) {
	if l.rate == 0 {
		return
	}
	var owned sync.WaitGroup
	defer owned.Wait()
	semaphore := make(chan struct{}, demoLoadInflight)
	traffic := newDemoTraffic(demoSeed)
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(traffic.pause(l.rate)):
		}
		request := traffic.next()
		select {
		case semaphore <- struct{}{}:
		default: // slow answers must not accumulate requests
			continue
		}
		owned.Go(func() {
			defer func() { <-semaphore }()
			l.send(ctx, client, request)
		})
	}
}

// send sends one request and reads its answer. The gateway counts and shows failures, so send ignores
// them.
func (l demoLoad) send(ctx context.Context, client *http.Client, r demoRequest) {
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url+"/chat/completions", bytes.NewReader(r.body))
	if err != nil {
		return
	}
	q.Header.Set("Authorization", "Bearer "+l.keys[r.tenant])
	q.Header.Set("Content-Type", "application/json")
	if r.class != "" {
		q.Header.Set("X-Request-Priority", r.class)
	}
	if r.session != "" {
		q.Header.Set("X-Session-ID", r.session)
	}
	answer, err := client.Do(q)
	if err != nil {
		return
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, answer.Body)
}

// demoLogFilter writes the access log lines of all tenants except those of the background load: a
// user looks for the line of a request that was just sent.
type demoLogFilter struct{ to io.Writer }

// Write drops or writes one line. Values in a line have escaped quotes, so no value can contain the
// text that is searched.
func (f demoLogFilter) Write(line []byte) (int, error) {
	for _, tenant := range []string{chatApp, nightlyBatch} {
		if bytes.Contains(line, []byte(`"tenant":"`+tenant+`"`)) {
			return len(line), nil
		}
	}
	return f.to.Write(line)
}
