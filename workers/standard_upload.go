package workers

import (
	"io"
	"sync"
)

type uploadBody struct {
	io.Reader
	sent chan struct{} // closed when net/http has sent the body or has given up
	end  func()        // closes sent, once
}

func newUploadBody(r io.Reader) *uploadBody {
	if r == nil {
		return nil
	}
	sent := make(chan struct{})
	return &uploadBody{Reader: r, sent: sent, end: sync.OnceFunc(func() { close(sent) })}
}

// Close is called by net/http when it no longer needs the body.
func (s *uploadBody) Close() error {
	s.end()
	return nil
}
