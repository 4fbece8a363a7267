package kvevents

import (
	"strings"

	"github.com/cespare/xxhash/v2"
)

// Batch is the content of one message.
type Batch struct {
	Time     float64 // Unix time in seconds at which the engine made the batch
	Events   []Event // valid until the next Decode
	Rejected [reasonCount]int
}

// Kind is what an event reports.
type Kind uint8

// The kinds of events.
const (
	Stored  Kind = iota + 1 // blocks are in the cache
	Removed                 // blocks left one medium of the cache
	Cleared                 // all blocks of all media left the cache
)

// Event is one change of an engine's cache.
type Event struct {
	Kind   Kind
	Medium Medium
	Attention
	Group int // KV-cache group; 0 if the event does not state one

	Hashes []uint64 // of the blocks, in the order of the prompt

	// Fields of Stored.
	Parent    uint64   // hash of the block before the first one, if HasParent
	HasParent bool     // false: the first block begins a prompt
	Tokens    []uint32 // BlockSize for each block; empty if the blocks were copied to another medium
	BlockSize int
	Extra     []uint64 // hash of each block's identity besides its tokens, see ExtraKey; nil means 0 for all
}

// Medium is where a block is kept. Engines name media in many ways; see mediumOf.
type Medium uint8

// The media, fastest first.
const (
	GPU Medium = iota
	CPU
	Disk
	mediumCount
)

// String is the medium's name in metrics.
func (m Medium) String() string { return [mediumCount]string{"gpu", "cpu", "disk"}[m] }

// mediumOf classifies an engine's name of a medium, such as GPU, CPU_TIER1, STORAGE or
// device(type='cuda', index=0). An unknown name means the GPU: an engine with one
// medium keeps its blocks there.
func mediumOf(name []byte) Medium {
	contains := func(part string) bool { return containsFold(name, part) }
	switch {
	case contains("cpu"), contains("host"), contains("dram"):
		return CPU
	case contains("disk"), contains("storage"), contains("file"), contains("nvme"), equalFold(name, "fs"),
		equalFold(name, "obj"), contains("remote"):
		return Disk
	}
	return GPU
}

// Attention is the kind of attention of a KV-cache group. A prefix is cached if each full group has its
// blocks, and each sliding group has the blocks of its last window.
type Attention struct {
	Sliding bool // the group keeps the last Window tokens only
	Other   bool // the group's blocks do not represent a prefix, such as the state of Mamba layers
	Window  int  // tokens; 0 if not stated
}

// attentionOf classifies the name of a group's kind. An empty name means full attention.
func attentionOf(name []byte) (a Attention) {
	switch {
	case containsFold(name, "sliding"), containsFold(name, "chunked"):
		a.Sliding = true
	case len(name) > 0 && !containsFold(name, "full") && !containsFold(name, "mla") && !containsFold(name, "sink"):
		a.Other = true
	}
	return a
}

// Reason is the reason for the rejection of an event.
type Reason uint8

// The reasons.
const (
	Malformed      Reason = iota // a field has another type than engines send, or is missing
	Unknown                      // the event's type is not known
	WrongLength                  // the number of tokens is not that of the blocks
	SelfParent                   // a block is its own parent
	Elsewhere                    // the blocks are on another worker
	UnnamedAdapter               // stored blocks of a LoRA adapter without its name, which requests state
	reasonCount
)

// ExtraKey is the [Event].Extra of a block: the hash of the names that belong to its identity besides its
// tokens. These are the LoRA adapter, and for the first block of a prompt the cache salt. The order of
// names does not matter, and empty names are skipped. 0 means no names.
func ExtraKey(names ...string) (key uint64) {
	for _, n := range names {
		if n != "" {
			key += xxhash.Sum64String(n)
		}
	}
	return key
}

// equalFold compares with a lower-case ASCII word.
func equalFold(b []byte, word string) bool { return len(b) == len(word) && containsFold(b, word) }

// containsFold finds a lower-case ASCII word in a text of any case.
func containsFold(b []byte, word string) bool {
	for ; len(b) >= len(word); b = b[1:] {
		if strings.EqualFold(string(b[:len(word)]), word) {
			return true
		}
	}
	return false
}
