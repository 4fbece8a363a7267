package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// fixedWorker answers every request with prepared bytes and parses only the length of the
// request, so that it uses little processor time beside the measured proxies.
type fixedWorker struct {
	whole   []byte   // head and body of an answer
	opened  []byte   // head of a stream
	streams sync.Map // chunks of other streams, by their number of events
	chunks  [][]byte // events of the usual stream as HTTP chunks; the last chunk ends the body
	vector  []byte   // response to POST /v1/embeddings
	models  []byte   // response to GET /v1/models and /health
	absent  []byte   // 404 response
}

// headLimit bounds a request's head; a gateway sends a few hundred bytes.
const headLimit = 16 * 1024

func newFixedWorker() *fixedWorker {
	w := &fixedWorker{
		whole:  plain("200 OK", "application/json", string(answer())),
		opened: []byte("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"),
		vector: plain("200 OK", "application/json", embedding()),
		models: plain("200 OK", "application/json", `{"object":"list","data":[{"id":"`+served+`","object":"model"}]}`),
		absent: plain("404 Not Found", "text/plain", "no such path\n"),
	}
	w.chunks = chunks(events)
	return w
}

// chunks returns the HTTP chunks of a stream with that many events. The last one ends the body.
func chunks(events int) (list [][]byte) {
	for _, e := range stream(events) {
		list = append(list, fmt.Appendf(nil, "%x\r\n%s\r\n", len(e), e))
	}
	list[len(list)-1] = append(list[len(list)-1], "0\r\n\r\n"...)
	return list
}

func plain(status, kind, body string) []byte {
	return fmt.Appendf(nil, "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", status, kind, len(body),
		body)
}

// serve answers on every connection of l until l is closed.
func (w *fixedWorker) serve(l net.Listener) error {
	for {
		c, err := l.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return nil
			}
			return fmt.Errorf("accepting a connection: %w", err)
		}
		go w.serveConn(c)
	}
}

// serveConn answers the requests of one connection until its peer closes it.
func (w *fixedWorker) serveConn(c net.Conn) {
	defer c.Close()
	buf := make([]byte, headLimit+largeBytes+headLimit) // a whole request always fits
	have := 0
	for {
		head, length, err := w.readHead(c, buf, &have)
		if err != nil {
			return
		}
		if head+length > len(buf) {
			return
		}
		for have < head+length {
			n, err := c.Read(buf[have:])
			if err != nil {
				return
			}
			have += n
		}
		if err := w.reply(c, buf[:head], buf[head:head+length]); err != nil {
			return
		}
		copy(buf, buf[head+length:have])
		have -= head + length
	}
}

// readHead reads until a whole request head is in buf and returns its size and
// the length of the body after it.
func (w *fixedWorker) readHead(c net.Conn, buf []byte, have *int) (head, length int, err error) {
	for {
		if i := bytes.Index(buf[:*have], []byte("\r\n\r\n")); i >= 0 {
			length, err = bodyLength(buf[:i+2])
			return i + 4, length, err
		}
		if *have >= headLimit {
			return 0, 0, errors.New("the request's head is too long")
		}
		n, err := c.Read(buf[*have:])
		if err != nil {
			return 0, 0, err
		}
		*have += n
	}
}

// bodyLength returns the Content-Length of a request; 0 without one. It returns an error for a
// chunked request, which no measurement sends.
func bodyLength(head []byte) (int, error) {
	for line := range bytes.SplitSeq(head, []byte("\r\n")) {
		name, value, ok := bytes.Cut(line, []byte(":"))
		if !ok {
			continue
		}
		switch {
		case len(name) == len("Content-Length") && bytes.EqualFold(name, []byte("Content-Length")):
			n, err := strconv.Atoi(string(bytes.TrimSpace(value)))
			if err != nil || n < 0 {
				return 0, errors.New("Content-Length is not a number")
			}
			return n, nil
		case len(name) == len("Transfer-Encoding") && bytes.EqualFold(name, []byte("Transfer-Encoding")):
			return 0, errors.New("chunked requests are not supported")
		}
	}
	return 0, nil
}

// reply writes the answer that the request's path and marks select.
func (w *fixedWorker) reply(c net.Conn, head, body []byte) error {
	line, _, _ := strings.Cut(string(head[:min(len(head), 64)]), "\r\n")
	path, get := strings.CutPrefix(line, "GET ") // -scale adds a path to the URLs of workers
	switch {
	case get && (strings.Contains(path, "/v1/models ") || strings.Contains(path, "/health ")):
		_, err := c.Write(w.models)
		return err
	case !strings.HasPrefix(line, "POST "):
		_, err := c.Write(w.absent)
		return err
	}
	if strings.HasPrefix(line, "POST /v1/embeddings ") {
		_, err := c.Write(w.vector)
		return err
	}
	marks := body[:min(len(body), 1024)] // some gateways move fields behind the messages
	switch {
	case !bytes.Contains(marks, []byte(`"stream":true`)):
		_, err := c.Write(w.whole)
		return err
	case bytes.Contains(marks, []byte(holdMark)):
		return w.holdStream(c)
	}
	list, gap := w.streamFor(marks)
	// Like an engine, it writes each event separately.
	if _, err := c.Write(w.opened); err != nil {
		return err
	}
	for _, chunk := range list {
		if gap > 0 {
			time.Sleep(gap)
		}
		if _, err := c.Write(chunk); err != nil {
			return err
		}
	}
	return nil
}

// streamFor returns the chunks that a request's mark demands, and the time before each.
func (w *fixedWorker) streamFor(marks []byte) (list [][]byte, gap time.Duration) {
	_, text, ok := bytes.Cut(marks, []byte(eventsMark))
	if !ok {
		return w.chunks, 0
	}
	value, _, _ := strings.Cut(string(text), `"`)
	number, pause, _ := strings.Cut(value, " ")
	n, _ := strconv.Atoi(number)       // this program has written both
	gap, _ = time.ParseDuration(pause) // empty: no gap
	if list, ok := w.streams.Load(n); ok {
		return list.([][]byte), gap
	}
	list = chunks(n)
	w.streams.Store(n, list)
	return list, gap
}

// holdStream sends only the first event and waits until the peer closes the connection.
func (w *fixedWorker) holdStream(c net.Conn) error {
	if _, err := c.Write(append(bytes.Clone(w.opened), w.chunks[0]...)); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, c)
	return errors.Join(errors.New("the peer closed a held stream"), err)
}
