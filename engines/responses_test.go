package engines

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
)

func TestResponsesStreamHasAllEvents(t *testing.T) {
	const tools = `,"tool_choice":"required","tools":[{"type":"function","name":"look","parameters":{"type":"object","properties":{"a":{"type":"integer"}}}}]`
	for fields, status := range map[string]string{``: "completed", `,"max_output_tokens":4`: "incomplete",
		tools: "completed"} {
		e := New(Config{Model: "m"})
		_, body := call(t, e, "POST", "/v1/responses", `{"model":"m","stream":true,"input":"Tell me a story."`+fields+`}`)
		events := readEvents(t, body)
		var names []string
		said, deltas := "", 0
		for i, ev := range events {
			o := object(t, ev.data)
			if o["type"] != ev.name || number(t, o, "sequence_number") != i {
				t.Errorf("event %d is named %q and says %s", i, ev.name, ev.data)
			}
			if strings.HasSuffix(ev.name, ".delta") {
				said += text(t, o, "delta")
				if deltas++; deltas > 1 {
					continue
				}
			}
			names = append(names, strings.TrimPrefix(ev.name, "response."))
		}
		want := "created in_progress output_item.added content_part.added output_text.delta output_text.done " +
			"content_part.done output_item.done " + status
		if fields == tools {
			want = "created in_progress output_item.added function_call_arguments.delta function_call_arguments.done " +
				"output_item.done completed"
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("events\n%s\nwant\n%s", got, want)
		}
		resp := at(t, object(t, events[len(events)-1].data), "response")
		if number(t, resp, "usage", "output_tokens") != deltas || text(t, resp, "status") != status {
			t.Errorf("%d tokens written, the end says %v", deltas, resp)
		}
		final := ""
		if fields == tools {
			final = text(t, resp, "output", 0, "arguments")
		} else {
			final = text(t, resp, "output", 0, "content", 0, "text")
		}
		if final != said {
			t.Errorf("the deltas say %q, the end %q", said, final)
		}
		id := text(t, resp, "id")
		if _, stored := call(t, e, "GET", "/v1/responses/"+id, ""); text(t, object(t, stored), "status") != status {
			t.Errorf("stored: %s", stored)
		}
	}
}

func TestResponsesAreStoredContinuedAndDeleted(t *testing.T) {
	e := New(Config{Model: "m", CacheTokens: 1 << 14})
	first := ask(t, e, "/v1/responses",
		`{"model":"m","instructions":"Be kind.","input":[{"role":"user","content":[{"type":"input_text","text":"`+
			strings.Repeat("A long tale. ", 30)+`"}]}],"metadata":{"a":"b"}}`)
	id := text(t, first, "id")
	if text(t, first, "metadata", "a") != "b" || text(t, first, "instructions") != "Be kind." {
		t.Errorf("the response does not repeat the request: %v", first)
	}
	next := ask(t, e, "/v1/responses", `{"model":"m","instructions":"Be kind.","previous_response_id":"`+id+
		`","input":"Go on."}`)
	if cached := number(t, next, "usage", "input_tokens_details", "cached_tokens"); cached < number(t, first, "usage",
		"total_tokens")-16 {
		t.Errorf("the continued response found %d tokens of %v", cached, first["usage"])
	}
	if status, _ := call(t, e, "POST", "/v1/responses/"+id+"/cancel", ""); status != 400 {
		t.Errorf("cancelling a finished response: %d", status)
	}
	if status, body := call(t, e, "DELETE", "/v1/responses/"+id, ""); status != 200 || object(t, body)["deleted"] != true {
		t.Errorf("deleting: %d %s", status, body)
	}
	if status, _ := call(t, e, "GET", "/v1/responses/"+id, ""); status != 404 {
		t.Errorf("after deleting: %d", status)
	}
	unkept := ask(t, e, "/v1/responses", `{"model":"m","store":false,"input":"a"}`)
	if status, _ := call(t, e, "GET", "/v1/responses/"+text(t, unkept, "id"), ""); status != 404 {
		t.Errorf("an unstored response was found: %d", status)
	}
	for range maxStored + 5 {
		ask(t, e, "/v1/responses", `{"model":"m","input":"a","max_output_tokens":1}`)
	}
	if n := len(e.stored.byID); n != maxStored {
		t.Errorf("%d responses are kept", n)
	}
}

func TestBackgroundResponsesEndOrAreCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(timed(4))
		const body = `{"model":"m","background":true,"input":"Tell me a story."}`
		status := func(id string) string {
			_, got := call(t, e, "GET", "/v1/responses/"+id, "")
			return text(t, object(t, got), "status")
		}
		done := text(t, ask(t, e, "/v1/responses", body), "id")
		dropped := text(t, ask(t, e, "/v1/responses", body), "id")
		if status(done) != "queued" || status(dropped) != "queued" {
			t.Error("background responses do not start as queued")
		}
		if code, got := call(t, e, "POST", "/v1/responses/"+dropped+"/cancel", ""); code != 200 ||
			text(t, object(t, got), "status") != "cancelled" {
			t.Errorf("cancel: %d %s", code, got)
		}
		e.work.Wait()
		if status(done) != "completed" || status(dropped) != "cancelled" {
			t.Errorf("at the end %s and %s", status(done), status(dropped))
		}
		ask(t, e, "/v1/responses", body)
		e.Close()
		if s := e.Stats(); s.Running != 0 {
			t.Errorf("Close left %+v", s)
		}
	})
}

func TestMessagesStreamAsAnthropicDoes(t *testing.T) {
	const tools = `,"tool_choice":{"type":"any"},"tools":[{"name":"look","input_schema":{"type":"object","properties":{"a":{"type":"integer"}}}}]`
	for fields, reason := range map[string]string{`,"max_tokens":99`: "end_turn", `,"max_tokens":4`: "max_tokens",
		`,"max_tokens":99` + tools: "tool_use"} {
		e := New(Config{Model: "m", CacheTokens: 4096})
		body := `{"model":"m","system":[{"type":"text","text":"` + strings.Repeat("Be kind. ", 12) + `"}],` + hello + fields
		whole := ask(t, e, "/v1/messages", body+`}`)
		_, stream := call(t, e, "POST", "/v1/messages", body+`,"stream":true}`)
		var names []string
		said, deltas := "", 0
		events := readEvents(t, stream)
		for _, ev := range events {
			o := object(t, ev.data)
			if o["type"] != ev.name {
				t.Errorf("the event %s says %s", ev.name, ev.data)
			}
			if ev.name == "content_block_delta" {
				delta := at(t, o, "delta").(map[string]any)
				piece, _ := delta["text"].(string)
				arguments, _ := delta["partial_json"].(string)
				said += piece + arguments
				if deltas++; deltas > 1 {
					continue
				}
			}
			names = append(names, ev.name)
		}
		if got := strings.Join(names, " "); got != "message_start content_block_start ping content_block_delta "+
			"content_block_stop message_delta message_stop" {
			t.Errorf("events %s", got)
		}
		start, end := object(t, events[0].data), object(t, events[len(events)-2].data)
		if text(t, end, "delta", "stop_reason") != reason || text(t, whole, "stop_reason") != reason {
			t.Errorf("stopped for %v and %v, want %s", end, whole, reason)
		}
		if number(t, end, "usage", "output_tokens") != deltas || number(t, whole, "usage", "output_tokens") != deltas {
			t.Errorf("%d tokens written, counted as %v and %v", deltas, end, whole["usage"])
		}
		_, count := call(t, e, "POST", "/v1/messages/count_tokens", body+`}`)
		prompt := number(t, object(t, count), "input_tokens")
		cached := number(t, start, "message", "usage", "cache_read_input_tokens")
		if cached == 0 || number(t, start, "message", "usage", "input_tokens")+cached != prompt ||
			number(t, whole, "usage", "input_tokens") != prompt {
			t.Errorf("a prompt of %d tokens, %d cached, is counted as %v", prompt, cached, start)
		}
		if reason == "tool_use" {
			input, _ := json.Marshal(at(t, whole, "content", 0, "input"))
			if string(input) != said || text(t, whole, "content", 0, "name") != "look" {
				t.Errorf("called with %s, streamed %s", input, said)
			}
		} else if text(t, whole, "content", 0, "text") != said {
			t.Errorf("stream and whole answer differ: %q %v", said, whole["content"])
		}
	}
}
