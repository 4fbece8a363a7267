package openai

import "github.com/cespare/xxhash/v2"

// Sizes of a chain. They are part of what gateways agree on: changing one
// changes every hash.
const (
	// blockBytes is the text of a block, about 128 tokens. Where two prompts
	// part inside a text, half a block on average counts as not shared: 64
	// tokens, 8 ms of prefill at 8,000 tokens a second, which is less than a
	// queue is off. A chat of 8 KB has some thirty blocks.
	blockBytes = 512

	// messageBytes is what a message adds beside its text: the role and the
	// marks that a chat template puts around it are about four tokens.
	messageBytes = 16

	// idBytes is what a token id counts as, four characters as in the estimate
	// of the prompt's tokens.
	idBytes = 4

	// maxBlocks ends a chain: 2 MiB of plain text, which is half a million
	// tokens. What follows is in no block, so that neither a huge body nor a
	// table of blocks costs without bound; prompts that differ only there have
	// one chain.
	maxBlocks = 4096

	// maxNesting is how many contents inside contents are cut into blocks; a
	// tool result in a message has two. What lies deeper is hashed as one value,
	// because each level is read once more.
	maxNesting = 4
)

// ChainBlock is one node of a prompt's chain.
type ChainBlock struct {
	// Hash stands for all of the prompt from its beginning to the block's end.
	Hash uint64
	// End is how many characters of the prompt there are up to the block's end:
	// bytes of decoded text without media, 4 for a token id, and 16 for each
	// message that has ended. It grows from block to block.
	End int64
	// Message says that the block ends a message.
	Message bool
}

// AppendChain appends the chain of the prompt's blocks to dst and returns it
// with the number of blocks up to and including the first message of a user,
// which are all that were appended when there is none. The chain of a request
// without a prompt, of a form and of the dialect Other is empty.
//
// Two prompts have blocks in common up to where they first differ. Tools come
// first, then the system text, then each message. A block ends with every
// message and after each 512 bytes of one message's text, counted from its own
// beginning, so that a chat that has grown by a turn has the earlier chain as
// its exact beginning. White space, the order of an object's members, the
// spelling of escapes, members that are null, Anthropic's cache_control and its
// clients' billing header make no difference, nor does a text that is given as one part of type text. All
// else does: a character, a role, the order of messages and of tools, the id of
// a call, a number's spelling, an image's address or data. Sampling parameters
// are not part of the prompt. A chain has at most 4,096 blocks.
//
// It begins with seed, into which the caller mixes what else tells prompts
// apart (ChainSeed); then comes the response or conversation that the request
// continues, and its cache_salt. Of several prompts in one array the first
// stands for all, as they go to one worker and mostly begin alike; a rerank's
// or score's prompt is its query.
//
// The hashes are the same in every process and on every machine. They are not
// keyed: a client who wants two prompts of one hash can make them. Choose
// workers and count by them, but serve nobody an answer, and let nobody into
// anything, because of an equal hash.
func (r *Request) AppendChain(dst []ChainBlock, seed uint64) (chain []ChainBlock, first int) {
	c := chainer{digester: digester{cursor: cursor{b: r.Body}}, hash: mix(saltSeed, seed), chain: dst, base: len(dst), first: -1}
	if r.place.form || r.Dialect == Other {
		return dst, 0
	}
	if r.PreviousResponseID != "" {
		c.hash = mix(mix(c.hash, saltResponse), xxhash.Sum64String(r.PreviousResponseID))
	}
	if r.ConversationID != "" {
		c.hash = mix(mix(c.hash, saltConversation), xxhash.Sum64String(r.ConversationID))
	}
	c.prompt(r.Dialect, &r.place)
	if c.first < 0 {
		c.first = len(c.chain) - c.base
	}
	return c.chain, c.first
}

// chainer makes one chain.
type chainer struct {
	digester
	hash  uint64
	end   int64
	open  int // characters since the last block's end, fewer than blockBytes inside a message
	chain []ChainBlock
	base  int // blocks that were there before
	first int // blocks up to the first user's message, -1 before it
	full  bool

	billing bool // parts that begin with billingMark are none
}

// prompt reads the fields of the dialect that shape its prompt, in the order in
// which engines render them.
func (c *chainer) prompt(d Dialect, at *places) {
	if from := at.of(fieldCacheSalt); from > 0 {
		c.i = from
		c.hash = mix(mix(c.hash, saltCache), c.value(readNothing))
	}
	switch d {
	case Chat:
		c.tools(at.of(fieldTools), saltTool)
		c.tools(at.of(fieldFunctions), saltFunction)
		c.messages(at.of(fieldMessages))
	case Messages:
		c.tools(at.of(fieldTools), saltTool)
		c.billing = true
		c.system(at.of(fieldSystem))
		c.billing = false
		c.messages(at.of(fieldMessages))
	case Responses:
		c.tools(at.of(fieldTools), saltTool)
		c.system(at.of(fieldInstructions))
		c.system(at.of(fieldPrompt))
		c.input(at.of(fieldInput))
	case Completions:
		c.raw(at.of(fieldPrompt))
		c.embeds(at.of(fieldPromptEmbeds))
		c.raw(at.of(fieldSuffix))
	case Tokenize:
		c.tools(at.of(fieldTools), saltTool)
		c.messages(at.of(fieldMessages))
		c.raw(at.of(fieldPrompt))
	case Embeddings:
		c.messages(at.of(fieldMessages))
		c.raw(at.of(fieldInput))
	case Rerank, Score:
		c.raw(at.of(fieldQuery))
		c.raw(at.of(fieldQueries))
		c.raw(at.of(fieldText1))
	case Moderations:
		c.raw(at.of(fieldInput))
	case Images:
		c.raw(at.of(fieldPrompt))
	case Audio:
		c.system(at.of(fieldInstructions))
		c.raw(at.of(fieldInput))
	}
}

// emit ends a block.
func (c *chainer) emit(message bool) {
	if c.full {
		return
	}
	c.chain = append(c.chain, ChainBlock{Hash: c.hash, End: c.end, Message: message})
	c.open = 0
	c.full = len(c.chain)-c.base == maxBlocks
}

// grow counts n characters that the hash has taken in, and ends the block that
// is full.
func (c *chainer) grow(n int64) {
	c.end += n
	// What is longer than a block is one value, and fills its block at once.
	c.open += int(min(n, blockBytes))
	if c.open >= blockBytes {
		c.emit(false)
	}
}

// role begins a message.
func (c *chainer) role(name string) {
	c.hash = mix(mix(c.hash, saltRole), xxhash.Sum64String(name))
}

// finish ends a message.
func (c *chainer) finish(user bool) {
	c.hash = mix(c.hash, saltEnd)
	c.end += messageBytes
	c.emit(true)
	if user && c.first < 0 && !c.full {
		c.first = len(c.chain) - c.base
	}
}

// tools reads the array of tools or functions at from. They are shown to the
// model before all messages, so they close blocks of their own.
func (c *chainer) tools(from int, kind uint64) {
	if from == 0 {
		return
	}
	c.i = from
	if c.b[c.i] != '[' {
		c.tool(kind)
	} else {
		for c.enter(); !c.full && c.more(']'); {
			c.tool(kind)
		}
	}
	if c.open > 0 {
		c.emit(false)
	}
}

func (c *chainer) tool(kind uint64) {
	c.size = 0
	var h uint64
	if c.b[c.i] == '{' {
		h = c.object(readAll, true)
	} else {
		h = c.value(readAll)
	}
	c.hash = mix(mix(c.hash, kind), h)
	c.grow(max(c.size, 1))
}

// system reads a system text, which is a string or an array of parts.
func (c *chainer) system(from int) {
	if from == 0 || c.full {
		return
	}
	c.i = from
	c.role("system")
	c.content(1)
	c.finish(false)
}

// input reads the input of Responses: a string stands for one message of the
// user.
func (c *chainer) input(from int) {
	if from == 0 || c.full {
		return
	}
	if c.b[from] == '[' {
		c.messages(from)
		return
	}
	c.i = from
	c.role("user")
	c.content(1)
	c.finish(true)
}

// messages reads an array of messages or items.
func (c *chainer) messages(from int) {
	if from == 0 || c.full {
		return
	}
	c.i = from
	for c.enter(); !c.full && c.more(']'); {
		user := false
		if c.b[c.i] == '{' {
			user = c.node(1)
		} else {
			c.content(1)
		}
		c.finish(user)
	}
}

// raw reads a prompt without messages: a string, token ids, parts, or an array
// of such, of which it takes the first.
func (c *chainer) raw(from int) {
	if from == 0 || c.full {
		return
	}
	c.i = from
	if c.b[c.i] == '[' {
		if first := c.peek(); first == '"' || first == '[' {
			c.enter()
			c.space()
		}
	}
	if c.b[c.i] == '[' && c.peek() != '{' {
		c.ids()
	} else {
		c.content(1)
	}
	c.finish(true)
}

// embeds reads a prompt that stands for itself and has no characters.
func (c *chainer) embeds(from int) {
	if from == 0 || c.full {
		return
	}
	c.i = from
	c.hash = mix(mix(c.hash, saltEmbeds), c.value(readNothing))
	c.finish(true)
}
