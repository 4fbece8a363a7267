package routing

// The kinds of a key by which a hashing policy places a request, as in Choice.KeyOf.
const (
	KeySession = "session" // an ID of a session, user or chat
	KeyHeader  = "header"  // the value of a configured header
	KeyModel   = "model"   // the model name that the worker receives
	KeyPrefix  = "prefix"  // the beginning of the prompt
	KeyBody    = "body"    // the whole body of the request
	keyNone    = "none"
)

// UsesKeys reports whether a policy of the configuration places requests by Request.Key.
func (c Config) UsesKeys() bool {
	return c.Includes("consistent_hash") || c.Includes("rendezvous_hash")
}

// keySource is how consistent_hash and rendezvous_hash find the key of a request.
type keySource struct {
	of       string // KeySession, KeyHeader or KeyModel
	fallback string // of a request without a session: KeyPrefix, KeyBody or keyNone
}

func newKeySource(c Config) keySource {
	s := keySource{of: KeySession, fallback: KeyPrefix}
	if c.Key != "" {
		s.of = c.Key
	}
	if c.FallbackKey != "" {
		s.fallback = c.FallbackKey
	}
	return s
}

// find returns the key of the request for the policy p, and its kind; "" if it has none.
func (s keySource) find(p Policy, r *Request) (of string, key uint64) {
	if c := r.recalled(p); c != nil {
		if !s.uses(c.KeyOf) {
			return "", 0 // the record has a key of the request that this policy does not use
		}
		return c.KeyOf, uint64(c.Key)
	}
	switch {
	case s.of == KeyModel && r.Model != 0:
		return KeyModel, r.Model
	case r.Key != 0 && s.uses(r.KeyOf):
		return r.KeyOf, r.Key
	case s.of != KeySession || s.fallback != KeyPrefix:
		return "", 0
	case r.Prefix != 0:
		return KeyPrefix, r.Prefix
	case len(r.Blocks) > 0:
		return KeyPrefix, r.Blocks[0].Hash
	}
	return "", 0
}

// uses reports whether a key of that kind can determine the worker.
func (s keySource) uses(of string) bool {
	if s.of != KeySession {
		return of == s.of
	}
	return of == KeySession || of == KeyBody || of == KeyPrefix && s.fallback == KeyPrefix
}

// homeReasons are the reasons of a choice by a key.
func homeReasons() []Reason {
	return []Reason{ReasonSessionPin, ReasonSessionHome, ReasonHeaderHome, ReasonModelHome, ReasonPrefixHome,
		ReasonBodyHome}
}

// homeReason returns the reason of a choice by a key of that kind.
func homeReason(of string) Reason {
	switch of {
	case KeySession:
		return ReasonSessionHome
	case KeyHeader:
		return ReasonHeaderHome
	case KeyModel:
		return ReasonModelHome
	case KeyBody:
		return ReasonBodyHome
	}
	return ReasonPrefixHome
}

// recordKey records the key of a pick that is recorded.
func (r *Request) recordKey(of string, key uint64) {
	if r.Record != nil {
		r.Record.Key, r.Record.KeyOf = Hash(key), of
	}
}
