package prompttokens

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"time"

	"tierway/http1"
	"tierway/openai"
)

const (
	tokenizePath   = "/tokenize"
	chatRenderPath = "/v1/chat/completions/render"
	textRenderPath = "/v1/completions/render"

	// askLimit bounds the time of one request. Hugging Face's tokenizers take 0.2 s for 100,000 tokens.
	askLimit = 5 * time.Second
	// An answer may have answerPerByte bytes for each byte of the request, and answerBase more. A byte is at
	// most one token, which is up to seven digits and two separators; a render endpoint returns the text
	// too. The base is for what a chat template adds: 30,000 tokens.
	answerPerByte = 16
	answerBase    = 256 << 10
	// maxAnswer bounds each answer in bytes: two million tokens.
	maxAnswer = 16 << 20
)

// Poster sends a request to an engine. A *workers.Worker is one.
type Poster interface {
	Send(ctx context.Context, r *http1.Request) (*http1.Response, error)
}

var (
	errNoWorker    = errors.New("no worker with a live event stream")
	errUnsupported = errors.New("the engine has no such endpoint")
	errRefused     = errors.New("the engine refuses the request")
	errNoTokens    = errors.New("the answer has no list of token ids")
	errTooLong     = errors.New("the answer is too long for its prompt")
)

// requestTokens sends a body to an endpoint of a worker and returns the token ids of the answer.
func (s *Source) requestTokens(ctx context.Context, path string, body []byte) ([]uint32, error) {
	w := s.c.Worker()
	if w == nil {
		return nil, errNoWorker
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	s.counts.asked.Add(1)
	resp, err := w.Send(ctx, &http1.Request{Method: http.MethodPost, Path: path, Body: [][]byte{body},
		Header: http.Header{"Content-Type": {"application/json"}}})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() // it was only read
	maxBytes := min(maxAnswer, answerBase+answerPerByte*int64(len(body)))
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxBytes+1))
	switch {
	case err != nil:
		return nil, err
	case int64(len(answer)) > maxBytes:
		return nil, errTooLong
	case resp.Status == http.StatusOK:
		return readTokens(answer)
	case resp.Status == http.StatusForbidden, resp.Status == http.StatusNotFound,
		resp.Status == http.StatusMethodNotAllowed, resp.Status == http.StatusNotImplemented:
		return nil, errUnsupported
	case resp.Status == http.StatusBadRequest, resp.Status == http.StatusUnprocessableEntity:
		return nil, errRefused
	}
	return nil, fmt.Errorf("the engine answers %d", resp.Status)
}

// readTokens reads the answer of /tokenize, or of a render endpoint: an object, or a list of one
// object for each prompt.
func readTokens(answer []byte) ([]uint32, error) {
	holder := openai.Request{Body: answer}
	rd := holder.Reader()
	if rd.Next() == '[' {
		if rd.Enter('['); !rd.More(']') {
			return nil, errNoTokens
		}
	}
	for rd.Enter('{'); rd.More('}'); {
		switch string(rd.Name()) {
		case "tokens", "token_ids":
			if ids, ok := appendIDs(nil, rd.Skip()); ok && len(ids) > 0 {
				return ids, nil
			}
			return nil, errNoTokens
		}
	}
	return nil, errNoTokens
}

// appendIDs appends the elements of a JSON array of token ids. ok is false for any other value.
func appendIDs(ids []uint32, array []byte) (all []uint32, ok bool) {
	if len(array) < 2 || array[0] != '[' || array[len(array)-1] != ']' {
		return ids, false
	}
	if ids == nil {
		ids = make([]uint32, 0, len(array)/5+1) // an id has about four digits and a comma
	}
	i := skipSpace(array, 1)
	if i == len(array)-1 {
		return ids, true
	}
	for { // the last byte ends all loops
		from, id := i, uint64(0)
		for '0' <= array[i] && array[i] <= '9' && i-from < 10 { // 2³² has ten digits
			id = 10*id + uint64(array[i]-'0')
			i++
		}
		end := i
		i = skipSpace(array, i)
		if end == from || id > math.MaxUint32 || array[i] != ',' && i < len(array)-1 {
			return ids, false
		}
		ids = append(ids, uint32(id))
		if i == len(array)-1 {
			return ids, true
		}
		i = skipSpace(array, i+1)
	}
}

// skipSpace returns the index of the first byte from i on that is no white space.
func skipSpace(b []byte, i int) int {
	for b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r' {
		i++
	}
	return i
}
