package workers

import (
	"io"
	"sync"
)

// streamed is a body that streams, as net/http reads it.
type streamed struct {
	io.Reader
	sent chan struct{} // closed when net/http has sent it, or has given up
	end  func()        // closes it, once
}

func newStreamed(r io.Reader) *streamed {
	if r == nil {
		return nil
	}
	sent := make(chan struct{})
	return &streamed{Reader: r, sent: sent, end: sync.OnceFunc(func() { close(sent) })}
}

// Close is called by net/http when it does not need the body any more.
func (s *streamed) Close() error {
	s.end()
	return nil
}
