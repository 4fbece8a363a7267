package workers

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"tierway/openai"
)

// MaxRanks is the highest number of data-parallel ranks of a server.
const MaxRanks = 64

// rankHeader selects the rank of a request, in vLLM and in SGLang.
const rankHeader = "X-Data-Parallel-Rank"

// SplitRank splits a worker's URL of the form http://host:port@rank into the URL of the server and
// the rank. Any other URL is returned unchanged: an @ in a path or in a socket's name is part of
// it, and Canonical rejects users.
func SplitRank(raw string) (url string, rank int, ranked bool) {
	if url, rank, ranked = cutRank(raw); !ranked {
		return raw, 0, false
	}
	if a, err := parseAddress(url); err != nil || a.scheme == "unix" || a.base != "" {
		return raw, 0, false
	}
	return url, rank, true
}

// cutRank splits a text that ends in @ and a number.
func cutRank(text string) (before string, rank int, ok bool) {
	at := strings.LastIndexByte(text, '@')
	if at < 0 {
		return text, 0, false
	}
	digits := text[at+1:]
	number, err := strconv.ParseInt(digits, 10, 32)
	if err != nil || strconv.FormatInt(number, 10) != digits || number < 0 {
		return text, 0, false
	}
	return text[:at], int(number), true
}

// Server returns the URL of the entry's server, without a rank.
func (c Config) Server() string {
	url, _, _ := SplitRank(c.URL)
	return url
}

// PerRank returns the workers of an entry of the configuration: one for each of its Ranks, else
// one. They have the URL of the server. Copies of an entry differ in Name and Rank only.
func (s Spec) PerRank() []Spec { return s.AppendRanks(nil) }

// AppendRanks appends the result of PerRank to a list.
func (s *Spec) AppendRanks(to []Spec) []Spec {
	to = append(to, *s)
	one := &to[len(to)-1]
	url, rank, ranked := SplitRank(s.URL)
	one.URL = url
	if ranked {
		one.Rank = new(rank)
	}
	if s.Ranks == 0 {
		return to
	}
	entry := *one
	to = to[:len(to)-1]
	for r := range s.Ranks {
		copied := entry.clone()
		copied.Name, copied.Rank, copied.Ranks = fmt.Sprintf("%s@%d", s.Name, r), new(r), 0
		to = append(to, copied)
	}
	return to
}

// sameRank reports whether two Specs have the same rank, or both none.
func (s *Spec) sameRank(o *Spec) bool { return equalPointers(s.Rank, o.Rank) }

func (w *Worker) setRank(r *http.Header) {
	if w.rankValue == nil {
		return
	}
	if *r == nil {
		*r = http.Header{}
	}
	(*r)[rankHeader] = w.rankValue
}

// IgnoresRank reports whether the worker is a rank and its engine chooses the rank of a request of the dialect itself.
// vLLM 0.32 reads the header for chats, completions and messages only.
func (w *Worker) IgnoresRank(d openai.Dialect) bool {
	switch d {
	case openai.Chat, openai.Completions, openai.Messages:
		return false
	}
	return w.rank != nil && w.Engine() == openai.EngineVLLM
}

// ServerName returns the worker's name without the rank that PerRank has added.
func (w *Worker) ServerName() string {
	if w.rank == nil {
		return w.name
	}
	return strings.TrimSuffix(w.name, fmt.Sprintf("@%d", *w.rank))
}

// SharesServer reports whether one server backs both workers: they are ranks of it, or entries of
// several pools.
func (w *Worker) SharesServer(o *Worker) bool { return w.address == o.address }
