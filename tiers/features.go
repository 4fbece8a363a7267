package tiers

import "time"

// TextLimit is how much of a text the keywords look at, in bytes: that much of
// its beginning and as much of its end. What is asked for stands at one of the
// two, and a pasted document between them costs nothing.
const TextLimit = 8 << 10

// Features is what the classifier knows of a request. The caller reads the
// request; nothing here depends on its dialect.
type Features struct {
	Now           time.Time            // the chat's last use is measured against it
	PromptTokens  int64                // as estimated from the prompt's bytes
	MaxTokens     int64                // the output that the request allows; 0 when it names no limit
	LimitRequired bool                 // the dialect requires a limit, so MaxTokens shows no wish
	Tools         bool                 // the request offers tools or functions
	Count         func() (int64, bool) // the exact prompt tokens, false when they cannot be told; called at most once; nil: never to be counted
	User          func() []byte        // the last user turn: no more than its first and last TextLimit bytes; only read; nil: none
	System        func() []byte        // the system text, cut alike; called only when a keyword looks at it; nil: none
	Session       uint64               // a hash of tenant and session key; 0: none
	Turns         []uint64             // hashes of tenant and chat at each message's end, oldest first

	recorded *recorded // what the texts said, where they are not there any more; nil: they are
}

// count returns the exact tokens of the prompt.
func (f *Features) count() (int64, bool) {
	if f.Count == nil {
		return 0, false
	}
	return f.Count()
}

// text returns what f returns, or nothing without f.
func text(f func() []byte) []byte {
	if f == nil {
		return nil
	}
	return f()
}
