package engines

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Addresses of the pair in the tests of this file.
const (
	prefillAddress = "10.0.0.1:21001"
	decodeAddress  = "10.0.0.2:21002"
)

// metPair is a pair whose requests find each other by a key.
func metPair(kind string) (prefill, decode *Engine) {
	return pair(func(c *Config) {
		c.Handover, c.KVAddress = kind, decodeAddress
		if c.Role == RolePrefill {
			c.KVAddress = prefillAddress
		}
	})
}

// met are the key of a transfer in both hand-overs that have one: a header, and fields.
func met(kind string, n int) (headers map[string]string, fields string) {
	if kind == HandoverP2PNCCL {
		return map[string]string{"X-Request-Id": fmt.Sprintf("___prefill_addr_%s___decode_addr_%s_%032x", prefillAddress,
			decodeAddress, n)}, ""
	}
	return nil, fmt.Sprintf(`,"bootstrap_host":"10.0.0.1","bootstrap_port":21001,"bootstrap_room":%d`, 1<<62+n)
}

// result is an answer and the time at which it ended.
type result struct {
	status int
	body   string
	at     time.Duration
}

// together sends requests with one key to engines, each after its delay, with clients that leave after a minute.
func together(t *testing.T, sends ...func() (int, string)) []result {
	t.Helper()
	results := make([]result, len(sends))
	began := time.Now()
	var all sync.WaitGroup
	for i, send := range sends {
		all.Go(func() {
			status, body := send()
			results[i] = result{status, body, time.Since(began)}
		})
	}
	all.Wait()
	return results
}

// after sends a request with a key after a delay.
func after(t *testing.T, delay time.Duration, e *Engine, kind string, n int, path, fields string) func() (int, string) {
	t.Helper()
	headers, key := met(kind, n)
	return func() (int, string) {
		time.Sleep(delay)
		return leaving(t, e, time.Minute, path, "{"+fields+key+"}", headers)
	}
}

func TestPromptArrivesByItsKeyInEitherOrder(t *testing.T) {
	for _, kind := range []string{HandoverP2PNCCL, HandoverSGLang} {
		for _, d := range dialects {
			for _, delays := range [][2]time.Duration{{0, 0}, {time.Second, 0}, {0, time.Second}} {
				synctest.Test(t, func(t *testing.T) {
					prefill, decode := metPair(kind)
					_, want := call(t, New(timed(8)), "POST", d.path, fmt.Sprintf(`{%s,%q:9}`, d.fields, d.bound))
					got := together(t,
						after(t, delays[0], prefill, kind, 1, d.path, fmt.Sprintf(`%s,%q:1`, d.fields, d.bound)),
						after(t, delays[1], decode, kind, 1, d.path, fmt.Sprintf(`%s,%q:9`, d.fields, d.bound)))
					if got[0].status != 200 || got[1].status != 200 {
						t.Fatalf("%s %s: %+v", kind, d.path, got)
					}
					if said(t, d.path, false, got[1].body) != said(t, d.path, false, want) {
						t.Errorf("%s %s: %s, want %s", kind, d.path, got[1].body, want)
					}
					if w := decode.Stats().Written; w.Cached != w.Prompt-1 {
						t.Errorf("%s %s: %+v", kind, d.path, w)
					}
					if got[1].at < 100*time.Millisecond || got[1].at > 1300*time.Millisecond {
						t.Errorf("%s %s after %v: decoded at %v", kind, d.path, delays, got[1].at)
					}
					if waits := got[0].at >= delays[1]; kind == HandoverSGLang && !waits {
						t.Errorf("%s: the prefill engine answered at %v, before the transfer", d.path, got[0].at)
					}
					if s := prefill.Stats(); s.BlocksLeaked+s.KeysReused+decode.Stats().WrongAnswers != 0 {
						t.Errorf("%s: %+v", d.path, s)
					}
					ended(t, prefill, decode)
				})
			}
		}
	}
}

func TestKeyInUseTwiceGivesWrongAnswers(t *testing.T) {
	const path = "/v1/chat/completions"
	fields := `"model":"m","max_tokens":4,` + long("messages")
	for _, kind := range []string{HandoverP2PNCCL, HandoverSGLang} {
		for _, delay := range []time.Duration{0, 50 * time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				prefill, decode := metPair(kind)
				got := together(t, after(t, 0, prefill, kind, 1, path, fields), after(t, 0, decode, kind, 1, path, fields),
					after(t, delay, prefill, kind, 1, path, fields), after(t, delay, decode, kind, 1, path, fields))
				if !strings.Contains(got[1].body, WrongAnswer) || !strings.Contains(got[3].body, WrongAnswer) {
					t.Errorf("%s: %+v", kind, got)
				}
				if p, d := prefill.Stats(), decode.Stats(); p.KeysReused != 1 || d.KeysReused != 1 || d.WrongAnswers != 2 {
					t.Errorf("%s: %+v %+v", kind, p, d)
				}
				time.Sleep(time.Minute)
				ended(t, prefill, decode)
			})
		}
		synctest.Test(t, func(t *testing.T) { // one after the other
			prefill, decode := metPair(kind)
			for range 2 {
				got := together(t, after(t, 0, prefill, kind, 1, path, fields), after(t, 0, decode, kind, 1, path, fields))
				if strings.Contains(got[1].body, WrongAnswer) || got[1].status != 200 {
					t.Errorf("%s: %+v", kind, got)
				}
			}
			ended(t, prefill, decode)
		})
	}
}

func TestDecodeWithoutItsPrefillWaitsForTheClient(t *testing.T) {
	const path = "/v1/chat/completions"
	fields := `"model":"m","max_tokens":4,` + long("messages")
	for _, kind := range []string{HandoverP2PNCCL, HandoverSGLang} {
		for name, prefills := range map[string]func(t *testing.T, prefill *Engine) func() (int, string){
			"none": func(*testing.T, *Engine) func() (int, string) { return func() (int, string) { return 400, "" } },
			"rejected": func(t *testing.T, prefill *Engine) func() (int, string) {
				return after(t, 0, prefill, kind, 1, path, fields+`,"n":0`)
			},
			"of another key": func(t *testing.T, prefill *Engine) func() (int, string) {
				return after(t, 0, prefill, kind, 2, path, fields)
			},
			"aborted": func(t *testing.T, prefill *Engine) func() (int, string) {
				headers, key := met(kind, 1)
				return func() (int, string) {
					return leaving(t, prefill, 50*time.Millisecond, path, "{"+fields+key+"}", headers)
				}
			},
		} {
			synctest.Test(t, func(t *testing.T) {
				prefill, decode := metPair(kind)
				got := together(t, prefills(t, prefill), after(t, 0, decode, kind, 1, path, fields))
				if got[1].at != time.Minute || got[1].body != "" {
					t.Errorf("%s, a prefill %s: %+v", kind, name, got)
				}
				if name == "rejected" && got[0].status != 400 {
					t.Errorf("%s: %+v", kind, got[0])
				}
				ended(t, prefill, decode)
			})
		}
		synctest.Test(t, func(t *testing.T) { // an aborted prefill, then another one
			prefill, decode := metPair(kind)
			headers, key := met(kind, 1)
			got := together(t, func() (int, string) {
				leaving(t, prefill, 50*time.Millisecond, path, "{"+fields+key+"}", headers)
				return leaving(t, prefill, time.Minute, path, "{"+fields+key+"}", headers)
			}, after(t, 0, decode, kind, 1, path, fields))
			if got[0].status != 200 || got[1].status != 200 || strings.Contains(got[1].body, WrongAnswer) {
				t.Errorf("%s: %+v", kind, got)
			}
			ended(t, prefill, decode)
		})
	}
}

func TestP2PNeedsTheAddressesOfBothEngines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		prefill, decode := metPair(HandoverP2PNCCL)
		const hex = "_0123456789abcdef0123456789abcdef"
		body := `{"model":"m","max_tokens":4,` + long("messages") + "}"
		for _, id := range []string{"", "abc", "___prefill_addr_" + prefillAddress + hex,
			"___prefill_addr_a___decode_addr_b" + hex, "___prefill_addr_a:1___decode_addr_b:2",
			"___prefill_addr_a:1___decode_addr_b:2_0123", "___prefill_addr_a:1___decode_addr_b:2" + hex + "x"} {
			for _, e := range []*Engine{prefill, decode} {
				status, got := leaving(t, e, time.Minute, "/v1/chat/completions", body, map[string]string{"X-Request-Id": id})
				if status != 500 || !strings.Contains(got, "request id") {
					t.Errorf("%q: %d %s", id, status, got)
				}
			}
		}
		// Addresses of other engines: the blocks do not arrive.
		for _, pair := range [][2]string{{prefillAddress, "10.0.0.3:1"}, {"10.0.0.3:1", decodeAddress}} {
			id := map[string]string{"X-Request-Id": "___prefill_addr_" + pair[0] + "___decode_addr_" + pair[1] + hex}
			got := together(t,
				func() (int, string) { return leaving(t, prefill, time.Minute, "/v1/chat/completions", body, id) },
				func() (int, string) { return leaving(t, decode, time.Minute, "/v1/chat/completions", body, id) })
			if got[0].status != 200 || got[1].at != time.Minute {
				t.Errorf("%v: %+v", pair, got)
			}
		}
		if s := prefill.Stats(); s.BlocksLeaked == 0 { // it is kept for the engine at 10.0.0.3
			t.Errorf("%+v", s)
		}
	})
}

func TestP2PAnswersAreNamedByTheRequest(t *testing.T) {
	prefill, _ := metPair(HandoverP2PNCCL)
	headers, _ := met(HandoverP2PNCCL, 7)
	for i, d := range dialects[:3] {
		_, got := leaving(t, prefill, time.Minute, d.path, fmt.Sprintf(`{%s,%q:1}`, d.fields, d.bound), headers)
		if id := text(t, object(t, got), "id"); id != []string{"chatcmpl-", "cmpl-", "msg_"}[i]+headers["X-Request-Id"] {
			t.Errorf("%s: %s", d.path, id)
		}
	}
}

func TestP2PBlocksThatNoDecodeFetchesLeak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		prefill, decode := metPair(HandoverP2PNCCL)
		fields := `"model":"m","max_tokens":1,` + long("messages")
		after(t, 0, prefill, HandoverP2PNCCL, 1, "/v1/chat/completions", fields)()
		if s := prefill.Stats(); s.BlocksPinned == 0 {
			t.Errorf("%+v", s)
		}
		time.Sleep(30 * time.Second)
		if s := prefill.Stats(); s.BlocksLeaked == 0 {
			t.Errorf("%+v", s)
		}
		ended(t, prefill, decode)
	})
}

func TestRoomMustBeNamed(t *testing.T) {
	prefill, decode := metPair(HandoverSGLang)
	for fields, name := range map[string]string{
		``: "bootstrap_room", `,"bootstrap_host":"a","bootstrap_port":1`: "bootstrap_room",
		`,"bootstrap_room":1`: "bootstrap_host", `,"bootstrap_host":"a","bootstrap_room":-1`: "bootstrap_room",
		`,"bootstrap_host":"a","bootstrap_room":9223372036854775808`:     "bootstrap_room",
		`,"bootstrap_host":"a","bootstrap_room":[1]`:                     "bootstrap_room",
		`,"bootstrap_host":"a","bootstrap_room":1,"bootstrap_port":1e6`:  "bootstrap_port",
		`,"bootstrap_host":7,"bootstrap_room":1`:                         "bootstrap_host",
		`,"bootstrap_host":"a","bootstrap_room":1,"bootstrap_port":"80"`: "bootstrap_port",
	} {
		for _, e := range []*Engine{prefill, decode} {
			for _, d := range dialects {
				status, got := call(t, e, "POST", d.path, fmt.Sprintf(`{%s,%q:1%s}`, d.fields, d.bound, fields))
				if status != 400 || !strings.Contains(got, name) {
					t.Errorf("%s %s: %d %s", d.path, fields, status, got)
				}
			}
		}
	}
	ended(t, prefill, decode)
}

func TestSGLangPrefillAnswersOneToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		prefill, decode := metPair(HandoverSGLang)
		fields := `"model":"m","max_tokens":5,"stream":true,"stream_options":{"include_usage":true},` + long("messages")
		got := together(t, after(t, 0, prefill, HandoverSGLang, 1, "/v1/chat/completions", fields),
			after(t, 0, decode, HandoverSGLang, 1, "/v1/chat/completions", fields))
		if p, d := prefill.Stats().Written.Output, decode.Stats().Written.Output; p != 1 || d != 5 {
			t.Errorf("%d and %d tokens: %+v", p, d, got)
		}
		// Several choices hang.
		got = together(t, after(t, 0, prefill, HandoverSGLang, 1, "/v1/chat/completions", fields+`,"n":2`),
			after(t, 0, decode, HandoverSGLang, 1, "/v1/chat/completions", fields+`,"n":2`))
		if got[0].at != time.Minute || got[1].at != time.Minute {
			t.Errorf("n=2: %+v", got)
		}
		ended(t, prefill, decode)
	})
}

func TestFullEnginesStillMeet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, kind := range []string{HandoverP2PNCCL, HandoverSGLang} {
			prefill, decode := pair(func(c *Config) { c.Handover, c.Slots = kind, 1 })
			const path, requests = "/v1/chat/completions", 6
			var sends []func() (int, string)
			for i := range requests { // the decode engine gets them in the opposite order
				fields := fmt.Sprintf(`"model":"m","max_tokens":4,"messages":[{"role":"user","content":"%d %s"}]`, i,
					strings.Repeat("words ", 20))
				sends = append(sends, after(t, time.Duration(i)*time.Millisecond, prefill, kind, i, path, fields),
					after(t, time.Duration(requests-i)*time.Millisecond, decode, kind, i, path, fields))
			}
			for i, got := range together(t, sends...) {
				if got.status != 200 || strings.Contains(got.body, WrongAnswer) || got.at > 10*time.Second {
					t.Errorf("%s request %d: %+v", kind, i, got)
				}
			}
			ended(t, prefill, decode)
		}
	})
}

func TestSharedStoreHasThePromptsOfAllEngines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		prefill, decode := pair(func(c *Config) { c.Handover = HandoverShared })
		alone, _ := pair(func(c *Config) { c.Handover = HandoverShared })
		var first []time.Duration
		for _, step := range []struct {
			e    *Engine
			body string
		}{
			{prefill, prompt(5, 1000, 1)},
			{decode, prompt(5, 1000, 1)}, // 62 blocks of 16 tokens: 1 ms and 992 × 2 µs, then 8 tokens
			{decode, prompt(5, 1000, 1)}, // in its own cache now
			{alone, prompt(5, 1000, 1)},  // another store
		} {
			began := time.Now()
			first = append(first, tokenTimes(t.Context(), step.e, began, step.body)...)
		}
		if want := []time.Duration{time.Second, 8*time.Millisecond + time.Millisecond + 992*2*time.Microsecond,
			8 * time.Millisecond, time.Second}; !slices.Equal(first, want) {
			t.Errorf("first tokens after %v, want %v", first, want)
		}
		salted := strings.Replace(prompt(5, 1000, 1), "{", `{"cache_salt":"x",`, 1)
		if got := tokenTimes(t.Context(), decode, time.Now(), salted); got[0] != time.Second {
			t.Errorf("a prompt with a salt begins after %v", got)
		}
		ended(t, prefill, decode, alone)
	})
}

func FuzzObjectOfAnotherEngine(f *testing.F) {
	for _, seed := range []string{`null`, `{}`, `[]`, `""`, `{"do_remote_prefill":true}`, `{"do_remote_decode":true}`,
		`{"do_remote_prefill":true,"remote_engine_id":"a","remote_request_id":"b","remote_host":"localhost","remote_port":5600}`,
		`{"do_remote_prefill":1}`, `{"prompt_token_ids":[4294967295]}`, `{"prompt_token_ids":[]}`, `{"remote_port":65536}`,
		`{"do_remote_prefill":true,"do_remote_decode":true,"remote_block_ids":[[-1]]}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, params string) {
		e := New(Config{Model: "m", Handover: HandoverNIXL})
		for _, d := range dialects {
			w := httptest.NewRecorder()
			e.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "POST", d.path,
				strings.NewReader(fmt.Sprintf(`{%s,%q:1,"kv_transfer_params":%s}`, d.fields, d.bound, params))))
			if w.Code != 200 && w.Code != 400 && w.Code != 500 {
				t.Errorf("%s: %d %s", d.path, w.Code, w.Body)
			}
		}
		e.Restart()
		if s := e.Stats(); s.BlocksPinned != 0 || s.Open != 0 || e.inUse.Load() != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// TestNothingIsLeftOfRandomHandovers sends requests of two stages, of which half have a client that leaves at
// a random moment, to engines that restart.
func TestNothingIsLeftOfRandomHandovers(t *testing.T) {
	const path = "/v1/chat/completions"
	for _, kind := range []string{HandoverNIXL, HandoverP2PNCCL, HandoverSGLang, HandoverShared} {
		synctest.Test(t, func(t *testing.T) {
			prefill, decode := pair(func(c *Config) { c.Handover, c.Prefill, c.Transfer = kind, 10_000, 100*time.Microsecond })
			random := rand.New(rand.NewPCG(1, 2))
			var all sync.WaitGroup
			for i := range 300 {
				headers, key := met(kind, i)
				fields := fmt.Sprintf(`"model":"m","max_tokens":%d,"messages":[{"role":"user","content":"%d %s"}]`, 1+i%9, i,
					strings.Repeat("words ", i%99))
				begins := time.Duration(random.IntN(3000)) * time.Millisecond
				leaves := [2]time.Duration{time.Minute, time.Minute}
				leaves[i%2] = time.Duration(1+random.IntN(200)) * time.Millisecond
				if i%4 < 2 {
					leaves[i%2] = time.Minute
				}
				stage := func(e *Engine, n int, more string) string {
					_, answer := leaving(t, e, leaves[n], path, "{"+fields+key+more+"}", headers)
					return answer
				}
				all.Go(func() {
					time.Sleep(begins)
					if kind == HandoverP2PNCCL || kind == HandoverSGLang {
						all.Go(func() { stage(prefill, 0, "") })
						stage(decode, 1, "")
						return
					}
					var answer struct {
						Params json.RawMessage `json:"kv_transfer_params"`
					}
					json.Unmarshal([]byte(stage(prefill, 0, ","+askPrefill)), &answer)
					if len(answer.Params) == 0 {
						answer.Params = []byte("null")
					}
					stage(decode, 1, `,"kv_transfer_params":`+string(answer.Params))
				})
			}
			all.Go(func() {
				for range 5 {
					time.Sleep(500 * time.Millisecond)
					prefill.Restart()
				}
			})
			all.Wait()
			time.Sleep(30 * time.Second)
			ended(t, prefill, decode)
			if s := decode.Stats(); s.WrongAnswers+s.ObjectsReused+s.KeysReused != 0 || s.Written.Output == 0 {
				t.Errorf("%s: %+v", kind, s)
			}
		})
	}
}
