package prompttokens

import (
	"context"
	"slices"
	"sync"
	"time"

	"tierway/openai"
)

// Some prompts that were rendered in parts are also rendered as a whole, to compare the tokens: the first
// ones of a source, and each 64th after that. Most templates that depend on earlier messages differ in the
// first requests.
const (
	firstCompared = 16
	comparedEvery = 64

	// wholeFor is the time for which messages are rendered together after a difference. Some templates
	// contain the date, and differ once a day; others always differ.
	wholeFor = time.Hour
)

// job is a prompt that is being tokenized, for all look-ups of the same prompt.
type job struct {
	blocks []uint64 // keys of the chain
	ends   []int    // the blocks that end messages

	kind    kind
	dialect openai.Dialect
	path    string
	size    int                 // bytes of the members
	source  [memberCount][]byte // the members, as the client has sent them until prepare
	effort  string              // of reasoning; "" is none
	body    []byte              // the request for the whole prompt
	plain   bool                // without the special tokens that the tokenizer adds

	// Parts of body, as raw JSON.
	model, messages, text, tools, arguments []byte

	translated []turn // the messages of another dialect; nil: those of messages
	divisible  bool
	inline     bool   // Messages with system messages behind others
	template   uint64 // hash of model and arguments

	queued time.Time
	once   sync.Once
	done   chan struct{} // closed when the prompt is known, or cannot be
	ok     bool          // written before done is closed
}

// await starts the tokenization of a prompt, or joins it, and waits. It returns false if the prompt
// is still not known.
func (s *Source) await(ctx context.Context, q *Query, f *fields) bool {
	j := s.joinJob(q, f)
	if j == nil {
		return false
	}
	timeout := s.patience()
	if timeout <= 0 && !isClosed(j.done) {
		s.counts.timedOut.Add(1)
		return false
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-j.done:
		return j.ok
	case <-timer.C:
		s.counts.timedOut.Add(1)
	case <-ctx.Done():
	}
	return false
}

// joinJob returns the job of a prompt, and queues it if it is new. It returns nil if the prompt cannot be
// tokenized now.
func (s *Source) joinJob(q *Query, f *fields) *job {
	key := mix(q.Chain[len(q.Chain)-1].Hash, seedOf(q, f))
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.flights[key]; j != nil {
		return j
	}
	local := s.c.Tokenizer != nil && q.Request.Dialect == openai.Completions && !f.renderOnly
	if !local && !s.gates[f.kind()].isOpen() {
		return nil
	}
	if len(s.jobs) == cap(s.jobs) {
		s.counts.busy.Add(1)
		return nil
	}
	j := newJob(q, f)
	if s.waitingBytes > 0 && s.waitingBytes+j.size > maxWaitingBytes {
		s.counts.busy.Add(1)
		return nil
	}
	s.waitingBytes += j.size
	s.flights[key], j.queued = j, time.Now()
	s.jobs <- j // only this function sends, under the lock
	return j
}

// finish ends a job, and wakes the look-ups that wait for it.
func (s *Source) finish(j *job) {
	j.once.Do(func() {
		s.mu.Lock()
		delete(s.flights, j.blocks[len(j.blocks)-1])
		s.waitingBytes -= j.size
		s.mu.Unlock()
		close(j.done)
	})
}

// succeed is finish for a prompt that is known.
func (s *Source) succeed(j *job) {
	s.pace.record(time.Since(j.queued))
	j.ok = true
	s.finish(j)
}

func (s *Source) resolve(ctx context.Context, j *job) {
	if !j.prepare() || j.inline && !s.placeInline(ctx, j) {
		s.counts.failed.Add(1)
		return
	}
	if j.text != nil && s.c.Tokenizer != nil {
		s.addPrompt(j, s.c.Tokenizer.EncodePrompt(nil, unquote(j.text), !j.plain), nil, false)
		s.succeed(j)
		return
	}
	messages := s.divide(j)
	if tokens, exact := s.resolveEnd(ctx, j, messages); tokens != nil {
		s.succeed(j)
		if s.compare(ctx, j, tokens) {
			s.learn(ctx, j, messages, tokens, exact)
		}
		return
	}
	tokens, err := s.requestTokens(ctx, j.path, j.body)
	if g := &s.gates[j.kind]; g.recordResult(err) && s.refusesProbe(ctx, j) && g.close() {
		s.c.Log.Info("engines do not tokenize a kind of prompts at "+j.path+"; they are routed without exact blocks",
			"chats", j.kind == chatKind, "retry", retryUnsupported, "cause", err.Error())
	}
	if err != nil {
		s.counts.failed.Add(1)
		return
	}
	suffix, exact := s.knownStart(j, messages, tokens)
	s.addPrompt(j, tokens, suffix, exact)
	s.succeed(j)
	if messages != nil {
		s.learn(ctx, j, messages, tokens, exact)
	}
}

// divide returns the messages of a chat; nil if they must be rendered together.
func (s *Source) divide(j *job) []turn {
	if !j.divisible || !s.divides() {
		return nil
	}
	m := j.turns()
	if len(m) == 0 || len(m) != len(j.ends) {
		return nil
	}
	return m
}

// addPrompt adds a prompt to the memo.
func (s *Source) addPrompt(j *job, tokens, suffix []uint32, exact bool) {
	if !s.memo.put(j.blocks, tokens, suffix, exact && s.divides()) {
		s.mismatch(j, tokens)
	}
}

// divides reports whether messages may be rendered in parts.
func (s *Source) divides() bool { return time.Now().UnixNano() >= s.wholeUntil.Load() }

// mismatch discards all known tokens and suspends parts, after a prompt that contradicts an earlier one.
func (s *Source) mismatch(j *job, tokens []uint32) {
	s.suspendParts()
	s.forget()
	s.memo.put(j.blocks, tokens, nil, false)
}

// suspendParts makes the source tokenize all prompts as a whole for wholeFor.
func (s *Source) suspendParts() {
	s.counts.mismatched.Add(1)
	if s.divides() {
		s.c.Log.Info("the tokens of a prompt differ from those of its earlier messages; prompts are tokenized as a whole",
			"for", wholeFor)
	}
	s.wholeUntil.Store(time.Now().Add(wholeFor).UnixNano())
	s.inParts.Store(0)
}

// forget removes all known tokens of prompts, and the message ends of the template.
func (s *Source) forget() {
	s.memo.clear()
	s.ends.clear()
}

// resolveEnd tokenizes the messages behind the last one with known tokens. It returns nil if there is none, or they
// cannot be rendered alone. exact is that of knownStart.
func (s *Source) resolveEnd(ctx context.Context, j *job, messages []turn) (tokens []uint32, exact bool) {
	if messages == nil {
		return nil, false
	}
	begin, at := s.memo.findExact(j.blocks)
	if at < 0 {
		return nil, false
	}
	known, found := slices.BinarySearch(j.ends, at)
	if !found || known+1 >= len(messages) {
		return nil, false
	}
	role := messages[known].role
	m := s.probeMessageEnd(ctx, j, role)
	if !m.holds {
		return nil, false
	}
	part := append([]turn{probeTurn(role, probeContents()[0])}, messages[known+1:]...)
	end, err := s.requestTokens(ctx, tokenizePath, j.part(part, true, false))
	if err != nil {
		return nil, false
	}
	if commonPrefix(m.first, end) < len(m.first) {
		s.renew(ctx, j, role, m)
		return nil, false
	}
	tokens = slices.Concat(begin, end[len(m.first):])
	suffix, exact := s.knownStart(j, messages, tokens)
	s.addPrompt(j, tokens, suffix, exact)
	return tokens, exact
}

// renew discards all known tokens and probes a message end again, after a chat did not begin with the tokens of the
// first probe. If the probe begins with other tokens too, such as the date of a new day, the source starts
// again with it. Otherwise the template depends on the messages that follow, and parts are suspended.
func (s *Source) renew(ctx context.Context, j *job, role string, was messageEnd) {
	s.forget()
	if now := s.probeMessageEnd(ctx, j, role); now.holds && slices.Equal(now.first, was.first) {
		s.suspendParts()
	}
}

// compare renders some prompts as a whole that were rendered in parts, and compares the tokens. It returns false after
// a difference.
func (s *Source) compare(ctx context.Context, j *job, tokens []uint32) (equal bool) {
	s.counts.parts.Add(1)
	if n := s.inParts.Add(1); n > firstCompared && n%comparedEvery != 0 {
		return true
	}
	whole, err := s.requestTokens(ctx, j.path, j.body)
	if err == nil && !slices.Equal(whole, tokens) {
		s.mismatch(j, whole)
		return false
	}
	return true
}

// knownStart returns the tokens at a prompt's end that begin the answer, if the message end of its last
// message is known. exact reports whether it is.
func (s *Source) knownStart(j *job, messages []turn, tokens []uint32) (suffix []uint32, exact bool) {
	if messages == nil {
		return nil, false
	}
	m, ok := s.ends.get(messageEndKey{j.template, messages[len(messages)-1].role})
	if !ok || !m.holds || !endsWith(tokens, m.start) {
		return nil, false
	}
	return m.start, true
}

func endsWith(tokens, end []uint32) bool {
	return len(tokens) > len(end) && slices.Equal(tokens[len(tokens)-len(end):], end)
}

// learn finds where the prompt ends before the answer, and where its system message ends. Longer chats and
// other chats then need to send only their further messages.
func (s *Source) learn(ctx context.Context, j *job, messages []turn, tokens []uint32, exact bool) {
	if !exact {
		m := s.probeMessageEnd(ctx, j, messages[len(messages)-1].role)
		if m.holds && endsWith(tokens, m.start) {
			s.addPrompt(j, tokens, m.start, true)
		}
	}
	role := messages[0].role
	if len(messages) < 2 || role != "system" && role != "developer" || s.memo.proved(j.blocks[j.ends[0]]) ||
		!s.probeMessageEnd(ctx, j, role).holds {
		return
	}
	if begin, err := s.requestTokens(ctx, tokenizePath, j.part(messages[:1], false, true)); err == nil {
		s.memo.prove(j.blocks[j.ends[0]], begin)
	}
}
