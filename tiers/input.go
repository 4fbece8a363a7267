package tiers

import (
	"time"

	"tierway/tierscore"
)

// TextLimit is how many bytes at the beginning and at the end of a text the keywords search.
// The question is at one of the two ends, and a pasted document between them costs nothing.
const TextLimit = 8 << 10

// ClassifierInput is what the classifier uses of a request. The caller reads the request; nothing here
// depends on its API dialect.
type ClassifierInput struct {
	Now           time.Time // time of the request, for the idle time of chats
	PromptTokens  int64     // estimated from the prompt's bytes
	MaxTokens     int64     // the output limit of the request; 0: none
	LimitRequired bool      // the dialect requires a limit, so that MaxTokens is ignored
	Tools         bool      // the request offers tools or functions
	// Count returns the exact prompt tokens, or false if they are unknown. It is called at most
	// once; nil: never count.
	Count func() (int64, bool)
	// User returns the last user turn, at most its first and last TextLimit bytes. The
	// classifier does not change the bytes. nil: none.
	User func() []byte
	// System returns the system text, cut in the same way. It is called only if a keyword
	// searches it; nil: none.
	System func() []byte
	// Features returns the features of the request for the model; it is called only if there is one. nil: none.
	Features func() *tierscore.Features

	Tenant  uint64   // hash of the tenant; separates its scores from those of others
	Session uint64   // hash of tenant and session key; 0: none
	Turns   []uint64 // hashes of tenant and chat at the end of each message, oldest first

	recorded *recorded // replaces the texts if they are no longer available; nil: they are
}

// count returns the exact tokens of the prompt.
func (f *ClassifierInput) count() (int64, bool) {
	if f.Count == nil {
		return 0, false
	}
	return f.Count()
}

// features returns the features of the request, or nil.
func (f *ClassifierInput) features() *tierscore.Features {
	if f.Features == nil {
		return nil
	}
	return f.Features()
}

// text returns the result of f, or nil if f is nil.
func text(f func() []byte) []byte {
	if f == nil {
		return nil
	}
	return f()
}
