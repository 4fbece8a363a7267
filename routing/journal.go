package routing

import (
	"encoding/binary"
	"time"
)

// journal is what this gateway has to publish: the prompts and answers that workers have cached by the routing
// history, and changes of pins. It is kept as text, in the form that is sent.
type journal struct {
	on      bool
	text    []byte
	epoch   int32 // from 1 on; what was published in an earlier epoch may be unknown to some gateway
	dropped int64 // entries that did not fit
}

// The kinds of entries. Numbers are little-endian, lengths and tokens are varints:
//
//	prompt   worker, hash of the block before (0: none), number of blocks, then each block's hash and tokens
//	answer   worker, hash of the prompt's last block, tokens
//	pin      key, worker before (0: none), worker
//	renewal  key, 0, worker
//
// Workers are hashes of their IDs.
const (
	entryPrompt = 1 + iota
	entryAnswer
	entryPin
	entryRenewal
)

const (
	// journalVersion is the version of an encoded journal. Gateways ignore journals of other versions.
	journalVersion = 1
	// maxJournal bounds the text that waits to be sent: a prompt of 2 MB, or a thousand turns of chats.
	maxJournal = 64 << 10
	// mostPins bounds the pins in one journal. While Redis is down, they wait in the pool.
	mostPins = 1000
)

// RecordJournal begins or ends the recording of a journal for other gateways. While it is on, the caller must call
// TakeJournal.
func (p *Pool) RecordJournal(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.journal.on != on {
		p.journal = journal{on: on, epoch: 1}
	}
}

// RepeatJournal makes the journal repeat the pins, and each prompt from its first block on, because some gateway may
// not know earlier entries. The caller calls it when a gateway has joined, or when the shared log was lost.
func (p *Pool) RepeatJournal(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.journal.epoch++
	for i := p.pins.newest; i != 0; i = p.pins.slots[i].older {
		if pin := &p.pins.slots[i]; now.Sub(pin.at) <= pinIdle {
			p.renewPinLocked(pin, now)
		}
	}
}

// TakeJournal appends the journal to dst and empties it. It appends nothing if the journal is empty.
// ConfirmJournal must follow once the shared log has the entries.
func (p *Pool) TakeJournal(dst []byte) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	j := &p.journal
	if j.takePins(&p.pins); len(j.text) > 0 {
		dst = append(append(dst, journalVersion), j.text...)
		j.text = j.text[:0]
	}
	return dst
}

// ConfirmJournal records that the shared log has all entries that were taken.
func (p *Pool) ConfirmJournal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pins.confirmSent()
}

// JournalDropped returns the number of entries that were not published, because too many waited.
func (p *Pool) JournalDropped() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.journal.dropped
}

// fitsEntry reports whether an entry of that length fits, and counts it as dropped otherwise.
func (j *journal) fitsEntry(length int) bool {
	if !j.on {
		return false
	}
	if len(j.text)+length > maxJournal {
		j.dropped++
		return false
	}
	return true
}

// appendHead appends the kind and the two hashes with which every entry begins.
func (j *journal) appendHead(kind byte, first, second uint64) {
	j.text = append(j.text, kind)
	j.text = binary.LittleEndian.AppendUint64(j.text, first)
	j.text = binary.LittleEndian.AppendUint64(j.text, second)
}

// addPrompt adds a prompt without its first known blocks, and returns the epoch in which it is published: 0 if it
// does not fit.
func (j *journal) addPrompt(w *Worker, prompt []promptBlock, known int) (epoch int32) {
	if !j.fitsEntry(20 + len(prompt[known:])*13) {
		return 0
	}
	before := uint64(0)
	if known > 0 {
		before = prompt[known-1].hash
	}
	j.appendHead(entryPrompt, w.idHash, before)
	j.text = binary.AppendUvarint(j.text, uint64(len(prompt)-known))
	for _, b := range prompt[known:] {
		j.text = binary.LittleEndian.AppendUint64(j.text, b.hash)
		j.text = binary.AppendUvarint(j.text, uint64(max(0, b.tokens)))
	}
	return j.epoch
}

func (j *journal) addAnswer(w *Worker, last uint64, tokens int64) {
	if j.fitsEntry(27) {
		j.appendHead(entryAnswer, w.idHash, last)
		j.text = binary.AppendUvarint(j.text, uint64(min(max(0, tokens), maxBooked)))
	}
}

// publishPinLocked adds the change of a pin.
func (p *Pool) publishPinLocked(pin *pin, now time.Time) {
	if p.journal.on && len(p.pins.waiting) < maxPins {
		p.pins.waiting = append(p.pins.waiting, pinEntry{key: pin.key, before: pin.expected, worker: pin.worker})
		pin.expected, pin.publishedAt = pin.worker, now
		pin.unlogged++
	}
}

// renewPinLocked adds the renewal of a pin.
func (p *Pool) renewPinLocked(pin *pin, now time.Time) {
	if p.journal.on && len(p.pins.waiting) < maxPins {
		p.pins.waiting = append(p.pins.waiting, pinEntry{key: pin.key, renewal: true})
		pin.publishedAt = now
	}
}

// takePins appends the entries of waiting pins, of which it takes at most mostPins. A renewal has the worker that the
// log had last.
func (j *journal) takePins(s *pins) {
	n := min(len(s.waiting), mostPins)
	for _, t := range s.waiting[:n] {
		kind := byte(entryPin)
		if t.renewal {
			i, ok := s.byKey[t.key]
			if !ok || s.slots[i].logged == 0 {
				continue
			}
			kind, t.worker = entryRenewal, s.slots[i].logged
		}
		j.appendHead(kind, t.key, t.before)
		j.text = binary.LittleEndian.AppendUint64(j.text, t.worker)
		s.sent = append(s.sent, t)
	}
	if s.waiting = s.waiting[n:]; len(s.waiting) == 0 {
		s.waiting = nil
	}
}

// ApplyJournal applies the journal of another gateway, which was written at that time. It returns an error if the
// journal cannot be read, after it has applied the entries before the fault. Entries about unknown workers, and
// prompts that continue unknown ones, have no effect.
func (p *Pool) ApplyJournal(at time.Time, text []byte) error {
	r := messageReader{text: text}
	if r.byte() != journalVersion {
		return errMessage
	}
	for len(r.text) > 0 && !r.wrong {
		if err := p.applyEntry(&r, at); err != nil {
			return err
		}
	}
	if r.wrong {
		return errMessage
	}
	return nil
}

// applyEntry applies one entry. It holds the lock for no longer than that, so that requests do not wait for a whole
// journal.
func (p *Pool) applyEntry(r *messageReader, at time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch kind, first, second := r.byte(), r.uint64(), r.uint64(); kind {
	case entryPrompt:
		p.readPromptLocked(r, first, second, at)
	case entryAnswer:
		tokens := int64(r.boundedNumber(maxBooked))
		if w := p.modelledLocked(first); w != nil && !r.wrong {
			p.caches.recordAnswer(second, tokens, w.column)
		}
	case entryPin, entryRenewal:
		if to := r.uint64(); !r.wrong {
			p.applyPinLocked(first, second, to, kind == entryRenewal, at)
		}
	default:
		return errMessage
	}
	return nil
}

// modelledLocked returns the worker with that hash of its ID, if the pool models its cache.
func (p *Pool) modelledLocked(hash uint64) *Worker {
	if w := p.findHashLocked(hash); w != nil && w.column < modelWorkers {
		return w
	}
	return nil
}

// readPromptLocked reads the rest of a prompt's entry and records the prompt.
func (p *Pool) readPromptLocked(r *messageReader, worker, before uint64, at time.Time) {
	w := p.modelledLocked(worker)
	p.received = p.received[:0]
	unknown, epoch := false, p.journal.epoch
	if w != nil && before != 0 {
		p.received = p.caches.appendChain(p.received, before, w.column)
		if unknown = len(p.received) == 0; !unknown {
			// If some gateway may lack the blocks before, it lacks the new ones too.
			epoch = p.caches.blocks[p.caches.find(before, w.column)].epoch
		}
	}
	for range r.partCount(len(r.text)) {
		hash, tokens := r.uint64(), int32(r.boundedNumber(1<<30))
		p.received = append(p.received, promptBlock{hash, tokens})
	}
	if w == nil || unknown || r.wrong || len(p.received) == 0 {
		return
	}
	p.caches.record(p.received, epoch, w.column, at)
	p.learnKeysLocked(p.received, at)
}

// learnsKeys is a Policy with keys that follow the traffic of all gateways.
type learnsKeys interface {
	// learnKeys learns from a request that another gateway has placed. workers is the number of workers in use.
	learnKeys(now time.Time, chain []Block, workers int)
}

// learnKeysLocked lets the policy learn from the prompt of another gateway.
func (p *Pool) learnKeysLocked(prompt []promptBlock, at time.Time) {
	policy, ok := p.policy.(learnsKeys)
	if !ok {
		return
	}
	p.receivedChain = p.receivedChain[:0]
	for _, b := range prompt {
		p.receivedChain = append(p.receivedChain, Block{Hash: b.hash})
	}
	up := 0
	for _, w := range p.workers {
		if w.status.Up && w.weight > 0 {
			up++
		}
	}
	policy.learnKeys(at, p.receivedChain, max(1, up))
}
