package watch

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// database is the file of the gateway's own.
const database = "tierway.db"

// plants are words that must not be told, each with what it was planted as.
type plants struct {
	words map[string]string // the word → what
	forms map[string][]form // of the words
	texts map[string]bool   // words that clients may be told again, in answers to their own requests
	keys  map[string]bool   // words whose digests are what the database knows a key by
}

func newPlants() *plants {
	return &plants{words: map[string]string{}, forms: map[string][]form{}, texts: map[string]bool{},
		keys: map[string]bool{}}
}

// secret is a new word that nobody may be told, whoever asks.
func (p *plants) secret(what string) string {
	// Letters and digits alone: in JSON, URLs and quotes it stays as it is.
	return p.plant("Canary"+rand.Text(), what)
}

// plant makes a word a secret.
func (p *plants) plant(word, what string) string {
	p.words[word], p.forms[word] = what, forms(word)
	return word
}

// text is a new word that only whoever sent it, or asked for it, may be told.
func (p *plants) text(what string) string {
	word := p.secret(what)
	p.texts[word] = true
	return word
}

// form is a way in which a word may be written.
type form struct {
	name string
	text []byte
}

// forms are all ways in which a word is looked for, in lower case.
func forms(word string) []form {
	sum := sha256.Sum256([]byte(word))
	backwards := []byte(word)
	slices.Reverse(backwards)
	all := []form{{"as it is", []byte(word)}, {"in hexadecimal", []byte(hex.EncodeToString([]byte(word)))},
		{"backwards", backwards},
		{"its SHA-256", []byte(hex.EncodeToString(sum[:]))},
		{"its SHA-256 in base64", []byte(base64.RawStdEncoding.EncodeToString(sum[:]))},
		{"its SHA-256 in bytes", sum[:]}, {"in percents", []byte(percents(word))}}
	for before := range 3 { // a word inside a longer text has one of three forms in base64
		text := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("x", before) + word))
		all = append(all, form{"in base64", []byte(text[4 : len(text)-4])}) // what does not depend on its neighbours
	}
	for i := range all {
		all[i].text = bytes.ToLower(all[i].text)
	}
	return all
}

// percents is every byte of a word escaped as in URLs.
func percents(word string) string {
	var b strings.Builder
	for i := range len(word) {
		fmt.Fprintf(&b, "%%%02X", word[i])
	}
	return b.String()
}

// search looks for the words in what was told somewhere, in any case. own is true
// where a client or an operator reads an answer to what they have sent themselves.
func (p *plants) search(t *testing.T, where, told string, own bool) {
	t.Helper()
	lower := bytes.ToLower([]byte(told))
	for word, what := range p.words {
		if own && p.texts[word] {
			continue
		}
		for _, f := range p.forms[word] {
			if p.keys[word] && strings.HasPrefix(where, database) && strings.HasPrefix(f.name, "its SHA-256") {
				continue
			}
			at := bytes.Index(lower, f.text)
			if at >= 0 {
				t.Errorf("%s has the %s %s: …%s…", where, what, f.name, told[max(0, at-80):min(len(told), at+len(f.text)+20)])
				break
			}
		}
	}
}

// TestAPlantIsFoundInEveryForm: a search that finds nothing proves something.
func TestAPlantIsFoundInEveryForm(t *testing.T) {
	p := newPlants()
	word := p.secret("word")
	sum := sha256.Sum256([]byte(word))
	told := []string{"a" + word + "b", strings.ToUpper(word), fmt.Sprintf("%x", word), fmt.Sprintf("%X", sum),
		string(sum[:]), percents(word)}
	for before := range 4 {
		text := []byte(strings.Repeat("y", before) + word + "zzzz")
		told = append(told, base64.StdEncoding.EncodeToString(text), base64.URLEncoding.EncodeToString(text))
	}
	for _, text := range told {
		found := false
		for _, f := range forms(word) {
			found = found || bytes.Contains(bytes.ToLower([]byte(text)), f.text)
		}
		if !found {
			t.Errorf("%q hides %s", text, word)
		}
	}
}
