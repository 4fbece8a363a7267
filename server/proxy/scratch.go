package proxy

import (
	"bytes"
	"sync"

	"tierway/openai"
)

// scratch keeps the buffers that answers are relayed through. Whoever takes one
// puts it back when nothing points into it any more.
type scratch struct {
	bodies  sync.Pool // of *bytes.Buffer, for whole answers
	copies  sync.Pool // of *[]byte, for answers that are not looked into
	streams sync.Pool // of *streamBuffers
}

const (
	// bodyKept is the largest buffer that is kept: embeddings of a large batch
	// are rare and must not stay.
	bodyKept = 256 << 10
	// copyBuffer is what io.Copy takes.
	copyBuffer = 32 << 10
	// outKept is the largest write buffer of a stream that is kept.
	outKept = 16 << 10
)

func newScratch() *scratch {
	return &scratch{
		bodies:  sync.Pool{New: func() any { return new(bytes.Buffer) }},
		copies:  sync.Pool{New: func() any { b := make([]byte, copyBuffer); return &b }},
		streams: sync.Pool{New: func() any { return &streamBuffers{events: openai.NewEventReader(nil, 0)} }},
	}
}

func (s *scratch) body() *bytes.Buffer { return s.bodies.Get().(*bytes.Buffer) }

func (s *scratch) putBody(b *bytes.Buffer) {
	if b.Cap() <= bodyKept {
		b.Reset()
		s.bodies.Put(b)
	}
}

// streamBuffers is what a stream borrows.
type streamBuffers struct {
	events *openai.EventReader
	out    []byte
}

func (s *scratch) putStream(b *streamBuffers) {
	b.events.Reset(nil, 0, nil)
	if b.out = b.out[:0]; cap(b.out) > outKept {
		b.out = nil
	}
	s.streams.Put(b)
}
