package tiers

import (
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	_ "tierway/fixedseed"
)

const idle = 30 * time.Minute

func start() time.Time { return time.Unix(1_800_000_000, 0) }

func TestChatIsFoundByTheTurnsThatItContinues(t *testing.T) {
	long := func(n int) []uint64 {
		all := []uint64{1, 2}
		for i := range n {
			all = append(all, uint64(100+i))
		}
		return all
	}
	for name, c := range map[string]struct {
		f    ClassifierInput
		want uint32 // 0: none
	}{
		"the next turn":           {ClassifierInput{Turns: []uint64{1, 2, 3}}, 7},
		"the deepest":             {ClassifierInput{Turns: []uint64{1, 2, 5, 6, 9}}, 8},
		"the same request":        {ClassifierInput{Turns: []uint64{1, 2}}, 0},
		"a retry of a later turn": {ClassifierInput{Turns: []uint64{1, 2, 5, 6}}, 7},
		"another branch":          {ClassifierInput{Turns: []uint64{1, 3, 4}}, 0},
		"no turns":                {ClassifierInput{}, 0},
		"32 back":                 {ClassifierInput{Turns: long(32)}, 7},
		"33 back":                 {ClassifierInput{Turns: long(33)}, 0},
		"its session":             {ClassifierInput{Session: 42}, 9},
		"its session, not chain":  {ClassifierInput{Session: 43, Turns: []uint64{1, 2, 3}}, 0},
		"a chain like a session":  {ClassifierInput{Turns: []uint64{42, 1}}, 0},
	} {
		chats := NewChats(MaxChats)
		chats.remember(&ClassifierInput{Now: start(), Turns: []uint64{1, 2}}, 7)
		chats.remember(&ClassifierInput{Now: start(), Turns: []uint64{1, 2, 5, 6}}, 8)
		chats.remember(&ClassifierInput{Now: start(), Session: 42, Turns: []uint64{1, 2, 3}}, 9)
		chats.remember(&ClassifierInput{Now: start()}, 6)
		c.f.Now = start()
		if tier, ok := chats.recall(&c.f, idle, false); tier != c.want || ok != (c.want != 0) {
			t.Errorf("%s: %d, %v, want %d", name, tier, ok, c.want)
		}
	}
}

func TestIdleChatIsForgotten(t *testing.T) {
	at := func(d time.Duration) *ClassifierInput { return &ClassifierInput{Now: start().Add(d), Session: 1} }
	for name, c := range map[string]struct {
		touched bool
		after   time.Duration
		want    bool
	}{
		"within":            {false, idle, true},
		"after":             {false, idle + 1, false},
		"used in between":   {true, idle + time.Minute, true},
		"long after it was": {true, idle + time.Minute + 1, false},
	} {
		chats := NewChats(10)
		chats.remember(at(0), 1)
		if _, ok := chats.recall(at(time.Minute), idle, c.touched); !ok {
			t.Fatalf("%s: not there after a minute", name)
		}
		if _, ok := chats.recall(at(c.after), idle, false); ok != c.want {
			t.Errorf("%s: remembered: %v", name, ok)
		}
	}
}

// TestChatsForgetTheLeastRecentlyUsed compares with a list.
func TestChatsForgetTheLeastRecentlyUsed(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limit := rapid.IntRange(1, 6).Draw(rt, "limit")
		chats, model := NewChats(limit), []uint64{} // used last at the end
		tiers := map[uint64]uint32{}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			key := rapid.Uint64Range(1, 12).Draw(rt, "key")
			f := ClassifierInput{Now: start(), Session: key}
			i := slices.Index(model, key)
			if rapid.Bool().Draw(rt, "recall") {
				touch := rapid.Bool().Draw(rt, "touch")
				tier, ok := chats.recall(&f, idle, touch)
				if ok != (i >= 0) || ok && tier != tiers[key] {
					rt.Fatalf("%d: %v, %v; the model has %v", key, tier, ok, model)
				}
				if !ok || !touch {
					continue
				}
			} else {
				tiers[key] = rapid.Uint32().Draw(rt, "tier")
				chats.remember(&f, tiers[key])
			}
			if i >= 0 {
				model = slices.Delete(model, i, i+1)
			}
			if model = append(model, key); len(model) > limit {
				model = model[1:]
			}
			if chats.Len() != len(model) || len(chats.byChat) > limit {
				rt.Fatalf("%d entries, limit %d", chats.Len(), limit)
			}
		}
	})
}

func TestChatsAreSafeForConcurrentUse(t *testing.T) {
	k := classes(t, Config{})
	chats := NewChats(50)
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := range 500 {
				f := ClassifierInput{Now: start(), Session: uint64(i%70 + 1), MaxTokens: int64(worker * 400), User: says("prove")}
				if _, err := k.Resolve(Query{Input: &f, Chats: chats}); err != nil {
					t.Error(err)
				}
				if n := chats.Len(); n > 50 {
					t.Errorf("%d entries", n)
				}
			}
		})
	}
	wg.Wait()
}
