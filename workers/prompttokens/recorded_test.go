package prompttokens

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"testing"

	"tierway/http1"
	"tierway/openai"
	"tierway/routing/kvindex"
	"tierway/workers/kvevents"
)

// recorded is a line of a recording of package kvindex: a message of the engine's event stream, or
// a request with the engine's report of it.
type recorded struct {
	Seq     int
	Payload []byte

	Request string
	Tokens  []uint32
	First   []string // what distinguishes the first block
	Each    []string // what distinguishes each later one
	Cached  int      // prompt tokens that the engine took from its cache
}

// sent is a recorded request as the engine received it.
type sent struct {
	Path string
	Body json.RawMessage
}

// replayEngine answers /tokenize for one recorded request with the tokens that the engine reported.
// It refuses all other requests.
type replayEngine struct {
	prompt json.RawMessage // messages or prompt
	tokens []uint32
}

func (e *replayEngine) Send(_ context.Context, r *http1.Request) (*http1.Response, error) {
	var body struct {
		Messages, Prompt json.RawMessage
		Answer           *bool `json:"add_generation_prompt"`
	}
	if err := json.Unmarshal(bytes.Join(r.Body, nil), &body); err != nil {
		return nil, err
	}
	asked := body.Messages
	if asked == nil {
		asked = body.Prompt
	}
	status := http.StatusBadRequest
	if r.Path == tokenizePath && body.Answer == nil && bytes.Equal(asked, e.prompt) {
		status = http.StatusOK
	}
	b, err := json.Marshal(object{"count": len(e.tokens), "tokens": e.tokens})
	return &http1.Response{Status: status, Body: io.NopCloser(bytes.NewReader(b))}, err
}

// TestLookupPredictsTheCachedTokensOfARealEngine replays four recordings of vLLM 0.32: the keys of
// the recorded requests, looked up in an index of the recorded events. The listed requests cannot
// be predicted from the events before them; package kvindex has the reasons.
func TestLookupPredictsTheCachedTokensOfARealEngine(t *testing.T) {
	const blockSize = 32
	unpredictable := map[string]map[string]int{
		"main":    {"n-2": 128, "twin-1": 0, "chat-1-after-reset": 160},
		"restart": {"chat-1": 160},
		"lora":    {},
		"swa":     {},
	}
	requests := 0
	for name, exceptions := range unpredictable {
		x := kvindex.New(1 << 20)
		w, err := x.Add("")
		if err != nil {
			t.Fatal(err)
		}
		engine := &replayEngine{}
		s := source(engine)
		bodies := lines[sent](t, "testdata/vllm-0.32/"+name+".jsonl.gz")
		var d kvevents.Decoder
		last, wrong := -1, map[string]int{}
		for _, r := range lines[recorded](t, "../../routing/kvindex/testdata/vllm-0.32/"+name+".jsonl.gz") {
			if r.Request == "" {
				b, err := d.Decode(r.Payload)
				if err != nil {
					t.Fatal(err)
				}
				if r.Seq <= last {
					w.Reset()
				}
				last = r.Seq
				w.Apply(b)
				continue
			}
			q := recordedQuery(t, bodies[0], engine)
			bodies = bodies[1:]
			q.BlockSize = blockSize
			engine.tokens = r.Tokens
			p := lookup(t, s, q)
			if p.Tokens != int64(len(r.Tokens)) {
				t.Fatalf("%s: %s has %d tokens, not %d", name, r.Request, p.Tokens, len(r.Tokens))
			}
			var m [kvindex.MaxWorkers]kvindex.Match
			x.Overlap(p.Keys, &m)
			if got := m[w.ID()].Blocks * blockSize; got != r.Cached {
				wrong[r.Request] = got
			}
			requests++
		}
		if !maps.Equal(wrong, exceptions) {
			t.Errorf("%s: wrong predictions %v, not %v", name, wrong, exceptions)
		}
	}
	if requests != 48 {
		t.Errorf("%d requests", requests)
	}
}

// recordedQuery returns the query of a recorded request, and makes the engine ready for it.
func recordedQuery(t *testing.T, r sent, engine *replayEngine) *Query {
	t.Helper()
	d := openai.Chat
	if r.Path == "/v1/completions" {
		d = openai.Completions
	}
	q := query(t, d, []byte(r.Body))
	var body struct {
		Model            string
		Messages, Prompt json.RawMessage
	}
	if err := json.Unmarshal(r.Body, &body); err != nil {
		t.Fatal(err)
	}
	if engine.prompt = body.Messages; engine.prompt == nil {
		engine.prompt = body.Prompt
	}
	if body.Model == "ad1" {
		q.Adapter = "ad1"
	}
	return q
}

// TestTokenizeAnswersOfARealEngineAreRead reads an answer of vLLM 0.32.
func TestTokenizeAnswersOfARealEngineAreRead(t *testing.T) {
	got, err := readTokens([]byte(`{"count":3,"max_model_len":4096,"tokens":[2046,82,1649],"token_strs":null}`))
	if err != nil || len(got) != 3 || got[0] != 2046 || got[2] != 1649 {
		t.Errorf("%v, %v", got, err)
	}
}

// lines reads a compressed file of JSON lines.
func lines[T any](t *testing.T, path string) (all []T) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() // it was only read
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for d := json.NewDecoder(z); ; {
		var l T
		if err := d.Decode(&l); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
}
