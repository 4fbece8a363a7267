package prompttokens

import (
	"runtime"
	"slices"
	"sync"
	"testing"

	"tierway/openai"
)

func TestMemoryIsBoundedAndRecentPromptsStay(t *testing.T) {
	w := &templateEngine{render: marked, tokens: words}
	s := New(Config{LookupTimeout: 1 << 40, Worker: func() Poster { return w }, Budget: 100 << 10})
	hot := query(t, openai.Chat, object{"model": "m", "messages": []object{say("user", long(0, 100))}})
	for i := range 300 {
		lookup(t, s, query(t, openai.Chat, object{"model": "m", "messages": []object{say("user", long(i+1, 100))}}))
		if p := lookup(t, s, hot); p.Tokens == 0 {
			t.Fatal("not known")
		}
		if c := s.Counts(); c.Bytes > 100<<10 {
			t.Fatalf("%+v", c)
		}
	}
	c := s.Counts()
	if c.Known != 299 || s.memo.recent.Len() < 20 {
		t.Errorf("%+v", c)
	}
	s.memo.clear()
	if c := s.Counts(); c.Bytes != 0 || s.memo.recent.Len() != 0 || len(s.memo.nodes) != 0 {
		t.Errorf("%+v", c)
	}
}

// TestTheStatedMemoryIsThatOfTheProcess compares the size that the budget bounds with the heap.
func TestTheStatedMemoryIsThatOfTheProcess(t *testing.T) {
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	m := newMemo(1 << 40)
	tokens := make([]uint32, 4000)
	for i := range 1000 {
		blocks := make([]uint64, 32) // a block of a chain has 128 tokens
		for j := range blocks {
			blocks[j] = mix(uint64(i), uint64(j))
		}
		tokens[0] = uint32(i)
		m.put(blocks, tokens, nil, false)
		n := m.nodes[blocks[31]]
		n.appendKeys(nil, 16, identity{}, true)
	}
	stated := m.size()
	real := heap() - before
	if stated < real*3/4 || stated > real*3/2 {
		t.Errorf("%d bytes are stated, %d are used", stated, real)
	}
	runtime.KeepAlive(m)
}

func TestConcurrentLookupsAreRight(t *testing.T) {
	const evicting = 64 << 10 // may remove a prompt before its look-up finds it
	for _, budget := range []int64{evicting, DefaultBudget} {
		w := client(t, engine(t, 1<<20))
		s, stop := run(Config{LookupTimeout: 1 << 40, Worker: func() Poster { return w }, Budget: budget})
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				messages := []object{say("system", long(i%2, 100)), say("user", "hello")}
				for turn := range 10 {
					q := query(t, openai.Chat, object{"model": "m", "messages": slices.Clone(messages)})
					p := s.Lookup(t.Context(), q, nil)
					want := keysOf(q, tokenize(t, w.Poster, q))
					if budget == evicting {
						want = want[:min(len(p.Keys), len(want))]
					}
					if !slices.Equal(p.Keys, want) {
						t.Errorf("budget %d: %d keys, not %d", budget, len(p.Keys), len(want))
					}
					messages = append(messages, say("assistant", long(10*i+turn, 30)), say("user", "and then?"))
				}
			})
		}
		all.Wait()
		stop()
	}
}

func FuzzReadTokens(f *testing.F) {
	for _, seed := range []string{`{"tokens":[1,2]}`, `[{"token_ids":[1]}]`, `{"tokens":[1,]}`, `{"tokens":[99999999999]}`,
		`{"tokens":[]}`, `[]`, `{"a":{"tokens":[1]}}`, `{"tokens":[1 2]}`, `{"tokens":[ 1 , 2 ]}`, `{"tokens":[-1]}`, `{"tokens":[1.5]}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, answer string) {
		ids, err := readTokens([]byte(answer))
		if err == nil && (len(ids) == 0 || len(ids) > len(answer)) || err != nil && ids != nil {
			t.Errorf("%d ids, %v", len(ids), err)
		}
	})
}

func TestListsOfIDsAreReadStrictly(t *testing.T) {
	for array, want := range map[string][]uint32{
		"[1,2]": {1, 2}, " [1]": nil, "[ 1 ,\n2 ]": {1, 2}, "[4294967295]": {1<<32 - 1}, "[0]": {0},
		"[4294967296]": nil, "[1,]": nil, "[,1]": nil, "[1 2]": nil, "[-1]": nil, "[1.0]": nil, "[1e3]": nil, "[": nil,
		"[1": nil, "1]": nil, "[\"1\"]": nil, "[[1]]": nil, "[1]2]": nil,
	} {
		got, ok := appendIDs([]uint32{}, []byte(array))
		if ok != (want != nil) || ok && !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v", array, got, ok)
		}
	}
	if got, ok := appendIDs([]uint32{}, []byte("[]")); !ok || len(got) != 0 {
		t.Errorf("%v, %v", got, ok)
	}
}
