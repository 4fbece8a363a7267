package training

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"
)

// ErrNoTime is the error of a line without a time.
var ErrNoTime = errors.New("ts is missing: write a time such as 2026-01-31T12:00:00Z")

// errIncomplete is the error of a line that ends inside its object, such as one of a program that crashed.
var errIncomplete = errors.New("the JSON object ends early: write one object per line")

// Timestamp is a time in the format of RFC 3339.
type Timestamp struct{ time.Time }

// UnmarshalJSON reads a time. Its error does not have the text.
func (t *Timestamp) UnmarshalJSON(text []byte) error {
	if t.Time.UnmarshalJSON(text) != nil {
		return errors.New("ts is no time: write one such as 2026-01-31T12:00:00Z")
	}
	return nil
}

// Decode reads one JSON object into a struct. Unknown fields are errors. No error has a name or a value from the text,
// which may be a part of a prompt.
func Decode[T any](text []byte, into *T) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil && d.InputOffset() != int64(len(text)) {
		return errors.New("text follows the JSON object: write one object per line")
	}
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &syntax):
		return fmt.Errorf("byte %d is no valid JSON: write one object per line", syntax.Offset)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errIncomplete
	case errors.As(err, &kind) && kind.Field == "":
		return errors.New("the line is no JSON object")
	case errors.As(err, &kind):
		return fmt.Errorf("%s has a value of another type", kind.Field)
	case strings.HasPrefix(err.Error(), "json: "):
		return fmt.Errorf("unknown field: the fields are %s", strings.Join(fieldsOf[T](), ", "))
	}
	return err // of the fields' own types
}

// fieldsOf returns the names of the JSON fields of a struct.
func fieldsOf[T any]() (names []string) {
	for field := range reflect.TypeFor[T]().Fields() {
		names = append(names, field.Tag.Get("json"))
	}
	return names
}

// EachLine calls read for each line that is not blank, of at most limit bytes. An error names the line after the name
// of the file.
func EachLine(name string, in io.Reader, limit int, read func(text []byte) error) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, limit+1) // and the line break
	n := 0
	for lines.Scan() {
		n++
		if text := bytes.TrimSpace(lines.Bytes()); len(text) > 0 {
			if err := read(text); err != nil {
				return fmt.Errorf("%s:%d: %w", name, n, err)
			}
		}
	}
	err := lines.Err()
	if errors.Is(err, bufio.ErrTooLong) {
		err = fmt.Errorf("the line has more than %d bytes: leave it out", limit)
	}
	if err != nil {
		return fmt.Errorf("%s:%d: %w", name, n+1, err)
	}
	return nil
}
