package workers

import (
	"context"
	"io"
	"sync"
)

// streamed is a body that streams, as net/http reads it.
type streamed struct {
	io.Reader
	once   sync.Once
	closed chan struct{} // net/http has sent it, or has given up
}

func newStreamed(r io.Reader) *streamed {
	if r == nil {
		return nil
	}
	return &streamed{Reader: r, closed: make(chan struct{})}
}

// Close is called by net/http when it does not need the body any more.
func (s *streamed) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

// await returns when the body is sent or ctx ends: a worker may answer well while it
// still reads.
func (s *streamed) await(ctx context.Context) {
	select {
	case <-s.closed:
	case <-ctx.Done():
	}
}
