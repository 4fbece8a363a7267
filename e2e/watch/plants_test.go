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

// database is the file name of the gateway's database.
const database = "tierway.db"

// plants are words that must not appear in telemetry.
type plants struct {
	words map[string]string // by word: where it was planted
	forms map[string][]form // by word
	texts map[string]bool   // words that may appear in the answer to the request that has them
	keys  map[string]bool   // keys, which the database stores as digests
}

func newPlants() *plants {
	return &plants{words: map[string]string{}, forms: map[string][]form{}, texts: map[string]bool{},
		keys: map[string]bool{}}
}

// secret returns a new word that must not appear anywhere, not even in an answer.
func (p *plants) secret(what string) string {
	// Letters and digits need no escaping in JSON, URLs and quotes.
	return p.plant("Canary"+rand.Text(), what)
}

// plant makes an existing word a secret.
func (p *plants) plant(word, what string) string {
	p.words[word], p.forms[word] = what, forms(word)
	return word
}

// text returns a new word that may appear only in the answer to the request that has it.
func (p *plants) text(what string) string {
	word := p.secret(what)
	p.texts[word] = true
	return word
}

// form is an encoding of a word.
type form struct {
	name string
	text []byte
}

// forms returns all encodings that are searched for, in lower case.
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

// percents escapes every byte of a word as in URLs.
func percents(word string) string {
	var b strings.Builder
	for i := range len(word) {
		fmt.Fprintf(&b, "%%%02X", word[i])
	}
	return b.String()
}

// search searches told for the planted words, ignoring case, and fails the test if it has one. own is
// true for an answer to the client or operator that sent the words.
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

// TestAPlantIsFoundInEveryForm verifies the search.
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
