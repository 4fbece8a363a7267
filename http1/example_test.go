package http1_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"tierway/http1"
	"tierway/memnet"
)

// Example sends a request and reads its answer.
func Example() {
	network := memnet.New() // a server of the network of the system needs no Dial below
	server := network.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s: %s", r.Method, r.URL.Path, body)
	}))
	defer server.Close()
	address := server.Listener.Addr().String()
	client := http1.New(http1.Config{Network: "tcp", Address: address, Host: address, Dial: network.Dial})
	defer client.Close()

	answer, err := client.Send(context.Background(), &http1.Request{
		Method: http.MethodPost, Path: "/v1/chat/completions", Header: http.Header{},
		Body: [][]byte{[]byte(`{"model":`), []byte(`"small"}`)},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	text, err := io.ReadAll(answer.Body)
	answer.Body.Close()
	fmt.Println(answer.Status, string(text), err)
	// Output: 200 POST /v1/chat/completions: {"model":"small"} <nil>
}

// ExampleSendError shows that a failed connect has not sent the request, so another server may
// receive it.
func ExampleSendError() {
	const address = "127.0.0.1:8000"
	nothingListens := memnet.New()
	client := http1.New(http1.Config{Network: "tcp", Address: address, Host: address, Dial: nothingListens.Dial})
	defer client.Close()

	_, err := client.Send(context.Background(), &http1.Request{Method: http.MethodGet, Path: "/health"})
	var failed *http1.SendError
	if errors.As(err, &failed) {
		fmt.Println("not seen:", failed.Phase <= http1.PhaseConnect)
	}
	// Output: not seen: true
}
