package engines

import (
	"math"
	"strings"
	"unicode/utf8"

	"tierway/routing"
)

// maxLogprobs bounds the most likely tokens that are returned, as in vLLM.
const maxLogprobs = 20

// wantLogprobs requests the log probabilities of tokens and of the top most likely ones at each
// place.
func (w *wishes) wantLogprobs(field string, top int) error {
	if top < 0 || top > maxLogprobs {
		return badRequest(field, "%s must be 0 to %d, not %d", field, maxLogprobs, top)
	}
	w.logprobs, w.top = true, top
	return nil
}

// likelyToken is a token with its log probability.
type likelyToken struct {
	Token   string  `json:"token"`
	Bytes   []int   `json:"bytes"`
	Logprob float64 `json:"logprob"`
}

// tokenLogprob is one token of an answer, in the form of chat and Responses.
type tokenLogprob struct {
	likelyToken
	Top []likelyToken `json:"top_logprobs"` // the token itself first, because it is the most likely one
}

func newLikelyToken(token string, p float64) likelyToken {
	t := likelyToken{Token: token, Bytes: make([]int, len(token)), Logprob: math.Log(p)}
	for i := range len(token) {
		t.Bytes[i] = int(token[i])
	}
	return t
}

// logprob returns the log probability of the answer's token at step, which seed and step determine.
// The token has a probability of 0.3 to 0.99. Each of the others has four tenths of the rest, so
// that none is more likely and the sum is below 1.
func (a *answer) logprob(step int) tokenLogprob {
	d := rng{routing.Draw(a.seed + uint64(step))}
	p := 0.3 + 0.69*float64(d.roll(1000))/1000
	t := tokenLogprob{likelyToken: newLikelyToken(a.pieces[step], p), Top: make([]likelyToken, 0, a.top)}
	if a.top > 0 {
		t.Top = append(t.Top, t.likelyToken)
	}
	left := 1 - p
	for at := d.roll(len(words)); len(t.Top) < a.top; at++ {
		word := words[at%len(words)]
		if word == t.Token {
			continue
		}
		t.Top = append(t.Top, newLikelyToken(word, 0.4*left))
		left *= 0.6
	}
	return t
}

// allLogprobs returns the log probabilities of the whole answer; empty if they were not requested.
func (a *answer) allLogprobs() []tokenLogprob {
	all := []tokenLogprob{}
	if !a.logprobs {
		return all
	}
	for step := range a.pieces {
		all = append(all, a.logprob(step))
	}
	return all
}

// textLogprobs returns the logprobs member of a choice of the completions dialect, for the tokens
// from step to end.
func (a *answer) textLogprobs(step, end int) map[string]any {
	offset := utf8.RuneCountInString(strings.Join(a.pieces[:step], ""))
	tokens, offsets, own, top := []string{}, []int{}, []float64{}, []map[string]float64{}
	for ; step < end; step++ {
		t := a.logprob(step)
		likely := map[string]float64{t.Token: t.Logprob}
		for _, other := range t.Top {
			likely[other.Token] = other.Logprob
		}
		tokens, offsets = append(tokens, t.Token), append(offsets, offset)
		own, top = append(own, t.Logprob), append(top, likely)
		offset += utf8.RuneCountInString(t.Token)
	}
	return map[string]any{"tokens": tokens, "text_offset": offsets, "token_logprobs": own, "top_logprobs": top}
}
