package zmq

import (
	"context"
	"testing"
	"testing/synctest"

	"tierway/memnet"
	"tierway/workers/zmtp"
)

// network is a network in memory.
func network() zmtp.Network {
	n := memnet.New()
	return zmtp.Network{DialFunc: n.Dial, ListenFunc: n.Listen}
}

func TestPublisherSendsToSubscribersOfATopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := network()
		p, err := Publish(context.Background(), network, "tcp://127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		c, err := network.Dial(t.Context(), Endpoint(p.Addr()), zmtp.Sub, zmtp.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.Subscribe("kv"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for _, topic := range []string{"kv@a", "other", "kv@b"} {
			p.Send([]byte(topic), []byte("x"))
		}
		for _, want := range []string{"kv@a", "kv@b"} {
			var m zmtp.Message
			if err := c.Receive(&m); err != nil || string(m.Parts[0]) != want {
				t.Errorf("%q, %v, want the topic %s", m.Parts, err, want)
			}
		}
	})
}

// TestPathIsASocketOfTheSystem dials a publisher that is bound to an ipc address.
func TestPathIsASocketOfTheSystem(t *testing.T) {
	p, err := Publish(context.Background(), zmtp.Network{}, "ipc://"+t.TempDir()+"/pub")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	c, err := zmtp.Network{}.Dial(t.Context(), Endpoint(p.Addr()), zmtp.Sub, zmtp.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	c.Close() // the test is over
}

func TestReplierAnswersEachPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := network()
		answer := func(request [][]byte, reply func(...[]byte) error) {
			for range 3 {
				if err := reply(request...); err != nil {
					t.Error(err)
				}
			}
		}
		r, err := Reply(context.Background(), network, "tcp://127.0.0.1:0", answer)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		for _, word := range []string{"one", "two"} {
			c, err := network.Dial(t.Context(), "tcp://"+r.Addr().String(), zmtp.Dealer, zmtp.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Send(nil, []byte(word)); err != nil {
				t.Fatal(err)
			}
			var m zmtp.Message
			for range 3 {
				if err := c.Receive(&m); err != nil || len(m.Parts) != 2 || string(m.Parts[1]) != word {
					t.Errorf("%q, %v", m.Parts, err)
				}
			}
			c.Close() // the test is over
		}
	})
}
