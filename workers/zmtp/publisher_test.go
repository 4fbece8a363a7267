package zmtp

import (
	"context"
	"testing"
	"time"
)

// subscribed sends a message of a topic until a connection has received one.
func subscribed(t *testing.T, p *Publisher, c *Conn, topic string) {
	t.Helper()
	got := make(chan error, 1)
	go func() {
		var m Message
		got <- c.Receive(&m)
	}()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		p.Send([]byte(topic), []byte("first"))
		select {
		case err := <-got:
			if err != nil {
				t.Fatal(err)
			}
			return
		default:
		}
	}
}

func TestPublisherSendsToSubscribersOfATopic(t *testing.T) {
	p, err := Network{}.Publish(context.Background(), "ipc://"+t.TempDir()+"/pub")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	c, err := Network{}.Dial(t.Context(), "ipc://"+p.Addr().String(), Sub, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Subscribe("kv"); err != nil {
		t.Fatal(err)
	}
	subscribed(t, p, c, "kv@a")
	p.Send([]byte("other"), []byte("x"))
	p.Send([]byte("kv@b"), []byte("last"))
	for m := (Message{}); ; {
		if err := c.Receive(&m); err != nil {
			t.Fatal(err)
		}
		if string(m.Parts[0]) == "other" {
			t.Error("a message of another topic was received")
		}
		if string(m.Parts[1]) == "last" {
			return
		}
	}
}

func TestReplierAnswersEachPeer(t *testing.T) {
	answer := func(request [][]byte, reply func(...[]byte) error) {
		for range 3 {
			if err := reply(request...); err != nil {
				t.Error(err)
			}
		}
	}
	r, err := Network{}.Reply(context.Background(), "tcp://127.0.0.1:0", answer)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, word := range []string{"one", "two"} {
		c, err := Network{}.Dial(t.Context(), "tcp://"+r.Addr().String(), Dealer, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Send(nil, []byte(word)); err != nil {
			t.Fatal(err)
		}
		var m Message
		for range 3 {
			if err := c.Receive(&m); err != nil || len(m.Parts) != 2 || string(m.Parts[1]) != word {
				t.Errorf("%q, %v", m.Parts, err)
			}
		}
		c.Close() //nolint:errcheck // the test is over
	}
}
