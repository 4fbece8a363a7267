package proxy

import (
	"errors"
	"io"
	"net/http"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"tierway/decisions"
	"tierway/http1"
	"tierway/openai"
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
	// comparedMost is the largest request in bytes with which the words are compared. This takes up to 2 ms.
	comparedMost = 256 << 10
	// repeatedLeast is the least length in bytes of a common part of error and request that counts as a repetition.
	repeatedLeast = 12
)

// readWords keeps the words of a failed answer that has not been read yet.
func (a *attempt) readWords(resp *http1.Response) {
	if a.words != "" {
		return
	}
	a.watch.startSilence(wordsWait, errIdleTimeout)
	body, _ := io.ReadAll(io.LimitReader(resp.Body, wordsRead)) // a part is sufficient
	a.keepWords(body)
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
	if words := firstWords(text); !repeats(request.Body, words) {
		a.words = words
	}
}

// markup matches the tags of an error page of a proxy.
var markup = regexp.MustCompile(`<[^>]*>`)

// firstWords returns the beginning of a text on one line, without markup.
func firstWords(text string) string {
	text = strings.ToValidUTF8(markup.ReplaceAllString(text[:min(len(text), 16*wordsMost)], " "), "")
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
	words := []rune(strings.Join(strings.Fields(text), " "))
	if len(words) > wordsMost {
		return string(words[:wordsMost]) + "…"
	}
	return string(words)
}

// repeats reports whether words have a part in common with the JSON of a request, as it is written there or decoded.
func repeats(request []byte, words string) bool {
	parts, pairs := map[[repeatedLeast]byte]bool{}, [1 << 16]bool{}
	pair := func(b []byte) int { return int(b[0])<<8 | int(b[1]) }
	for i := 0; i+repeatedLeast <= len(words); i++ {
		part := []byte(words[i : i+repeatedLeast])
		parts[[repeatedLeast]byte(part)], pairs[pair(part)] = true, true
	}
	has := func(text []byte) bool {
		for ; len(text) >= repeatedLeast; text = text[1:] {
			if pairs[pair(text)] && parts[[repeatedLeast]byte(text)] {
				return true
			}
		}
		return false
	}
	if len(parts) == 0 || has(request) {
		return len(parts) > 0
	}
	if !openai.Escaped(request) {
		return false
	}
	decoded := make([]byte, len(request)+utf8.UTFMax)
	n, _ := openai.Unescape(decoded, request, 0, len(request))
	return has(decoded[:n])
}

// lastFailure returns the failure of an ended attempt for the page of its worker, or nil if the attempt did not fail
// or its request or client was the cause.
func (a *attempt) lastFailure(fault error) *control.AttemptFailure {
	status := a.status
	if a.failure != nil && a.failure.status != 0 {
		status = a.failure.status
	}
	switch kind := errorType(a); {
	case fault == nil, kind == decisions.ErrorClientGone, kind == decisions.ErrorShutdown, kind == decisions.ErrorGateway,
		status == http.StatusBadRequest, status == http.StatusRequestEntityTooLarge,
		status == http.StatusUnprocessableEntity, errors.Is(fault, errPanic):
		return nil
	}
	words := a.words
	if words == "" {
		words = strings.TrimPrefix(fault.Error(), routing.ErrExcluded.Error()+": ")
	}
	return &control.AttemptFailure{At: a.ended, Status: status, Words: words, RequestID: a.x.in.RequestID}
}
