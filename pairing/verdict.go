package pairing

import (
	"bytes"
	"encoding/json"
	"errors"
)

// Verdict states whether the first and whether the second of two answers is right. Both may be, or none.
type Verdict [2]bool

// ErrVerdict is the error of an output that is no verdict. It has no part of the output, which may repeat a prompt.
var ErrVerdict = errors.New("the output is not a JSON object with true or false for each of the two answers")

// ReadVerdict reads the output of a command: one JSON object with a boolean for each of the names, and nothing else.
func ReadVerdict(output []byte, names [2]string) (Verdict, error) {
	v, rest, err := readVerdict(output, names)
	if err == nil && len(bytes.TrimSpace(rest)) > 0 {
		err = ErrVerdict
	}
	return v, err
}

// readVerdict reads the JSON object at the start of a text, and returns the text after it.
func readVerdict(text []byte, names [2]string) (v Verdict, rest []byte, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return v, nil, ErrVerdict
	}
	var seen [2]bool
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return v, nil, ErrVerdict
		}
		value, err := d.Token()
		right, is := value.(bool)
		if err != nil || !is {
			return v, nil, ErrVerdict
		}
		switch {
		case name == names[0] && !seen[0]:
			v[0], seen[0] = right, true
		case name == names[1] && !seen[1]:
			v[1], seen[1] = right, true
		default:
			return v, nil, ErrVerdict
		}
	}
	if end, err := d.Token(); err != nil || end != json.Delim('}') || seen != [2]bool{true, true} {
		return v, nil, ErrVerdict
	}
	return v, text[d.InputOffset():], nil
}
