package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// patience bounds one request. All measured requests take milliseconds.
const patience = 10 * time.Second

// client is one keep-alive connection. It sends prepared requests and does only the parsing
// that is needed to check that a response is complete.
type client struct {
	conn net.Conn
	r    *bufio.Reader
	body []byte // of the last answer; reused
}

func dial(addr string) (*client, error) {
	conn, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return nil, fmt.Errorf("connecting: %w", err)
	}
	return &client{conn: conn, r: bufio.NewReaderSize(conn, 32*1024)}, nil // 32 KiB: a whole stream in one read
}

func (c *client) close() { c.conn.Close() }

// do sends a request and returns the body of the response, which is valid until the next call.
func (c *client) do(request []byte) ([]byte, error) {
	if err := c.send(request); err != nil {
		return nil, err
	}
	h, err := c.readHead()
	if err != nil {
		return nil, err
	}
	if err := c.readBody(h); err != nil {
		return nil, err
	}
	if h.status != 200 {
		return nil, fmt.Errorf("status %d: %.200s", h.status, c.body)
	}
	return c.body, nil
}

// send writes a request. The caller must read the response.
func (c *client) send(request []byte) error {
	if err := c.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return fmt.Errorf("setting a deadline: %w", err)
	}
	if _, err := c.conn.Write(request); err != nil {
		return fmt.Errorf("sending a request: %w", err)
	}
	return nil
}

// head holds the parts of a response's head that determine the framing of the body.
type head struct {
	status  int
	length  int // -1: no Content-Length
	chunked bool
}

func (c *client) readHead() (head, error) {
	h := head{length: -1}
	line, err := c.r.ReadSlice('\n')
	if err != nil {
		return h, fmt.Errorf("reading the status line: %w", err)
	}
	if len(line) < 12 || !bytes.HasPrefix(line, []byte("HTTP/1.1 ")) {
		return h, fmt.Errorf("not an HTTP/1.1 status line: %q", line)
	}
	if h.status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return h, fmt.Errorf("not an HTTP/1.1 status line: %q", line)
	}
	for {
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return h, fmt.Errorf("reading the head of an answer: %w", err)
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			return h, nil
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch {
		case bytes.EqualFold(name, []byte("Content-Length")):
			if h.length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return h, fmt.Errorf("Content-Length is not a number: %q", value)
			}
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			h.chunked = bytes.EqualFold(bytes.TrimSpace(value), []byte("chunked"))
		case bytes.EqualFold(name, []byte("Connection")) && bytes.EqualFold(bytes.TrimSpace(value), []byte("close")):
			return h, errors.New("the connection is not kept alive")
		}
	}
}

func (c *client) readBody(h head) error {
	c.body = c.body[:0]
	if !h.chunked {
		if h.length < 0 {
			return errors.New("the answer has neither a Content-Length nor chunked encoding")
		}
		return c.append(h.length)
	}
	for {
		n, err := c.readChunk()
		if err != nil || n == 0 {
			return err
		}
	}
}

// readChunk appends one chunk to the body and returns its size, 0 at the end.
func (c *client) readChunk() (int, error) {
	line, err := c.r.ReadSlice('\n')
	if err != nil {
		return 0, fmt.Errorf("reading a chunk's size: %w", err)
	}
	n, err := strconv.ParseUint(string(bytes.TrimRight(line, "\r\n")), 16, 31)
	if err != nil {
		return 0, fmt.Errorf("a chunk's size is %q", line)
	}
	if err := c.append(int(n)); err != nil {
		return 0, err
	}
	line, err = c.r.ReadSlice('\n')
	if err != nil {
		return 0, fmt.Errorf("reading the end of a chunk: %w", err)
	}
	if len(line) != 2 {
		return 0, fmt.Errorf("a chunk is longer than its size: it ends with %q", line)
	}
	return int(n), nil
}

func (c *client) append(n int) error {
	at := len(c.body)
	if cap(c.body) < at+n {
		c.body = append(make([]byte, 0, 2*(at+n)), c.body...)
	}
	c.body = c.body[:at+n]
	if _, err := io.ReadFull(c.r, c.body[at:]); err != nil {
		return fmt.Errorf("an answer was cut short: %w", err)
	}
	return nil
}
