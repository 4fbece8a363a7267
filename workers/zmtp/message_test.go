package zmtp

import (
	"bytes"
	"errors"
	"slices"
	"testing"
)

func TestUnwantedMessagesTakeNoMemoryAndNoPlace(t *testing.T) {
	c, far, err := connect(t, Sub, Limits{}, publisherHello(t))
	if err != nil {
		t.Fatal(err)
	}
	large := make([]byte, 1<<20)
	go func() {
		for _, wire := range [][]byte{
			appendMessage(nil, []byte("stranger"), large, large),
			appendMessage(nil, []byte("stranger")),
			appendMessage(nil, []byte("worker"), []byte("1"), []byte("2")),
		} {
			far.Write(wire) // Receive fails then
		}
	}()
	var m Message
	var seen []string
	err = c.ReceiveIf(&m, func(first []byte) bool {
		seen = append(seen, string(first))
		return string(first) == "worker"
	})
	if err != nil || len(m.Parts) != 3 || string(bytes.Join(m.Parts, []byte(" "))) != "worker 1 2" {
		t.Errorf("%q, %v", m.Parts, err)
	}
	if !slices.Equal(seen, []string{"stranger", "stranger", "worker"}) {
		t.Errorf("checked %q", seen)
	}
	if cap(m.buf) > 1<<10 {
		t.Errorf("%d bytes were allocated", cap(m.buf))
	}
}

func TestFirstPartHasALimitOfItsOwn(t *testing.T) {
	for size, want := range map[int]error{16: nil, 17: ErrLimit} {
		c, far, err := connect(t, Sub, Limits{First: 16}, publisherHello(t))
		if err != nil {
			t.Fatal(err)
		}
		go far.Write(appendMessage(nil, make([]byte, size), make([]byte, 100))) // Receive fails then
		var m Message
		if err := c.Receive(&m); !errors.Is(err, want) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

func TestBufferOfALargeMessageIsFreedBeforeTheNext(t *testing.T) {
	c, far, err := connect(t, Sub, Limits{}, publisherHello(t))
	if err != nil {
		t.Fatal(err)
	}
	const most = 4 << 20
	go func() {
		far.Write(appendMessage(nil, make([]byte, most)))   // Receive fails then
		far.Write(appendMessage(nil, []byte("small")))      // Receive fails then
		far.Write(appendMessage(nil, make([]byte, most+1))) // Receive fails then
	}()
	var m Message
	if err := c.Receive(&m); err != nil || len(m.Parts[0]) != most {
		t.Fatal(len(m.Parts), err)
	}
	if err := c.Receive(&m); err != nil || string(m.Parts[0]) != "small" || cap(m.buf) > keptBytes {
		t.Errorf("%q, %v; %d bytes are kept", m.Parts, err, cap(m.buf))
	}
	if err := c.Receive(&m); !errors.Is(err, ErrLimit) {
		t.Errorf("a message over the limit: %v", err)
	}
}
