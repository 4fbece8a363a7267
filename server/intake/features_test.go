package intake

import (
	"fmt"
	"strings"
	"testing"

	"tierway/openai"
	"tierway/server/control"
	"tierway/tenants"
	"tierway/tierscore"
)

// featuresOfChat returns the features of a chat in the buffers of a prompt, as a function, for a last user turn of that
// many bytes after a system prompt and four turns of 1 KB.
func featuresOfChat(t testing.TB, buffers *Prompt, size int) func() *tierscore.Features {
	t.Helper()
	turn := strings.Repeat("Was it sent on Monday? ", 45)
	body := `{"model":"auto","messages":[{"role":"system","content":"` + turn + `"}`
	for range 2 {
		body += `,{"role":"user","content":"` + turn + `"},{"role":"assistant","content":"` + turn + `"}`
	}
	words := strings.Repeat("Where does the parcel stay, and why? ", 1+size/37)[:size]
	req, err := openai.Parse(openai.Chat, []byte(body+`,{"role":"user","content":"`+words+`"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	it := &Intake{}
	in := &Inbound{Snap: &control.Snapshot{Extractor: tierscore.NewExtractor("0123456789abcdef")}}
	caller, p := &Caller{Caller: tenants.Anonymous()}, Parsed{Req: req}
	return func() *tierscore.Features {
		p.Prompt = buffers
		it.DropPrompt(&p) // as after the request before
		p.Prompt = buffers
		return p.Features(in, caller)
	}
}

// TestFeaturesAllocateNothing once the buffers of a prompt have grown, and a prompt that is used again has only the
// features of the new request.
func TestFeaturesAllocateNothing(t *testing.T) {
	buffers := new(Prompt)
	short, long := featuresOfChat(t, buffers, 1<<10), featuresOfChat(t, buffers, 8<<10)
	first := string(short().AppendJSON(nil))
	long()
	if again := string(short().AppendJSON(nil)); again != first {
		t.Errorf("the features of one request are %s and %s", first, again)
	}
	if n := testing.AllocsPerRun(100, func() { long() }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkFeatures measures the features of a chat, with the texts that they need.
func BenchmarkFeatures(b *testing.B) {
	for _, size := range []int{1 << 10, 8 << 10} {
		features := featuresOfChat(b, new(Prompt), size)
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				features()
			}
		})
	}
}
