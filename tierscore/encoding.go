package tierscore

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"strconv"
)

// fields returns the counts in the order of their JSON.
func (c *counts) fields() (all [byteKinds + 5]*uint32) {
	for i := range c.Kinds {
		all[i] = &c.Kinds[i]
	}
	copy(all[byteKinds:], []*uint32{&c.Choices, &c.Question, &c.Turns, &c.Tools, &c.System})
	return all
}

// AppendJSON appends the features as a JSON object: version, key and route in hexadecimal digits, counts, and the
// sorted buckets as the differences of their numbers, in variable-length integers in base64.
func (f *Features) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"v":`...)
	dst = strconv.AppendInt(dst, Version, 10)
	dst = append(dst, `,"key":"`...)
	dst = hex.AppendEncode(dst, binary.BigEndian.AppendUint32(nil, f.key))
	dst = append(dst, `","route":"`...)
	dst = hex.AppendEncode(dst, binary.BigEndian.AppendUint32(nil, f.route))
	dst = append(dst, `","counts":[`...)
	for i, n := range f.counts.fields() {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, uint64(*n), 10)
	}
	dst = append(dst, `],"words":"`...)
	var words [WordColumns]byte // a difference of two bytes is above 127
	n, last := 0, -1
	for at, set := range f.seen {
		for ; set != 0; set &= set - 1 {
			bucket := at<<6 + bits.TrailingZeros64(set)
			n += binary.PutUvarint(words[n:], uint64(bucket-last-1))
			last = bucket
		}
	}
	return append(base64.RawURLEncoding.AppendEncode(dst, words[:n]), `"}`...)
}

// MarshalJSON implements json.Marshaler by AppendJSON.
func (f *Features) MarshalJSON() ([]byte, error) { return f.AppendJSON(nil), nil }

// encoded is the shape of AppendJSON's object.
type encoded struct {
	Version *int     `json:"v"`
	Key     string   `json:"key"`
	Route   string   `json:"route"`
	Counts  []uint32 `json:"counts"`
	Words   string   `json:"words"`
}

// UnmarshalJSON reads the object that AppendJSON appends. Other versions and unknown fields are errors. No error has a
// name or value of the text.
func (f *Features) UnmarshalJSON(text []byte) error {
	var r encoded
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return errors.New("features are no object of v, key, route, counts and words")
	}
	if r.Version == nil || *r.Version != Version {
		return fmt.Errorf("features have no version %d: record them with this release", Version)
	}
	read := Features{}
	var err error
	if read.key, err = parseHash("key", r.Key); err != nil {
		return err
	}
	if read.route, err = parseHash("route", r.Route); err != nil {
		return err
	}
	fields := read.counts.fields()
	if len(r.Counts) != len(fields) {
		return fmt.Errorf("counts of features are %d numbers, want %d", len(r.Counts), len(fields))
	}
	for i, n := range r.Counts {
		*fields[i] = n
	}
	if err := read.parseWords(r.Words); err != nil {
		return err
	}
	*f = read
	return nil
}

// ParseRoute reads a route as AppendJSON writes it.
func ParseRoute(text string) (uint32, error) { return parseHash("route", text) }

func parseHash(field, text string) (uint32, error) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != 4 {
		return 0, fmt.Errorf("%s is no hash: write eight hexadecimal digits", field)
	}
	return binary.BigEndian.Uint32(b), nil
}

func (f *Features) parseWords(text string) error {
	words, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return errors.New("words of features are not base64")
	}
	last := -1
	for len(words) > 0 {
		difference, n := binary.Uvarint(words)
		if n <= 0 || difference >= WordColumns || last+1+int(difference) >= WordColumns {
			return fmt.Errorf("words of features have a bucket above %d", WordColumns-1)
		}
		last += 1 + int(difference)
		f.seen[last>>6] |= 1 << (last & 63)
		f.buckets++
		words = words[n:]
	}
	return nil
}
