package proxy

import (
	"bytes"
	"sync"

	"tierway/openai"
	"tierway/openai/answers"
)

// bufferPools pools the buffers through which answers are relayed. The user of a buffer returns it when
// nothing refers to its bytes.
type bufferPools struct {
	bodies  sync.Pool // of *bytes.Buffer, for whole answers
	copies  sync.Pool // of *[]byte, for answers that are not parsed
	streams sync.Pool // of *streamBuffers
	forms   sync.Pool // of *answers.FormReader
}

const (
	// bodyKept is the largest buffer that is pooled, and that an answer has without a reservation: embeddings
	// of a large batch are rare, and their buffers must be freed.
	bodyKept = 64 << 10
	// copyBuffer is the buffer size of io.Copy.
	copyBuffer = 32 << 10
	// outKept is the largest write buffer of a stream that is pooled.
	outKept = 16 << 10
)

func newBufferPools() *bufferPools {
	pages := &sync.Pool{New: func() any { return new(openai.Page) }}
	return &bufferPools{
		bodies:  sync.Pool{New: func() any { return new(bytes.Buffer) }},
		copies:  sync.Pool{New: func() any { b := make([]byte, copyBuffer); return &b }},
		streams: sync.Pool{New: func() any { return &streamBuffers{events: openai.NewPagedReader(pages)} }},
		forms:   sync.Pool{New: func() any { return new(answers.FormReader) }},
	}
}

func (s *bufferPools) body() *bytes.Buffer { return s.bodies.Get().(*bytes.Buffer) }

func (s *bufferPools) putBody(b *bytes.Buffer) {
	if b.Cap() <= bodyKept {
		b.Reset()
		s.bodies.Put(b)
	}
}

func (s *bufferPools) putForm(f *answers.FormReader) {
	f.DropBody()
	s.forms.Put(f)
}

// streamBuffers are the pooled buffers of a stream.
type streamBuffers struct {
	events *openai.EventReader
	out    []byte
}

func (s *bufferPools) putStream(b *streamBuffers) {
	b.events.Reset(nil, 0, nil)
	if b.out = b.out[:0]; cap(b.out) > outKept {
		b.out = nil
	}
	s.streams.Put(b)
}
