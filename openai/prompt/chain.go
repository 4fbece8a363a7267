package prompt

import (
	"github.com/cespare/xxhash/v2"

	"tierway/openai"
)

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

// Block is one node of a prompt's chain.
type Block struct {
	// Hash stands for all of the prompt from its beginning to the block's end.
	Hash uint64
	// End is how many characters of the prompt there are up to the block's end:
	// bytes of decoded text without media, 4 for a token id, and 16 for each
	// message that has ended. It grows from block to block.
	End int64
	// Message says that the block ends a message.
	Message bool
}

// AppendChain appends the chain of the request's prompt to dst and returns it with the
// number of blocks up to and including the first message of a user, which are all that
// were appended when there is none. The chain of a request without a prompt, of a form
// and of the dialect Other is empty.
//
// Two prompts have blocks in common up to where they first differ. Tools come
// first, then the system text, then each message. A block ends with every
// message and after each 512 bytes of one message's text, counted from its own
// beginning, so that a chat that has grown by a turn has the earlier chain as
// its exact beginning. White space, the order of an object's members, the
// spelling of escapes, members that are null, Anthropic's cache_control and its
// clients' billing header make no difference, nor does a text that is given as one part
// of type text. All else does: a character, a role, the order of messages and of tools,
// the id of a call, a number's spelling, an image's address or data. Sampling parameters
// are not part of the prompt. A chain has at most 4,096 blocks.
//
// It begins with seed, into which the caller mixes what else distinguishes prompts, such
// as a tenant's cache_salt; then comes the response or conversation that the request
// continues, and its own cache_salt. Of several prompts in one array the first
// stands for all, as they go to one worker and mostly begin alike; a rerank's
// or score's prompt is its query.
//
// The hashes are the same in every process and on every machine. They are not
// keyed: a client can make two prompts of one hash. Workers may be chosen and blocks be
// counted by them, but no answer and no permission may depend on an equal hash.
func AppendChain(dst []Block, r *openai.Request, seed uint64) (chain []Block, first int) {
	c := chainer{digester: digester{Reader: r.Reader()}, req: r, hash: mix(tagSeed, seed)}
	c.chain, c.base, c.first = dst, len(dst), -1
	if r.PreviousResponseID != "" {
		c.hash = mix(mix(c.hash, tagResponse), xxhash.Sum64String(r.PreviousResponseID))
	}
	if r.ConversationID != "" {
		c.hash = mix(mix(c.hash, tagConversation), xxhash.Sum64String(r.ConversationID))
	}
	c.prompt(r.Dialect)
	if c.first < 0 {
		c.first = len(c.chain) - c.base
	}
	return c.chain, c.first
}

// chainer makes one chain.
type chainer struct {
	digester
	req   *openai.Request
	hash  uint64
	end   int64
	open  int // characters since the last block's end, fewer than blockBytes inside a message
	chain []Block
	base  int // blocks that were there before
	first int // blocks up to the first user's message, -1 before it
	full  bool

	billing bool // parts that begin with billingMark are none
}

// prompt reads the fields that shape the prompt, in the order in which engines render
// them. A dialect has a few of them.
func (c *chainer) prompt(d openai.Dialect) {
	if c.begin(openai.FieldCacheSalt) {
		c.hash = mix(mix(c.hash, tagCache), c.value(openai.ReadNothing))
	}
	c.tools(openai.FieldTools, tagTool)
	c.tools(openai.FieldFunctions, tagFunction)
	c.billing = true
	c.system(openai.FieldSystem)
	c.billing = false
	c.system(openai.FieldInstructions)
	if d == openai.Responses {
		c.system(openai.FieldPrompt)
		c.messages(openai.FieldInput)
		return
	}
	c.messages(openai.FieldMessages)
	c.raw(openai.FieldPrompt)
	if c.begin(openai.FieldPromptEmbeds) { // it has no characters
		c.hash = mix(mix(c.hash, tagEmbeds), c.value(openai.ReadNothing))
		c.finish(true)
	}
	for _, f := range [...]openai.Field{
		openai.FieldSuffix, openai.FieldInput, openai.FieldQuery, openai.FieldQueries, openai.FieldText1,
	} {
		c.raw(f)
	}
}

// begin goes to the value of a field. It returns false without one, and after the last
// block of the chain.
func (c *chainer) begin(f openai.Field) bool {
	at := c.req.At(f)
	if at == 0 || c.full {
		return false
	}
	c.Seek(at)
	return true
}

// emit ends a block.
func (c *chainer) emit(message bool) {
	if c.full {
		return
	}
	c.chain = append(c.chain, Block{Hash: c.hash, End: c.end, Message: message})
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
	c.hash = mix(mix(c.hash, tagRole), xxhash.Sum64String(name))
}

// finish ends a message.
func (c *chainer) finish(user bool) {
	c.hash = mix(c.hash, tagEnd)
	c.end += messageBytes
	c.emit(true)
	if user && c.first < 0 && !c.full {
		c.first = len(c.chain) - c.base
	}
}

// tools reads an array of tools or functions. They are shown to the
// model before all messages, so they close blocks of their own.
func (c *chainer) tools(f openai.Field, kind uint64) {
	if !c.begin(f) {
		return
	}
	if c.Next() != '[' {
		c.tool(kind)
	} else {
		for c.Enter('['); !c.full && c.More(']'); {
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
	if c.Next() == '{' {
		h = c.object(openai.ReadAll, true)
	} else {
		h = c.value(openai.ReadAll)
	}
	c.hash = mix(mix(c.hash, kind), h)
	c.grow(max(c.size, 1))
}

// system reads a system text, which is a string or an array of parts.
func (c *chainer) system(f openai.Field) {
	if !c.begin(f) {
		return
	}
	c.role("system")
	c.content(1)
	c.finish(false)
}

// messages reads an array of messages or items. The input of Responses may be a string
// instead, which stands for one message of the user.
func (c *chainer) messages(f openai.Field) {
	if !c.begin(f) {
		return
	}
	if c.Next() != '[' {
		c.role("user")
		c.content(1)
		c.finish(true)
		return
	}
	for c.Enter('['); !c.full && c.More(']'); {
		user := false
		if c.Next() == '{' {
			user = c.node(1)
		} else {
			c.content(1)
		}
		c.finish(user)
	}
}

// raw reads a prompt without messages: a string, token ids, parts, or an array
// of such, of which it takes the first.
func (c *chainer) raw(f openai.Field) {
	if !c.begin(f) {
		return
	}
	if c.Next() == '[' {
		if first := c.Inside(); first == '"' || first == '[' {
			c.Enter('[')
			c.More(']')
		}
	}
	if c.Next() == '[' && c.Inside() != '{' {
		c.ids()
	} else {
		c.content(1)
	}
	c.finish(true)
}
