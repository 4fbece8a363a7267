package proxy

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strings"
	"time"
	"unicode"

	"tierway/decisions"
	"tierway/http1"
	"tierway/openai"
	"tierway/openai/prompt"
	"tierway/routing"
	"tierway/server/control"
)

const (
	// wordsMost is the number of characters of an engine's error that operators see: a cause, not a trace of calls.
	wordsMost = 120
	// wordsRead is the largest part of an error's body that is searched for words, in bytes.
	wordsRead = 64 << 10
	// wordsWait bounds the wait for that body, because another worker may already have the request.
	wordsWait = 100 * time.Millisecond
	// comparedMost is the largest request in bytes with which the words are compared. This takes up to 6 ms.
	comparedMost = 256 << 10
	// comparedWords is the number of characters that are compared: a repetition that begins in the shown ones ends here.
	comparedWords = wordsMost + 40
	// repeatedLeast is the least length in bytes of a common part of error and request that counts as a repetition.
	repeatedLeast = 8
	// wholeLeast is the least length in bytes of a whole user text that counts as a repetition within a word too.
	wholeLeast = 4
)

// readWords keeps the words of a failed answer, and returns its error unless it was read before.
func (a *attempt) readWords(resp *http1.Response) (e openai.EngineError) {
	if a.words != "" {
		return e
	}
	a.watch.startSilence(wordsWait, errIdleTimeout)
	body, _ := io.ReadAll(io.LimitReader(resp.Body, wordsRead)) // a part is sufficient
	a.keepWords(body)
	e, _ = openai.RefusalOf(body)
	if e.Message == "" {
		e.Message = string(body) // a page may have words too
	}
	return e
}

// keepWords keeps the first words of an engine's error for the worker's page. It keeps none that repeat a part of the
// request or the gateway's key, and none of a request that cannot be compared, because its body is not in memory or
// longer than comparedMost.
func (a *attempt) keepWords(body []byte) {
	request := a.x.parsed.Req
	if request == nil || len(request.Body) == 0 || len(request.Body) > comparedMost || a.m.Worker.RepeatsKey(body) {
		return
	}
	text := string(body[:min(len(body), wordsRead)])
	if e, ok := openai.RefusalOf(body); ok {
		text = e.Message
	}
	a.words = wordsApart(request, text)
}

// wordsApart returns the first words of an engine's error, or "" if they repeat a part of the request.
func wordsApart(request *openai.Request, text string) string {
	text = text[:min(len(text), 16*wordsMost)]
	line := firstWords(text, comparedWords)
	if repeats(request, line) || markup.MatchString(text) && repeats(request, text) { // the request may have tags
		return ""
	}
	return shorten(line, wordsMost)
}

// markup matches the tags of an error page of a proxy.
var markup = regexp.MustCompile(`<[^>]*>`)

// firstWords returns at most that number of characters of the beginning of a text, on one line and without markup.
func firstWords(text string, limit int) string {
	text = strings.ToValidUTF8(markup.ReplaceAllString(text, " "), "")
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
	return shorten(strings.Join(strings.Fields(text), " "), limit)
}

func shorten(text string, limit int) string {
	if words := []rune(text); len(words) > limit {
		return string(words[:limit]) + "…"
	}
	return text
}

// causes are words of usual failures. A part of an error that consists of them shows no repetition of a request.
const causes = " a an and answer api at available backend bad be block busy cannot connection content context could " +
	"cuda device does engine enginecore error exception exist failed failure for found from gateway gpu in " +
	"initialized internal invalid is key kv length limit loaded loading many maximum memory message model name " +
	"no not of on out overloaded please process proxy queue ready refused request requests response retry " +
	"runtimeerror server service slow starting status system temporarily the this timed timeout to token tokens " +
	"too try unavailable unexpected unknown upstream valueerror was while with worker yet "

// repeats reports whether words have a part in common with a request: the letters and digits of repeatedLeast bytes in
// a row, in any notation and with any characters between them, or the whole text of the user.
func repeats(request *openai.Request, words string) bool {
	seen := fold(words)
	parts, pairs := map[[repeatedLeast]byte]bool{}, [1 << 16]bool{}
	pair := func(b []byte) int { return int(b[0])<<8 | int(b[1]) }
	var run []byte
	telling := 0 // end of the last byte of run that is not in a cause
	for word := range bytes.FieldsSeq(seen) {
		cause := strings.Contains(causes, " "+string(word)+" ")
		for _, b := range word {
			if run = append(run, b); !cause {
				telling = len(run)
			}
			if from := len(run) - repeatedLeast; from >= 0 && telling > from {
				part := run[from:]
				parts[[repeatedLeast]byte(part)], pairs[pair(part)] = true, true
			}
		}
	}
	written := bytes.TrimSpace(prompt.AppendUserText(nil, request, wordsRead))
	// A short text counts as a whole word only: "hi" is in many words.
	user := fold(string(written))
	switch n := len(user) - len("  "); {
	case n < 0 && len(written) > 0 && strings.Contains(words, string(written)): // symbols only
		return true
	case n > 0 && n < wholeLeast && bytes.Contains(seen, user):
		return true
	case n >= wholeLeast && bytes.Contains(seen, bytes.TrimSpace(user)):
		return true
	case len(parts) == 0:
		return false
	}
	text := bytes.ReplaceAll(fold(string(request.Body)), []byte(" "), nil)
	for ; len(text) >= repeatedLeast; text = text[1:] {
		if pairs[pair(text)] && parts[[repeatedLeast]byte(text)] {
			return true
		}
	}
	return false
}

// lastFailure returns the failure of an ended attempt for the page of its worker, or nil if the attempt did not fail
// or its request or client was the cause.
func (a *attempt) lastFailure(fault error) *control.AttemptFailure {
	status := a.status
	if a.failure != nil && a.failure.status != 0 {
		status = a.failure.status
	}
	switch kind := a.errorType(); {
	case fault == nil, kind == decisions.ErrorClientGone, kind == decisions.ErrorShutdown, kind == decisions.ErrorGateway,
		status == http.StatusBadRequest, status == http.StatusRequestEntityTooLarge,
		status == http.StatusUnprocessableEntity, errors.Is(fault, errPanic),
		errors.Is(fault, errReleased):
		return nil
	}
	words := a.words
	if words == "" {
		words = strings.TrimPrefix(fault.Error(), routing.ErrExcluded.Error()+": ")
	}
	return &control.AttemptFailure{At: a.ended, Status: status, Words: words, RequestID: a.x.in.RequestID}
}
