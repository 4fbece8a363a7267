package kvcache

import (
	"encoding/hex"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tierway/routing"
	"tierway/routing/kvindex"
	"tierway/workers/kvevents"
)

// messages reads a stream of an engine: one payload per line, as hexadecimal text, and comments.
func messages(t *testing.T, name string) (all [][]byte) {
	t.Helper()
	text, err := os.ReadFile("../kvevents/testdata/" + name + ".hex")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		b, err := hex.DecodeString(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	return all
}

// lookup returns the entry of the only worker for five blocks of the streams' prompt, from a block on. salt
// and adapter belong to its identity.
func lookup(p *Pool, from int, salt, adapter string) routing.CachedPrefix {
	var tokens []uint32
	for i := from; i < from+5; i++ {
		for k := range blockSize {
			tokens = append(tokens, uint32(150_000+10*i+k))
		}
	}
	keys := kvindex.AppendKeys(nil, kvindex.Root("", blockSize), blockSize, tokens,
		[]uint64{kvevents.ExtraKey(salt, adapter)}, kvevents.ExtraKey(adapter))
	var r routing.Request
	p.Lookup(&r, blockSize, keys, true)
	if len(r.Cached) != 1 {
		return routing.CachedPrefix{Tokens: -1}
	}
	return r.Cached[0]
}

// feed sends the messages of a stream one by one, and checks after each.
func feed(t *testing.T, name string, check func(message int, p *Pool)) {
	t.Helper()
	c := run(t, Options{})
	pool, p := c.NewPool(), publish(t, c)
	w := pool.Add("w", "w")
	w.Configure(p.config(true), "127.0.0.1", nil)
	eventually(t, "stream", func() bool { return w.View().Live })
	for i, payload := range messages(t, name) {
		p.send(payload, true)
		eventually(t, "batch of "+name, func() bool { return w.View().Counts.Batches == int64(i+1) })
		check(i, pool)
	}
	if c := w.View(); c.Counts.Rejected != 0 || c.Index.Unknown != 0 || c.Index.Unusable != 0 {
		t.Errorf("%s: %+v", name, c)
	}
}

func TestStreamOfLMCacheSaysWhatIsCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wants := []struct{ blocks, inCPU, other int64 }{{2, 2, 0}, {3, 2, 0}, {4, 3, 0}, {5, 4, 0}, {5, 4, 1}}
		feed(t, "lmcache-stream", func(i int, p *Pool) {
			want := wants[i]
			got, other := lookup(p, 0, "", ""), lookup(p, 9, "", "")
			if got.Tokens != want.blocks*blockSize || got.Load != time.Duration(want.inCPU*blockSize)*loadCPU ||
				other.Tokens != want.other*blockSize {
				t.Errorf("message %d: %+v, and %+v of the other prompt; want %+v blocks", i, got, other, want)
			}
		})
	})
}

func TestStreamOfSGLangSaysWhatIsCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wants := []struct{ salted, inCPU, adapter, plain int64 }{
			{2, 0, 0, 0}, {3, 0, 0, 0}, {3, 0, 1, 0}, {3, 1, 1, 0}, {3, 1, 1, 1}, {3, 1, 1, 0}, {1, 0, 1, 0}, {0, 0, 0, 0}}
		feed(t, "sglang-stream", func(i int, p *Pool) {
			want := wants[i]
			salted, adapter, plain := lookup(p, 0, "tenant-a", ""), lookup(p, 0, "", "ad1"), lookup(p, 0, "", "")
			if salted.Tokens != want.salted*blockSize || salted.Load != time.Duration(want.inCPU*blockSize)*loadCPU ||
				adapter.Tokens != want.adapter*blockSize || plain.Tokens != want.plain*blockSize {
				t.Errorf("message %d: %+v with the salt, %+v with the adapter, %+v with neither; want %+v blocks", i, salted,
					adapter, plain, want)
			}
		})
	})
}
