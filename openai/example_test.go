package openai_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"tierway/openai"
)

// The gateway reads a request once and replaces only the model's name.
func ExampleParse() {
	body := []byte(`{"model":"auto","stream":true,"messages":[{"role":"user","content":"Say hello"}]}`)
	request, err := openai.Parse(openai.Chat, body)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(request.Model, request.Stream, request.PromptTokens())
	pieces := request.Splice(openai.Edit{Model: "qwen2.5-7b-instruct"})
	fmt.Printf("%s\n", bytes.Join(pieces, nil))
	// Output:
	// auto true 3
	// {"model":"qwen2.5-7b-instruct","stream":true,"messages":[{"role":"user","content":"Say hello"}]}
}

// A duplicate field is rejected: a worker might use the other value.
func ExampleRequestError() {
	_, err := openai.Parse(openai.Chat, []byte(`{"model":"a","model":"b","messages":[{"role":"user","content":"Hi"}]}`))
	var invalid *openai.RequestError
	if errors.As(err, &invalid) {
		fmt.Println(invalid.Reason, invalid.Param)
		fmt.Println(invalid.Message)
	}
	// Output:
	// ambiguous_json model
	// duplicate field "model": JSON parsers disagree about which value wins; send it once
}

// A stream is complete after [DONE] and a finish_reason for each choice.
func ExampleTracker() {
	stream := `data: {"choices":[{"index":0,"delta":{"content":"Hello"}}]}

data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}

data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1}}

data: [DONE]

`
	events, tracker := openai.NewEventReader(strings.NewReader(stream), 0), openai.NewTracker(openai.Chat)
	for {
		event, err := events.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if mark := tracker.Observe(event); mark.Has(openai.MarkContent) {
			fmt.Println("content")
		}
	}
	usage, _ := tracker.Usage()
	fmt.Println(tracker.Proven(), usage.Prompt, usage.Output)
	// Output:
	// content
	// true 9 1
}

// One error has the format of each dialect.
func ExampleError() {
	err := &openai.Error{Code: openai.CodeModelNotFound, Param: "model"}
	fmt.Println(err.HTTPStatus())
	fmt.Printf("%s\n%s\n", err.Body(openai.Chat, ""), err.Body(openai.Messages, "req_1"))
	// Output:
	// 404
	// {"error":{"message":"The model does not exist or this key may not use it.","type":"invalid_request_error","param":"model","code":"model_not_found"}}
	// {"type":"error","error":{"type":"not_found_error","message":"The model does not exist or this key may not use it."},"request_id":"req_1"}
}
