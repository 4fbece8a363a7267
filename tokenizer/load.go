package tokenizer

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// MaxFile bounds a tokenizer.json in bytes. The largest in use have 200,000 tokens and 20 MB.
const MaxFile = 128 << 20

var errTooLarge = fmt.Errorf("the file has more than %d bytes", MaxFile)

const maxID = 1<<31 - 1

// Load reads a tokenizer.json. An error about the content names the part of the file that is not supported,
// and wraps an error without the path.
func Load(path string) (*Tokenizer, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // it was only read
	data, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > MaxFile {
		return nil, fmt.Errorf("%s: %w", path, errTooLarge)
	}
	t, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

type file struct {
	AddedTokens []struct {
		ID         int64  `json:"id"`
		Content    string `json:"content"`
		SingleWord bool   `json:"single_word"`
		LStrip     bool   `json:"lstrip"`
		RStrip     bool   `json:"rstrip"`
	} `json:"added_tokens"`
	Normalizer    *step `json:"normalizer"`
	PreTokenizer  *step `json:"pre_tokenizer"`
	PostProcessor *step `json:"post_processor"`
	Model         model `json:"model"`
}

// step is a step of normalization, splitting or post-processing.
type step struct {
	Type string `json:"type"`

	Normalizers   []step `json:"normalizers"`
	Pretokenizers []step `json:"pretokenizers"`
	Processors    []step `json:"processors"`

	// Of a splitter.
	Pattern struct {
		Regex  *string `json:"Regex"`
		String *string `json:"String"`
	} `json:"pattern"`
	Behavior       string `json:"behavior"`
	Invert         bool   `json:"invert"`
	AddPrefixSpace bool   `json:"add_prefix_space"`
	UseRegex       *bool  `json:"use_regex"` // absent is true

	// Of a template.
	Single []struct {
		SpecialToken *struct {
			ID string `json:"id"`
		} `json:"SpecialToken"`
		Sequence *struct {
			ID string `json:"id"`
		} `json:"Sequence"`
	} `json:"single"`
	SpecialTokens map[string]struct {
		IDs []int64 `json:"ids"`
	} `json:"special_tokens"`
}

type model struct {
	Type         string           `json:"type"`
	Dropout      *float64         `json:"dropout"`
	Prefix       string           `json:"continuing_subword_prefix"`
	Suffix       string           `json:"end_of_word_suffix"`
	ByteFallback bool             `json:"byte_fallback"`
	IgnoreMerges bool             `json:"ignore_merges"`
	Vocab        map[string]int64 `json:"vocab"`
	Merges       []tokenPair      `json:"merges"`
}

// tokenPair is an element of merges: "a b", or ["a", "b"].
type tokenPair struct{ left, right string }

// UnmarshalJSON reads both forms.
func (p *tokenPair) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) == nil {
		left, right, ok := strings.Cut(s, " ")
		if !ok || strings.Contains(right, " ") {
			return errors.New("model.merges: an element is not two tokens")
		}
		p.left, p.right = left, right
		return nil
	}
	var two []string
	if err := json.Unmarshal(b, &two); err != nil || len(two) != 2 {
		return errors.New("model.merges: an element is not two tokens")
	}
	p.left, p.right = two[0], two[1]
	return nil
}

// Parse reads the content of a tokenizer.json.
func Parse(data []byte) (*Tokenizer, error) {
	var f file
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("no tokenizer.json: %w", err)
	}
	sum := sha256.Sum256(data)
	t := &Tokenizer{whole: f.Model.IgnoreMerges, hash: hex.EncodeToString(sum[:])}
	if err := t.readModel(&f.Model); err != nil {
		return nil, err
	}
	if err := t.readNormalizer(f.Normalizer); err != nil {
		return nil, err
	}
	if err := t.readPreTokenizer(f.PreTokenizer); err != nil {
		return nil, err
	}
	for _, a := range f.AddedTokens {
		switch {
		case a.Content == "":
			return nil, errors.New("added_tokens: a token is empty")
		case a.ID < 0 || a.ID > maxID:
			return nil, fmt.Errorf("added_tokens: id %d is not between 0 and %d", a.ID, maxID)
		case a.SingleWord, a.LStrip, a.RStrip:
			return nil, fmt.Errorf("added_tokens: %q has single_word, lstrip or rstrip, which is not supported", a.Content)
		}
		t.addToken(a.Content, uint32(a.ID))
	}
	return t, t.readPostProcessor(f.PostProcessor)
}

func (t *Tokenizer) readModel(m *model) error {
	switch {
	case m.Type != "BPE" && (m.Type != "" || m.Merges == nil): // older files have no type
		return fmt.Errorf("model.type is %q; only byte-level BPE is supported", m.Type)
	case m.ByteFallback:
		return errors.New("model.byte_fallback is set; only byte-level BPE is supported")
	case m.Dropout != nil && *m.Dropout != 0:
		return errors.New("model.dropout is set: such a tokenizer is random")
	case m.Prefix != "" || m.Suffix != "":
		return errors.New("model has a continuing_subword_prefix or an end_of_word_suffix; only byte-level BPE is supported")
	}
	level := newByteLevel()
	t.pieces = make(map[string]uint32, len(m.Vocab))
	for written, id := range m.Vocab {
		if id < 0 || id > maxID {
			return fmt.Errorf("model.vocab: id %d is not between 0 and %d", id, maxID)
		}
		if text, ok := level.decode(written); ok { // else a special token, which is no result of a merge
			t.pieces[text] = uint32(id)
		}
	}
	for b, c := range alphabet() {
		id, ok := m.Vocab[string(c)]
		if !ok {
			return fmt.Errorf("model.vocab has no token for the byte %#02x; only byte-level BPE is supported", b)
		}
		t.bytes[b] = uint32(id)
	}
	t.merges = make(map[uint64]merge, len(m.Merges))
	for rank, p := range m.Merges {
		left, okLeft := m.Vocab[p.left]
		right, okRight := m.Vocab[p.right]
		joined, ok := m.Vocab[p.left+p.right]
		if !okLeft || !okRight || !ok {
			return fmt.Errorf("model.merges: element %d has a token that model.vocab has not", rank)
		}
		key := pair(uint32(left), uint32(right))
		if _, twice := t.merges[key]; !twice {
			t.merges[key] = merge{int32(rank), uint32(joined)}
		}
	}
	return nil
}

// readNormalizer accepts no normalization and NFC.
func (t *Tokenizer) readNormalizer(s *step) error {
	switch {
	case s == nil:
		return nil
	case s.Type == "NFC":
		t.composed = true
		return nil
	case s.Type == "Sequence":
		for i := range s.Normalizers {
			if err := t.readNormalizer(&s.Normalizers[i]); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("normalizer %q is not supported; NFC is", s.Type)
}

// readPreTokenizer reads the split steps, of which the last one is ByteLevel.
func (t *Tokenizer) readPreTokenizer(s *step) error {
	if s == nil {
		return errors.New("pre_tokenizer is missing; only byte-level BPE is supported")
	}
	steps := []step{*s}
	if s.Type == "Sequence" {
		steps = s.Pretokenizers
	}
	for i := range steps {
		if err := t.readSplit(&steps[i], i == len(steps)-1); err != nil {
			return err
		}
	}
	if len(steps) == 0 {
		return errors.New("pre_tokenizer is empty; only byte-level BPE is supported")
	}
	return nil
}

func (t *Tokenizer) readSplit(s *step, last bool) error {
	switch {
	case last && s.Type == "ByteLevel" && s.AddPrefixSpace:
		return errors.New("pre_tokenizer: add_prefix_space is not supported")
	case last && s.Type == "ByteLevel":
		if s.UseRegex == nil || *s.UseRegex {
			t.splitters = append(t.splitters, splitterOf(gpt2Pattern))
		}
		return nil
	case last || s.Type != "Split":
		return fmt.Errorf("pre_tokenizer: step %q is not supported; Split steps and then ByteLevel are", s.Type)
	case s.Pattern.Regex == nil:
		return errors.New("pre_tokenizer: a Split without a pattern of type Regex is not supported")
	}
	// Some files have the characters themselves, which mean the same in an expression.
	pattern := strings.NewReplacer("\r", `\r`, "\n", `\n`).Replace(*s.Pattern.Regex)
	splitter := splitterOf(pattern)
	if splitter == nil {
		return fmt.Errorf("pre_tokenizer: the split pattern %q is not known; known are those of GPT-2, Llama 3, Qwen and "+
			"DeepSeek", pattern)
	}
	if s.Behavior != "Isolated" || s.Invert {
		return fmt.Errorf("pre_tokenizer: a Split with behavior %q and invert %v is not supported", s.Behavior, s.Invert)
	}
	t.splitters = append(t.splitters, splitter)
	return nil
}

// readPostProcessor reads the tokens around a prompt.
func (t *Tokenizer) readPostProcessor(s *step) error {
	switch {
	case s == nil, s.Type == "ByteLevel":
		return nil
	case s.Type == "Sequence":
		for i := range s.Processors {
			if err := t.readPostProcessor(&s.Processors[i]); err != nil {
				return err
			}
		}
		return nil
	case s.Type != "TemplateProcessing":
		return fmt.Errorf("post_processor %q is not supported; ByteLevel and TemplateProcessing are", s.Type)
	}
	var around [2][]uint32
	side := 0
	for _, part := range s.Single {
		switch {
		case part.Sequence != nil && side == 0:
			side = 1
		case part.SpecialToken != nil:
			for _, id := range s.SpecialTokens[part.SpecialToken.ID].IDs {
				if id < 0 || id > maxID {
					return fmt.Errorf("post_processor: id %d is not between 0 and %d", id, maxID)
				}
				around[side] = append(around[side], uint32(id))
			}
		default:
			return errors.New("post_processor: a template that is not one text between special tokens is not supported")
		}
	}
	if side == 0 {
		return errors.New("post_processor: the template has no place for the text")
	}
	t.before, t.after = slices.Concat(around[0], t.before), slices.Concat(t.after, around[1])
	return nil
}
