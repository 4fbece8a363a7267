package prompttokens_test

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"time"

	"tierway/engines"
	"tierway/http1"
	"tierway/openai"
	"tierway/openai/prompt"
	"tierway/workers/prompttokens"
)

// A chat is tokenized by a simulated engine. Its next turn begins with known blocks.
func Example() {
	engine := engines.New(engines.Config{Model: "m"})
	defer engine.Close()
	server, err := engines.Start(engine, "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer server.Close() // the example is over
	address, err := url.Parse(server.URL)
	if err != nil {
		panic(err)
	}
	worker := http1.New(http1.Config{Network: "tcp", Address: address.Host, Host: address.Host})
	defer worker.Close()

	source := prompttokens.New(prompttokens.Config{
		LookupTimeout: time.Minute,
		Worker:        func() prompttokens.Poster { return worker },
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { source.Run(ctx) })
	defer func() { cancel(); running.Wait() }()

	r, err := openai.Parse(openai.Chat, []byte(`{"model":"m","messages":[{"role":"user","content":
		"Where are the books about ships, and may readers borrow them for more than four weeks?"}]}`))
	if err != nil {
		panic(err)
	}
	chain, _ := prompt.AppendChain(nil, r, 0)
	p := source.Lookup(ctx, &prompttokens.Query{Request: r, Chain: chain, BlockSize: 16}, nil)
	fmt.Println(p.Tokens, "tokens,", len(p.Keys), "full block")
	// Output: 31 tokens, 1 full block
}
