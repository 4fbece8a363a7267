package openai

import (
	"strconv"
)

// Feedback is a client's label of an answer: the body of POST /v1/feedback.
type Feedback struct {
	ID     string  // X-Request-Id of the answer
	OK     bool    // the answer was right
	Weight float64 // above 0, at most MaxFeedbackWeight; 1 if the body has none
}

const (
	// MaxFeedback is the longest body of a feedback in bytes. One with the longest id has 190.
	MaxFeedback = 4 << 10
	// MaxFeedbackWeight is the largest weight: a client cannot outweigh the labels of others.
	MaxFeedbackWeight = 1

	feedbackDepth = 4 // nesting of a body; a feedback has 1
)

// ParseFeedback parses the body of a feedback strictly. An error is a *RequestError that names the field. The id is not
// checked.
func ParseFeedback(body []byte) (*Feedback, error) {
	r := Reader{b: body, limit: feedbackDepth, strict: true}
	f := &Feedback{Weight: 1}
	seen := map[string]bool{}
	if r.Next(); len(body) == r.i {
		r.rejectSyntax(r.i, "it is empty")
	}
	for r.Enter('{'); r.More('}'); {
		name := string(r.Name())
		if seen[name] {
			r.reject(CodeAmbiguousJSON, name, "the field %s is given twice: send it once", Quoted(name))
		}
		seen[name] = true
		f.readField(&r, name)
	}
	if !r.bad && !r.AtEnd() {
		r.rejectSyntax(r.i, "text after the object")
	}
	for _, name := range [...]string{"id", "ok"} {
		if !seen[name] {
			r.reject(CodeMissingField, name, "the field %s is missing: send the X-Request-Id of the answer as id, and "+
				"whether it was right as ok", name)
		}
	}
	if r.bad {
		return nil, r.fail
	}
	return f, nil
}

func (f *Feedback) readField(r *Reader, name string) {
	switch name {
	case "id":
		if r.Next() != '"' {
			r.reject(CodeInvalidValue, name, "id is not a string: send the X-Request-Id of the answer")
			return
		}
		raw := r.Str()
		f.ID = string(decoded(raw, len(raw)))
	case "ok":
		switch value := string(r.Skip()); value {
		case "true", "false":
			f.OK = value == "true"
		default:
			r.reject(CodeInvalidValue, name, "ok is not a boolean: send true if the answer was right, or false")
		}
	case "weight":
		weight, err := strconv.ParseFloat(string(r.Skip()), 64)
		if err != nil || !(weight > 0 && weight <= MaxFeedbackWeight) {
			r.reject(CodeInvalidValue, name, "weight is not a number above 0, at most %d: send one such as 0.5, or leave "+
				"it out for 1", MaxFeedbackWeight)
		}
		f.Weight = weight
	default:
		r.reject(CodeInvalidValue, name, "unknown field %s: the fields are id, ok and weight", Quoted(name))
	}
}
