package tierscore

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

const (
	// MaxFile is the size limit of a model's file in bytes.
	MaxFile = 64<<10 - 1
	// maxHeader limits the header of a file. It leaves room for the weights with MaxRoutes.
	maxHeader = 16 << 10
	// maxReport limits the report in the header. The other fields need less than 1 KiB.
	maxReport = 15 << 10
	// magic begins a file.
	magic = "tierway score 1\n"
)

// header is the JSON object at the beginning of a file. It is followed by the routes, four bytes each, and the weights
// of both heads, one byte each.
type header struct {
	Features int             `json:"features"` // version
	Enabled  bool            `json:"enabled"`
	Key      string          `json:"key"`
	Columns  int             `json:"columns"`
	Routes   int             `json:"routes"`
	Small    headHeader      `json:"small"`
	Large    headHeader      `json:"large"`
	Learned  standard        `json:"learned"`
	Baseline standard        `json:"baseline"`
	Report   json.RawMessage `json:"report"`
}

type headHeader struct {
	Bias  float64 `json:"bias"`
	Scale float64 `json:"scale"`
}

// Append appends the model's file to dst. It is an error if the report is too long or no JSON object.
func (m *Model) Append(dst []byte) ([]byte, error) {
	if len(m.Report) > maxReport {
		return nil, fmt.Errorf("the report of the model has %d bytes, at most %d are possible: shorten it", len(m.Report),
			maxReport)
	}
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false) // it would make the report of a read model longer
	err := encoder.Encode(header{
		Features: Version, Enabled: m.Enabled, Columns: Columns, Routes: len(m.routes),
		Key:   hex.EncodeToString(binary.BigEndian.AppendUint32(nil, m.key)),
		Small: headHeader{m.small.bias, m.small.scale}, Large: headHeader{m.large.bias, m.large.scale},
		Learned: m.learned, Baseline: m.baseline, Report: m.Report,
	})
	if err != nil {
		return nil, fmt.Errorf("writing the header of a model: %w", err)
	}
	text := bytes.TrimSuffix(buffer.Bytes(), []byte("\n"))
	dst = append(dst, magic...)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(text)))
	dst = append(dst, text...)
	for _, route := range m.routes {
		dst = binary.LittleEndian.AppendUint32(dst, route)
	}
	for _, h := range [][]int8{m.small.weights, m.large.weights} {
		for _, w := range h {
			dst = append(dst, byte(w))
		}
	}
	return dst, nil
}

// Read reads a model's file. It returns an error unless the whole file has the form that Append writes; a model that it
// returns can score any request.
func Read(in io.Reader) (*Model, error) {
	file, err := io.ReadAll(io.LimitReader(in, MaxFile+1))
	if err != nil {
		return nil, fmt.Errorf("reading a model: %w", err)
	}
	if len(file) > MaxFile {
		return nil, fmt.Errorf("the file has more than %d bytes: it is no model", MaxFile)
	}
	rest, ok := bytes.CutPrefix(file, []byte(magic))
	if !ok || len(rest) < 4 {
		return nil, fmt.Errorf("the file does not begin with %q: it is no model of this release; train again", magic)
	}
	length := binary.LittleEndian.Uint32(rest)
	if rest = rest[4:]; length > maxHeader || int(length) > len(rest) {
		return nil, fmt.Errorf("the header of the model has %d bytes, and the file ends earlier: copy or train it again",
			length)
	}
	var h header
	d := json.NewDecoder(bytes.NewReader(rest[:length]))
	d.DisallowUnknownFields()
	if err := d.Decode(&h); err != nil {
		return nil, fmt.Errorf("reading the header of a model: %w", err)
	}
	if d.InputOffset() != int64(length) {
		return nil, errors.New("the header of the model is more than one JSON object")
	}
	return h.model(rest[length:])
}

// model returns the model of a header and the bytes after it.
func (h *header) model(body []byte) (*Model, error) {
	switch columns := h.Columns + h.Routes; {
	case h.Features != Version:
		return nil, fmt.Errorf("the model has features of version %d, this release takes version %d: train again",
			h.Features, Version)
	case h.Columns != Columns:
		return nil, fmt.Errorf("the model has %d columns, want %d", h.Columns, Columns)
	case h.Routes < 0 || h.Routes > MaxRoutes:
		return nil, fmt.Errorf("the model has %d routes, at most %d are possible", h.Routes, MaxRoutes)
	case len(body) != 4*h.Routes+2*columns:
		return nil, fmt.Errorf("the weights of the model have %d bytes, want %d: copy or train it again", len(body),
			4*h.Routes+2*columns)
	case len(h.Report) > maxReport:
		return nil, fmt.Errorf("the report of the model has more than %d bytes", maxReport)
	case len(h.Report) == 0 || h.Report[0] != '{':
		return nil, errors.New("the report of the model is no JSON object")
	case !h.Small.valid() || !h.Large.valid() || !h.Learned.valid() || !h.Baseline.valid():
		return nil, errors.New("a bias, scale, mean or deviation of the model is out of range")
	}
	m := &Model{Enabled: h.Enabled, Report: []byte(h.Report), learned: h.Learned, baseline: h.Baseline}
	var err error
	if m.key, err = parseHash("key", h.Key); err != nil {
		return nil, fmt.Errorf("reading the header of a model: %w", err)
	}
	for ; len(m.routes) < h.Routes; body = body[4:] {
		m.routes = append(m.routes, binary.LittleEndian.Uint32(body))
	}
	if !ascending(m.routes) {
		return nil, errors.New("the routes of the model are not in rising order")
	}
	half := len(body) / 2
	m.small = head{h.Small.Bias, h.Small.Scale, signed(body[:half])}
	m.large = head{h.Large.Bias, h.Large.Scale, signed(body[half:])}
	return m, nil
}

// maxParameter limits parameters, so that no sum of them overflows.
const maxParameter = 1e12

// valid reports whether the parameters give a finite score.
func (h headHeader) valid() bool {
	return h.Bias >= -maxParameter && h.Bias <= maxParameter && inRange(h.Scale)
}

func (s standard) valid() bool {
	return s.Mean >= -maxParameter && s.Mean <= maxParameter && inRange(s.Deviation)
}

// inRange reports whether a positive factor is neither too small nor too large.
func inRange(x float64) bool { return x >= 1/maxParameter && x <= maxParameter }

func signed(body []byte) []int8 {
	weights := make([]int8, len(body))
	for i, b := range body {
		weights[i] = int8(b)
	}
	return weights
}
