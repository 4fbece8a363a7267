//go:build vllm

package vllm

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"tierway/e2e/rig"
)

const (
	library = "You are the assistant of a small library. Answer in short plain sentences, name the shelf when you " +
		"know it, say so when you do not know it, and never invent a title. Readers come with questions about books, " +
		"films and maps, and some of them want to know when the reading room opens."
	router = "Speak like a router that knows its workers, and name the reason for each choice in one line."
)

// message is one message of a chat.
type message struct{ role, text string }

// chat returns a request for a few tokens. more is further fields in JSON, each followed by a comma.
func chat(more string, tokens int, messages ...message) string {
	var all []string
	for _, m := range messages {
		all = append(all, fmt.Sprintf(`{"role":%q,"content":%s}`, m.role, rig.Quoted(m.text)))
	}
	return fmt.Sprintf(`{"model":"tiny",%s"max_tokens":%d,"temperature":0,"ignore_eos":true,"messages":[%s]}`,
		more, tokens, strings.Join(all, ","))
}

// words returns a text of its own for each seed.
func words(seed, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%d worker %d ", seed*7919%977+i, (seed+i)*31%89)
	}
	return b.String()
}

// TestPredictionsHoldBeforeVLLM repeats what the recordings of vLLM's events hold, before live engines.
func TestPredictionsHoldBeforeVLLM(t *testing.T) {
	f := newFleet(t)
	defer f.logTable()
	t.Run("chats", func(t *testing.T) { f.in(t).testChats() })
	t.Run("agents", func(t *testing.T) { f.in(t).testAgents() })
	t.Run("past the gateway", func(t *testing.T) { f.in(t).testDirectTraffic() })
	t.Run("eviction", func(t *testing.T) { f.in(t).testEviction() })
	t.Run("cleared cache", func(t *testing.T) { f.in(t).testClearedCache() })
	t.Run("restart", func(t *testing.T) { f.in(t).testRestart() })
	t.Run("many chats at once", func(t *testing.T) { f.in(t).testManyChats() })
}

// in directs failures to a subtest.
func (f *fleet) in(t *testing.T) *fleet {
	f.t = t
	return f
}

// wants checks a request that events alone must predict.
func (f *fleet) wants(name, path, body string, cached bool) (outcome, completion) {
	f.t.Helper()
	o, c := f.send(name, path, body)
	f.settle()
	if o.predicted != o.cached {
		f.t.Errorf("%s: %d tokens were predicted, %d were cached", name, o.predicted, o.cached)
	}
	if cached != (o.cached > 0) {
		f.t.Errorf("%s: %d tokens were cached", name, o.cached)
	}
	if want := "kv_events"; cached && o.reason != want {
		f.t.Errorf("%s: the reason is %s, want %s", name, o.reason, want)
	}
	return o, c
}

const chatPath, completionPath = "/chat/completions", "/completions"

// testChats sends turns of chats, salts, exact blocks and two answers at once.
func (f *fleet) testChats() {
	system := message{"system", library}
	ships := message{"user", "Where are the books about ships?"}
	films := message{"user", "May I borrow two films for a fortnight?"}
	first, c := f.wants("chat 1", chatPath, chat("", 8, system, ships), false)
	f.wants("chat 2, same system", chatPath, chat("", 8, system, films), true)
	f.wants("chat 1 again", chatPath, chat("", 8, system, ships), true)
	turn, _ := f.wants("chat 1, second turn", chatPath, chat("", 8, system, ships,
		message{"assistant", c.Choices[0].Message.Content}, message{"user", "And about trains?"}), true)
	if turn.worker != first.worker {
		f.t.Errorf("the second turn went to %s, the first to %s", turn.worker, first.worker)
	}
	other := chat("", 8, message{"system", router}, message{"user", "List three tiers."})
	f.wants("chat 3, other system", chatPath, other, false)
	const salt = `"cache_salt":"tenant-a",`
	f.wants("salted", chatPath, chat(salt, 8, system, ships), false)
	f.wants("salted again", chatPath, chat(salt, 8, system, ships), true)
	f.wants("exact blocks", completionPath, tokens(4*blockTokens), false)
	f.wants("exact blocks again", completionPath, tokens(4*blockTokens), true)
	f.wants("short", completionPath, tokens(4), false)
}

// tokens returns a completion with that many token ids.
func tokens(n int) string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprint(300 + i*37%1500)
	}
	return fmt.Sprintf(`{"model":"tiny","prompt":[%s],"max_tokens":4,"temperature":0,"ignore_eos":true}`, strings.Join(ids, ","))
}

// testAgents sends what agents send: messages, responses, and chats with tools, an effort of reasoning and a format.
// Their second turns and their repetitions are predicted exactly.
func (f *fleet) testAgents() {
	const schema = `{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}`
	rules := rig.Quoted("You are an agent of the library. " + library + words(500, 20))
	messages := func(more string) string {
		return `{"model":"tiny","max_tokens":4,"system":[{"type":"text","text":"x-anthropic-billing-header: a"},{"type":"text","text":` +
			rules + `}],"tools":[{"name":"read","description":"Reads a <file>","input_schema":` + schema +
			`}],"messages":[{"role":"user","content":[{"type":"text","text":"Read two files."}]}` + more + `]}`
	}
	responses := func(more string) string {
		return `{"model":"tiny","max_output_tokens":4,"store":false,"reasoning":{"effort":"low"},"instructions":` + rules +
			`,"tools":[{"type":"function","name":"read","parameters":` + schema + `},{"type":"web_search"}],` +
			`"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"Read two files."}]}` + more + `]}`
	}
	chats := func(more string) string {
		return `{"model":"tiny","max_tokens":4,"reasoning_effort":"medium","response_format":{"type":"json_object"},` +
			`"tool_choice":"auto","tools":[{"type":"function","function":{"name":"read","parameters":` + schema + `}}],` +
			`"messages":[{"role":"system","content":` + rules + `},{"role":"user","content":"Read two files, reply in JSON."}` + more + `]}`
	}
	result := words(510, 20)
	for _, c := range []struct {
		path string
		body func(more string) string
		more string
	}{
		{"/messages", messages, `,{"role":"assistant","content":[{"type":"thinking","thinking":"Two.","signature":"s"},` +
			`{"type":"tool_use","id":"a","name":"read","input":{"path":"ä"}},{"type":"tool_use","id":"b","name":"read","input":{}}]},` +
			`{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"` + result + `"},` +
			`{"type":"tool_result","tool_use_id":"b","content":[{"type":"text","text":"none"}]},{"type":"text","text":"Go on."}]}`},
		{"/responses", responses, `,{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Sure."}]},` +
			`{"type":"function_call","call_id":"a","name":"read","arguments":"{\"path\": \"x\"}"},` +
			`{"type":"function_call_output","call_id":"a","output":"` + result + `"}`},
		{chatPath, chats, `,{"role":"assistant","content":"","reasoning_content":"Two.","tool_calls":[{"id":"a","type":"function",` +
			`"function":{"name":"read","arguments":"{\"path\": \"x\"}"}}]},{"role":"tool","tool_call_id":"a","content":"` + result + `"}`},
	} {
		first, _ := f.wants(c.path+" 1", c.path, c.body(""), false)
		f.wants(c.path+" 1 again", c.path, c.body(""), true)
		turn, _ := f.wants(c.path+" 2", c.path, c.body(c.more), true)
		f.wants(c.path+" 2 again", c.path, c.body(c.more), true)
		if turn.worker != first.worker {
			f.t.Errorf("the second turn of %s went to %s, the first to %s", c.path, turn.worker, first.worker)
		}
	}
	m, err := f.Metrics()
	if err != nil {
		f.t.Fatal(err)
	}
	if n := m.Sum("tierway_prompt_miscounts_total"); n > 0 {
		f.t.Errorf("%v prompts have other lengths than the engines count", n)
	}
}

// testDirectTraffic sends prompts past the gateway: their next requests go to the engine that has them.
func (f *fleet) testDirectTraffic() {
	for i, e := range append(f.engines, f.engines...) {
		body := chat("", 8, message{"user", words(100+i, 40)})
		e.ask(body)
		f.settle()
		if o, _ := f.wants(fmt.Sprintf("direct %d", i), chatPath, body, true); o.worker != e.name {
			f.t.Errorf("%s has the prompt, and the request went to %s", e.name, o.worker)
		}
	}
}

// testEviction fills both caches, until the first prompts are gone.
func (f *fleet) testEviction() {
	old := chat("", 8, message{"user", words(200, 40)})
	f.wants("evicted soon", chatPath, old, false)
	for i := range 16 {
		f.wants(fmt.Sprintf("long %d", i), chatPath, chat("", 8, message{"user", words(300+i, 160)}), false)
	}
	f.wants("evicted", chatPath, old, false)
}

// testClearedCache clears the caches. vLLM publishes it with the next step.
func (f *fleet) testClearedCache() {
	body := chat("", 8, message{"user", words(400, 40)})
	f.wants("before clearing", chatPath, body, false)
	f.wants("before clearing, again", chatPath, body, true)
	for i, e := range f.engines {
		e.clear()
		e.ask(chat("", 8, message{"user", words(410+i, 20)}))
	}
	f.settle()
	f.wants("cleared", chatPath, body, false)
}

// testRestart kills an engine and starts it again: after its first event no block of the old process is
// expected.
func (f *fleet) testRestart() {
	for _, e := range f.engines {
		e.kill()
		e.start()
	}
	for _, e := range f.engines {
		e.waitUntilReady()
	}
	f.waitForEvents()
	f.settle()
	body := chat("", 8, message{"user", words(400, 40)})
	f.wants("after a restart", chatPath, body, false)
	f.wants("after a restart, again", chatPath, body, true)
}

// testManyChats runs six chats of six turns at once. Now blocks are evicted between a choice and its
// prefill, so a few predictions may be wrong.
func (f *fleet) testManyChats() {
	const chats, turns = 6, 6
	ids := make([]string, chats*turns)
	var all sync.WaitGroup
	for n := range chats {
		all.Go(func() {
			history := []message{{"system", []string{library, router}[n%2]}}
			for turn := range turns {
				history = append(history, message{"user", words(1000+10*n+turn, 6)})
				c, err := post(f.t.Context(), f.BaseURL+chatPath, []byte(chat("", 16, history...)))
				if err != nil {
					f.t.Error(err)
					return
				}
				ids[n*turns+turn] = c.id
				history = append(history, message{"assistant", c.Choices[0].Message.Content})
				f.settle()
			}
		})
	}
	all.Wait()
	if f.t.Failed() {
		return
	}
	var prompt, cached, wrong, exact int64
	for i, id := range ids {
		o := f.outcomeOf(fmt.Sprintf("chat %d, turn %d", i/turns, i%turns), id)
		f.seen = append(f.seen, o)
		prompt, cached, wrong = prompt+o.prompt, cached+o.cached, wrong+max(o.predicted-o.cached, o.cached-o.predicted)
		if o.predicted == o.cached {
			exact++
		}
	}
	f.t.Logf("%d of %d predictions are exact; %d of %d prompt tokens were cached, %d were predicted wrongly",
		exact, len(ids), cached, prompt, wrong)
	if wrong*50 > prompt {
		f.t.Errorf("%d of %d tokens were predicted wrongly, want at most 2 %%", wrong, prompt)
	}
}
