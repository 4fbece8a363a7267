package kvevents

import (
	"errors"
	"fmt"
	"math"

	"github.com/cespare/xxhash/v2"
	"github.com/tinylib/msgp/msgp"
)

// ErrBatch is the error of a payload that is no batch of events.
var ErrBatch = errors.New("kvevents: not a batch of events")

// Bounds of one batch. A step of an engine that stores 8,192 blocks of 16 tokens in each of four
// KV-cache groups, and removes as many, is within them.
const (
	MaxEvents = 1 << 15
	MaxBlocks = 1 << 16 // of all events
	MaxTokens = 1 << 20 // of all events
)

// errTooLarge is the error of a batch over the bounds.
var errTooLarge = errors.New("more events, blocks or tokens than a batch may have")

// keptPayload is the largest payload, in bytes, of which Decode keeps the buffers for the next one.
const keptPayload = 64 << 10

// Decoder decodes payloads one after another. The zero value is ready for use. It must not be
// used by two goroutines at a time.
type Decoder struct {
	batch  Batch
	event  Event
	hashes []uint64
	extra  []uint64
	tokens []uint32
	raw    rawEvent
	large  bool // the last payload was over keptPayload
}

// rawEvent has the fields of an event before they are checked.
type rawEvent struct {
	kind      []byte
	adapter   []byte // name of the LoRA adapter
	adapterID int    // its number in the engine; 0 if there is none
	salt      []byte
	extraKeys []byte // MessagePack
	attention []byte // name of the group's kind
	window    int
	remote    bool
}

// errMalformed is the error of a field that has another type than engines send.
var errMalformed = errors.New("malformed")

// Decode decodes one payload. The batch and its events are valid until the next call. An error is an
// [ErrBatch].
func (d *Decoder) Decode(payload []byte) (*Batch, error) {
	d.Trim()
	d.large = len(payload) > keptPayload
	d.batch = Batch{Events: d.batch.Events[:0]}
	d.hashes, d.extra, d.tokens = d.hashes[:0], d.extra[:0], d.tokens[:0]
	var err error
	switch msgp.NextType(payload) {
	case msgp.ArrayType:
		err = d.positionalBatch(payload)
	case msgp.MapType:
		_, err = eachField(payload, func(key []byte, b []byte) ([]byte, error) { return d.batchField(string(key), b) })
	default:
		err = errMalformed
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBatch, err)
	}
	return &d.batch, nil
}

// Trim frees the buffers that a large payload has left; the last batch is not valid any more. Decode
// calls it too, but the next payload may be long in coming.
func (d *Decoder) Trim() {
	if d.large {
		*d = Decoder{}
	}
}

// positionalBatch decodes [time, events, rank?] and skips later elements, which newer engines have added.
func (d *Decoder) positionalBatch(b []byte) error {
	n, b, err := msgp.ReadArrayHeaderBytes(b)
	if err != nil || n < 2 {
		return orMalformed(err)
	}
	for i := range n {
		name := ""
		if i < 2 {
			name = [2]string{"ts", "events"}[i]
		}
		if b, err = d.batchField(name, b); err != nil {
			return err
		}
	}
	return nil
}

func (d *Decoder) batchField(name string, b []byte) (rest []byte, err error) {
	switch name {
	case "ts":
		d.batch.Time, rest, err = readNumber(b)
		return rest, err
	case "events":
		return eachElement(b, d.eventOf)
	}
	return msgp.Skip(b)
}

// eventOf decodes one event and appends it to the batch, or counts the reason for its rejection.
func (d *Decoder) eventOf(b []byte) ([]byte, error) {
	rest, err := msgp.Skip(b)
	if err != nil {
		return nil, err
	}
	b = b[:len(b)-len(rest)]
	d.event, d.raw = Event{}, rawEvent{}
	switch msgp.NextType(b) {
	case msgp.ArrayType:
		err = d.positionalEvent(b)
	case msgp.MapType:
		_, err = eachField(b, func(key []byte, b []byte) ([]byte, error) { return d.eventField(string(key), b) })
	default:
		err = errMalformed
	}
	if errors.Is(err, errTooLarge) || len(d.batch.Events) == MaxEvents {
		return nil, errTooLarge
	}
	if reason, ok := d.accept(err); ok {
		d.batch.Events = append(d.batch.Events, d.event)
	} else {
		d.batch.Rejected[reason]++
	}
	return rest, nil
}

// accept completes and checks the event that was read.
func (d *Decoder) accept(err error) (Reason, bool) {
	e, r := &d.event, &d.raw
	if err != nil {
		return Malformed, false
	}
	switch string(r.kind) {
	case "BlockStored", "CacheStoreEvent":
		e.Kind = Stored
	case "BlockRemoved", "CacheRemoveEvent":
		e.Kind = Removed
	case "AllBlocksCleared":
		e.Kind = Cleared
		return 0, true
	case "":
		return Malformed, false
	default:
		return Unknown, false
	}
	e.Attention = attentionOf(r.attention)
	e.Window = r.window
	switch {
	case r.remote:
		return Elsewhere, false
	case e.Kind == Removed:
		return 0, true
	case e.HasParent && len(e.Hashes) > 0 && e.Parent == e.Hashes[0]:
		return SelfParent, false
	case r.adapterID != 0 && len(r.adapter) == 0:
		return UnnamedAdapter, false
	case len(e.Tokens) > 0 && e.BlockSize <= 0:
		return Malformed, false
	case !e.Sliding && !e.Other && len(e.Tokens) > 0 && len(e.Tokens) != len(e.Hashes)*e.BlockSize:
		return WrongLength, false
	}
	if err := d.readExtra(); err != nil {
		return Malformed, false
	}
	return 0, true
}

// positionalEvent decodes an event as an array: the type, then the fields in the order in which
// engines have added them.
func (d *Decoder) positionalEvent(b []byte) error {
	n, b, err := msgp.ReadArrayHeaderBytes(b)
	if err != nil || n == 0 {
		return orMalformed(err)
	}
	if d.raw.kind, b, err = readText(b); err != nil {
		return err
	}
	stored := [...]string{"block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name",
		"extra_keys", "group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window"}
	names := stored[:]
	switch string(d.raw.kind) {
	case "BlockRemoved":
		names = []string{"block_hashes", "medium", "group_idx"}
	case "AllBlocksCleared":
		names = nil
	}
	for i := range int(n) - 1 {
		name := ""
		if i < len(names) {
			name = names[i]
		}
		if b, err = d.eventField(name, b); err != nil {
			return err
		}
	}
	return nil
}

// eventField decodes a field by its name and skips unknown fields.
func (d *Decoder) eventField(name string, b []byte) (rest []byte, err error) {
	e, r := &d.event, &d.raw
	switch name {
	case "type":
		r.kind, rest, err = readText(b)
	case "block_hashes":
		at := len(d.hashes)
		rest, err = eachElement(b, func(b []byte) ([]byte, error) {
			if len(d.hashes) == MaxBlocks {
				return nil, errTooLarge
			}
			hash, rest, err := readHash(b)
			d.hashes = append(d.hashes, hash)
			return rest, err
		})
		e.Hashes = d.hashes[at:len(d.hashes):len(d.hashes)]
	case "parent_block_hash":
		if rest, isNil := skipNil(b); isNil {
			return rest, nil
		}
		e.HasParent = true
		e.Parent, rest, err = readHash(b)
	case "token_ids":
		rest, err = d.readTokens(b)
	case "block_size":
		e.BlockSize, rest, err = readCount(b, 0)
	case "lora_id":
		r.adapterID, rest, err = readCount(b, 0)
	case "medium":
		var medium []byte
		medium, rest, err = readText(b)
		e.Medium = mediumOf(medium)
	case "lora_name":
		if msgp.NextType(b) == msgp.MapType { // SGLang has its metadata in this position
			return eachField(b, func(key []byte, b []byte) ([]byte, error) { return d.metadata(string(key), b) })
		}
		r.adapter, rest, err = readText(b)
	case "cache_salt":
		r.salt, rest, err = readText(b)
	case "extra_keys":
		rest, err = msgp.Skip(b)
		r.extraKeys = b[:len(b)-len(rest)]
	case "group_idx":
		e.Group, rest, err = readCount(b, 0)
	case "kv_cache_spec_kind":
		r.attention, rest, err = readText(b)
	case "kv_cache_spec_sliding_window":
		r.window, rest, err = readCount(b, 0)
	case "locality":
		var locality []byte
		locality, rest, err = readText(b)
		r.remote = equalFold(locality, "remote")
	default:
		rest, err = msgp.Skip(b)
	}
	return rest, err
}

// metadata decodes a field of SGLang's metadata.
func (d *Decoder) metadata(name string, b []byte) ([]byte, error) {
	switch name {
	case "cache_salt", "lora_name":
		return d.eventField(name, b)
	}
	return msgp.Skip(b)
}

// readTokens reads token ids. An engine with EAGLE drafts sends pairs of ids instead; the first id of a pair
// is the token of the position.
func (d *Decoder) readTokens(b []byte) ([]byte, error) {
	at := len(d.tokens)
	rest, err := eachElement(b, func(b []byte) ([]byte, error) {
		if msgp.NextType(b) != msgp.ArrayType {
			return d.readToken(b)
		}
		n, b, err := msgp.ReadArrayHeaderBytes(b)
		if err != nil || n == 0 {
			return nil, orMalformed(err)
		}
		if b, err = d.readToken(b); err != nil {
			return nil, err
		}
		for range n - 1 {
			if b, err = msgp.Skip(b); err != nil {
				return nil, err
			}
		}
		return b, nil
	})
	d.event.Tokens = d.tokens[at:len(d.tokens):len(d.tokens)]
	return rest, err
}

func (d *Decoder) readToken(b []byte) ([]byte, error) {
	id, rest, err := msgp.ReadUint64Bytes(b)
	if err != nil || id > math.MaxUint32 {
		return nil, orMalformed(err)
	}
	if len(d.tokens) == MaxTokens {
		return nil, errTooLarge
	}
	d.tokens = append(d.tokens, uint32(id))
	return rest, nil
}

// readExtra computes the event's Extra from the adapter of each block, the salt of a prompt's first
// block and the extra keys. An adapter that the extra keys contain too counts once.
func (d *Decoder) readExtra() error {
	e, r := &d.event, &d.raw
	each := uint64(0)
	if len(r.adapter) > 0 {
		each = xxhash.Sum64(r.adapter)
	}
	b := r.extraKeys
	listed := 0
	if b != nil && !msgp.IsNil(b) {
		n, rest, err := msgp.ReadArrayHeaderBytes(b)
		if err != nil {
			return err
		}
		b, listed = rest, min(int(n), len(e.Hashes))
	}
	if each == 0 && len(r.salt) == 0 && listed == 0 {
		return nil
	}
	at := len(d.extra)
	for i := range e.Hashes {
		key, hasAdapter := uint64(0), false
		if i < listed {
			rest, err := eachElement(b, func(b []byte) ([]byte, error) {
				value, rest, err := readExtraValue(b)
				key += value
				hasAdapter = hasAdapter || value == each
				return rest, err
			})
			if err != nil {
				return err
			}
			b = rest
		}
		if !hasAdapter {
			key += each
		}
		if i == 0 && !e.HasParent && len(r.salt) > 0 {
			key += xxhash.Sum64(r.salt)
		}
		d.extra = append(d.extra, key)
	}
	e.Extra = d.extra[at:len(d.extra):len(d.extra)]
	return nil
}

// readExtraValue hashes one value of a block's extra keys: a name by its text, as ExtraKey does,
// and another value, such as the id and the offset of an image, by its encoding.
func readExtraValue(b []byte) (uint64, []byte, error) {
	rest, err := msgp.Skip(b)
	if err != nil {
		return 0, nil, err
	}
	if msgp.NextType(b) == msgp.StrType {
		text, _, err := msgp.ReadStringZC(b)
		return xxhash.Sum64(text), rest, err
	}
	return xxhash.Sum64(b[:len(b)-len(rest)]), rest, nil
}
