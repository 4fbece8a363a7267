package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// Tenants of the background load.
const (
	chatApp      = "chat-app"      // interactive chats, and background requests for their titles
	nightlyBatch = "nightly-batch" // batch requests over documents
)

const (
	// nightlyShare is the share of nightlyBatch in the requests.
	nightlyShare = 0.17
	// nightlyHeadroom is the limit of nightlyBatch in multiples of its mean rate: with random arrivals, about
	// a tenth of its requests is rejected.
	nightlyHeadroom = 1.4
	// demoChats is the number of chats at a time, and demoTurns their greatest length.
	demoChats, demoTurns = 6, 8
	// demoDocumentBytes is the size of a document. With about 6,000 tokens, it exceeds the classifier's
	// threshold of the medium tier, 4,000.
	demoDocumentBytes = 24 << 10
)

// demoTraffic generates the requests of the background load. Equal seeds give equal requests. It is not
// safe for concurrent use.
type demoTraffic struct {
	random    *rand.Rand
	chats     []*demoChat
	begun     int // chats so far
	documents []string
}

type demoRequest struct {
	tenant, class, session string // an empty class or session is not sent
	body                   []byte
}

// demoChat is a chat that grows by one turn per request.
type demoChat struct {
	session  string
	messages []demoMessage
	turns    int // that remain
}

type demoMessage struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// demoBody is the body of a request.
type demoBody struct {
	Model     string            `json:"model"`
	Stream    bool              `json:"stream,omitempty"`
	MaxTokens int               `json:"max_tokens"`
	Messages  []demoMessage     `json:"messages"`
	Tools     []json.RawMessage `json:"tools,omitempty"`
}

func newDemoTraffic(seed uint64) *demoTraffic {
	t := &demoTraffic{random: rand.New(rand.NewPCG(seed, 0)), chats: make([]*demoChat, demoChats)}
	for range 3 {
		t.documents = append(t.documents, fmt.Sprintf("Report %d. ", 100+t.random.IntN(900))+t.text(demoDocumentBytes))
	}
	return t
}

// pause returns the time until the next request: arrivals are independent of each other.
func (t *demoTraffic) pause(rate float64) time.Duration {
	return time.Duration(t.random.ExpFloat64() / rate * float64(time.Second))
}

// next returns the next request. The shares follow those of a chat product: mostly short turns of chats,
// few requests that need a large model. The last two cases are nightlyShare.
func (t *demoTraffic) next() demoRequest {
	switch draw := t.random.Float64(); {
	case draw < 0.56:
		return t.chatTurn()
	case draw < 0.67:
		return t.title()
	case draw < 0.73:
		return t.single("auto", t.oneOf(demoCodeQuestions), 90)
	case draw < 0.77:
		return t.single("auto", t.oneOf(demoMathsQuestions), 70)
	case draw < 0.81:
		return t.single("gpt-4o", t.oneOf(demoQuestions), 60)
	case draw < 1-nightlyShare:
		return t.toolCall()
	case draw < 0.95:
		return t.extraction()
	}
	return t.summary()
}

// chatTurn returns the next turn of one of the chats. All earlier turns are in the prompt again.
func (t *demoTraffic) chatTurn() demoRequest {
	i := t.random.IntN(len(t.chats))
	if t.chats[i] == nil || t.chats[i].turns == 0 {
		t.chats[i] = t.newChat()
	}
	c := t.chats[i]
	c.turns--
	c.messages = append(c.messages, demoMessage{"user", t.oneOf(demoQuestions)})
	r := t.request(chatApp, demoBody{Model: "auto", Stream: t.random.IntN(5) > 0, MaxTokens: 40 + t.random.IntN(80),
		Messages: c.messages})
	r.session = c.session
	// Answers of the gateway depend on time; a text of the same length keeps the requests equal in all runs.
	c.messages = append(c.messages, demoMessage{"assistant", t.text(300)})
	return r
}

// newChat returns a chat with one of a few system prompts, which chats share.
func (t *demoTraffic) newChat() *demoChat {
	t.begun++
	return &demoChat{
		session:  fmt.Sprintf("chat-%d", t.begun),
		messages: []demoMessage{{"system", t.oneOf(demoSystemPrompts())}},
		turns:    2 + t.random.IntN(demoTurns-1),
	}
}

// title returns a request for the title of a chat, which no user waits for.
func (t *demoTraffic) title() demoRequest {
	r := t.request(chatApp, demoBody{Model: "auto", MaxTokens: 12, Messages: []demoMessage{
		{"system", "Give the conversation a short title."}, {"user", t.oneOf(demoQuestions)}}})
	r.class = "background"
	return r
}

func (t *demoTraffic) single(model, question string, tokens int) demoRequest {
	return t.request(chatApp, demoBody{Model: model, Stream: t.random.IntN(2) == 0, MaxTokens: tokens,
		Messages: []demoMessage{{"user", question}}})
}

func (t *demoTraffic) toolCall() demoRequest {
	tool := json.RawMessage(`{"type":"function","function":{"name":"order_status","description":"State of an order",` +
		`"parameters":{"type":"object","properties":{"order":{"type":"string"}},"required":["order"]}}}`)
	return t.request(chatApp, demoBody{Model: "auto", MaxTokens: 40, Tools: []json.RawMessage{tool},
		Messages: []demoMessage{{"user", fmt.Sprintf("Where is my order %d?", 10000+t.random.IntN(90000))}}})
}

// extraction returns a short request over a record.
func (t *demoTraffic) extraction() demoRequest {
	return t.request(nightlyBatch, demoBody{Model: "auto", MaxTokens: 30, Messages: []demoMessage{
		{"system", "Sort the customer's message into one of: delivery, payment, return, other. Answer with one word."},
		{"user", t.text(200)}}})
}

// summary returns a question about one of the documents, which several requests share.
func (t *demoTraffic) summary() demoRequest {
	return t.request(nightlyBatch, demoBody{Model: "auto", MaxTokens: 120, Messages: []demoMessage{
		{"system", t.oneOf(t.documents)}, {"user", "Summarize the report for " + t.oneOf(demoReaders) + "."}}})
}

func (t *demoTraffic) request(tenant string, b demoBody) demoRequest {
	body, err := json.Marshal(b)
	if err != nil {
		panic(err) // the fields of demoBody can always be encoded
	}
	return demoRequest{tenant: tenant, body: body}
}

// text returns sentences of at least the given number of bytes.
func (t *demoTraffic) text(size int) string {
	var b strings.Builder
	for b.Len() < size {
		fmt.Fprintf(&b, "%s %s %s. ", t.oneOf(demoSubjects), t.oneOf(demoVerbs), t.oneOf(demoTimes))
	}
	return strings.TrimSpace(b.String())
}

func (t *demoTraffic) oneOf(texts []string) string { return texts[t.random.IntN(len(texts))] }
