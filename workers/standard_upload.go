package workers

import (
	"io"
	"sync"
)

// streamed is a streamed body that net/http reads.
type streamed struct {
	io.Reader
	sent chan struct{} // closed when net/http has sent the body or has given up
	end  func()        // closes sent, once
}

func newStreamed(r io.Reader) *streamed {
	if r == nil {
		return nil
	}
	sent := make(chan struct{})
	return &streamed{Reader: r, sent: sent, end: sync.OnceFunc(func() { close(sent) })}
}

// Close is called by net/http when it no longer needs the body.
func (s *streamed) Close() error {
	s.end()
	return nil
}
