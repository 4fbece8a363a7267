package prompt

import (
	"github.com/cespare/xxhash/v2"

	"tierway/openai"
)

// Sizes of a chain. All gateways must use the same ones: a changed size changes the hashes.
const (
	// blockBytes is the text of a block, about 128 tokens. If two prompts differ inside a text, half a
	// block on average counts as not shared: 64 tokens, or 8 ms of prefill at 8,000 tokens per second,
	// less than the error of a queue estimate. A chat of 8 KB has about thirty blocks.
	blockBytes = 512

	// messageBytes is added for each message: the role and the marks of the chat template are about
	// four tokens.
	messageBytes = 16

	// idBytes is the size of a token ID: four characters, as in Request.PromptTokens.
	idBytes = 4

	// MaxBlocks is the maximum length of a chain: 2 MiB of plain text, or half a million tokens. It
	// limits the cost of huge bodies and of block tables. Prompts that differ only after their first
	// MaxBlocks blocks have the same chain.
	MaxBlocks = 4096

	// maxNesting is the maximum depth of nested contents that are cut into blocks; a tool result in a
	// message has two. Deeper content is hashed as one value, because each level is read once more.
	maxNesting = 4
)

// Block is one element of a prompt's chain.
type Block struct {
	// Hash covers the prompt from its beginning to the block's end.
	Hash uint64
	// End is the size of the prompt up to the block's end: bytes of decoded text without media, plus 4
	// per token ID and 16 per completed message. It increases from block to block.
	End int64
	// Message reports whether the block ends a message.
	Message bool
}

// AppendChain appends the chain of the request's prompt to dst. It returns the chain and the
// number of blocks up to and including the first user message, or of all blocks if there is
// none. The chain of a request without a prompt, of a form and of the dialect Other is empty.
//
// Two prompts share the blocks up to their first difference. Tools come first, then the system
// text, then the messages. A block ends with each message and after each 512 bytes of a
// message's text, counted from the start of the message. A chat that grows by one turn
// therefore keeps its chain as the exact beginning.
//
// These differences do not change a chain: white space, the order of members, the spelling of
// escapes, null members, Anthropic's cache_control and its clients' billing header, and a text
// as one part of type text. Everything else does: a character, a role, the order of messages
// and tools, the ID of a call, the spelling of a number, the address or data of an image.
// Sampling parameters are not part of the prompt. A chain has at most 4,096 blocks.
//
// The chain begins with seed, into which the caller mixes everything else that separates
// prompts, such as a tenant's cache_salt. The response or conversation that the request
// continues and its own cache_salt follow. If the prompt is an array of several prompts, the first
// represents all: one worker serves them, and most begin alike. The prompt of a rerank or score
// request is its query.
//
// The hashes are equal in all processes and on all machines. They are not keyed: a client can
// construct two prompts with the same hash. Hashes may select workers and count blocks, but no
// response and no permission may depend on them.
func AppendChain(dst []Block, r *openai.Request, seed uint64) (chain []Block, first int) {
	c := chainer{digester: digester{Reader: r.Reader()}, req: r, hash: mix(tagSeed, seed)}
	c.chain, c.base, c.first = dst, len(dst), -1
	if r.PreviousResponseID != "" {
		c.hash = mix(mix(c.hash, tagResponse), xxhash.Sum64String(r.PreviousResponseID))
	}
	if r.ConversationID != "" {
		c.hash = mix(mix(c.hash, tagConversation), xxhash.Sum64String(r.ConversationID))
	}
	c.readPrompt(r.Dialect)
	if c.first < 0 {
		c.first = len(c.chain) - c.base
	}
	return c.chain, c.first
}

type chainer struct {
	digester
	req   *openai.Request
	hash  uint64
	end   int64
	open  int // characters since the last block's end; less than blockBytes inside a message
	chain []Block
	base  int // length of dst at the start
	first int // blocks up to the first user message, -1 before it
	full  bool

	billing bool // parts that begin with billingMark are skipped
}

// readPrompt reads the prompt fields in the order in which engines render them. Each dialect has
// some of them.
func (c *chainer) readPrompt(d openai.Dialect) {
	if c.seekField(openai.FieldCacheSalt) {
		c.hash = mix(mix(c.hash, tagCache), c.hashValue(openai.ReadNothing))
	}
	c.readTools(openai.FieldTools, tagTool)
	c.readTools(openai.FieldFunctions, tagFunction)
	c.billing = true
	c.readSystem(openai.FieldSystem)
	c.billing = false
	c.readSystem(openai.FieldInstructions)
	if d == openai.Responses {
		c.readSystem(openai.FieldPrompt)
		c.readMessages(openai.FieldInput)
		return
	}
	c.readMessages(openai.FieldMessages)
	c.readPlainPrompt(openai.FieldPrompt)
	if c.seekField(openai.FieldPromptEmbeds) { // it has no characters
		c.hash = mix(mix(c.hash, tagEmbeds), c.hashValue(openai.ReadNothing))
		c.endMessage(true)
	}
	for _, f := range [...]openai.Field{
		openai.FieldSuffix, openai.FieldInput, openai.FieldQuery, openai.FieldQueries, openai.FieldText1,
	} {
		c.readPlainPrompt(f)
	}
}

// seekField advances to the value of a field. It returns false if the field is absent or the chain
// is full.
func (c *chainer) seekField(f openai.Field) bool {
	at := c.req.At(f)
	if at == 0 || c.full {
		return false
	}
	c.Seek(at)
	return true
}

func (c *chainer) endBlock(message bool) {
	if c.full {
		return
	}
	c.chain = append(c.chain, Block{Hash: c.hash, End: c.end, Message: message})
	c.open = 0
	c.full = len(c.chain)-c.base == MaxBlocks
}

// addSize adds n hashed characters to the block and ends it if it is full.
func (c *chainer) addSize(n int64) {
	c.end += n
	// A single value longer than a block fills its block at once.
	c.open += int(min(n, blockBytes))
	if c.open >= blockBytes {
		c.endBlock(false)
	}
}

func (c *chainer) beginMessage(name string) {
	c.hash = mix(mix(c.hash, tagRole), xxhash.Sum64String(name))
}

func (c *chainer) endMessage(user bool) {
	c.hash = mix(c.hash, tagEnd)
	c.end += messageBytes
	c.endBlock(true)
	if user && c.first < 0 && !c.full {
		c.first = len(c.chain) - c.base
	}
}

// readTools reads an array of tools or functions. The model sees them before all messages, so they
// end their own blocks.
func (c *chainer) readTools(f openai.Field, kind uint64) {
	if !c.seekField(f) {
		return
	}
	if c.Next() != '[' {
		c.readTool(kind)
	} else {
		for c.Enter('['); !c.full && c.More(']'); {
			c.readTool(kind)
		}
	}
	if c.open > 0 {
		c.endBlock(false)
	}
}

func (c *chainer) readTool(kind uint64) {
	c.size = 0
	var h uint64
	if c.Next() == '{' {
		h = c.hashObject(openai.ReadAll, true)
	} else {
		h = c.hashValue(openai.ReadAll)
	}
	c.hash = mix(mix(c.hash, kind), h)
	c.addSize(max(c.size, 1))
}

// readSystem reads a system text: a string or an array of parts.
func (c *chainer) readSystem(f openai.Field) {
	if !c.seekField(f) {
		return
	}
	c.beginMessage("system")
	c.readContent(1)
	c.endMessage(false)
}

// readMessages reads an array of messages or items. The input of Responses may be a string, which
// equals one user message.
func (c *chainer) readMessages(f openai.Field) {
	if !c.seekField(f) {
		return
	}
	if c.Next() != '[' {
		c.beginMessage("user")
		c.readContent(1)
		c.endMessage(true)
		return
	}
	for c.Enter('['); !c.full && c.More(']'); {
		user := false
		if c.Next() == '{' {
			user = c.readNode(1)
		} else {
			c.readContent(1)
		}
		c.endMessage(user)
	}
}

// readPlainPrompt reads a prompt without messages: a string, token IDs, parts, or the first element
// of an array of these.
func (c *chainer) readPlainPrompt(f openai.Field) {
	if !c.seekField(f) {
		return
	}
	if c.Next() == '[' {
		if first := c.Inside(); first == '"' || first == '[' {
			c.Enter('[')
			c.More(']')
		}
	}
	if c.Next() == '[' && c.Inside() != '{' {
		c.readIDs()
	} else {
		c.readContent(1)
	}
	c.endMessage(true)
}
