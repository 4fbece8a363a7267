package openai

import (
	"bytes"
	"fmt"
	"mime"
	"strings"
)

// Limits on forms. Clients of audio and image endpoints send about a dozen parts with two or
// three short headers each.
const (
	maxParts       = 1000 // the limit of common form parsers
	maxPartHeaders = 8 << 10
	maxFlagBytes   = 5 // "false"

	boundaryCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789'()+_,-./:=? "
)

// ParseMultipart reads the parts model and stream of an audio or images form. Without a model
// part, Model is empty. The caller sets Dialect, which the form does not contain, and must not
// change body afterwards. The error is always a *RequestError: forms that parsers could read in
// different ways are rejected.
func ParseMultipart(contentType string, body []byte) (*Request, error) {
	boundary, err := formBoundary(contentType)
	if err != nil {
		return nil, err
	}
	r := &Request{Body: body, N: 1, place: offsets{form: true, delimiter: "--" + boundary}}
	f := form{body: body, delimiter: []byte(r.place.delimiter), req: r}
	if err := f.read(); err != nil {
		return nil, err
	}
	return r, nil
}

// formBoundary returns the boundary of a Content-Type.
func formBoundary(contentType string) (string, error) {
	// Servers differ in how they read escapes and RFC 2231's extended parameters, and no client
	// needs them.
	if strings.ContainsAny(contentType, `\*`) {
		return "", badForm("the Content-Type has an escaped or extended parameter", "send a plain boundary parameter")
	}
	kind, params, err := mime.ParseMediaType(contentType)
	if err != nil || kind != "multipart/form-data" {
		return "", badForm("the Content-Type is not multipart/form-data with well-formed parameters",
			"send multipart/form-data; boundary=…")
	}
	boundary := params["boundary"]
	const longest = 70 // RFC 2046, 5.1.1
	if boundary == "" || len(boundary) > longest || strings.HasSuffix(boundary, " ") {
		return "", badForm("the Content-Type's boundary is missing, too long or ends with a space",
			"send a boundary of 1 to 70 characters")
	}
	if strings.Trim(boundary, boundaryCharacters) != "" {
		return "", badForm("the Content-Type's boundary has a character that RFC 2046 does not allow",
			"use letters, digits and dashes")
	}
	return boundary, nil
}

func badForm(problem, remedy string) error {
	return &RequestError{Reason: CodeInvalidValue, Message: "invalid form: " + problem + "; " + remedy}
}

type form struct {
	body      []byte
	delimiter []byte
	req       *Request
	hasModel  bool // the part was read
	hasStream bool
}

func (f *form) read() error {
	if !bytes.HasPrefix(f.body, f.delimiter) {
		return badForm("it does not begin with its boundary", "send no text before the first part")
	}
	at := len(f.delimiter)
	for n := 0; ; n++ {
		rest := f.body[at:]
		if bytes.HasPrefix(rest, []byte("--")) {
			if after := rest[2:]; n == 0 || len(after) > 0 && string(after) != "\r\n" {
				return badForm(fmt.Sprintf("it has no parts, or text after its closing boundary at byte %d", at),
					"end it with the closing boundary")
			}
			return nil
		}
		if !bytes.HasPrefix(rest, []byte("\r\n")) {
			return badForm(fmt.Sprintf("the boundary before byte %d is not followed by a line break or two dashes", at),
				"choose a boundary that no part contains")
		}
		if n == maxParts {
			return badForm(fmt.Sprintf("it has more than %d parts", maxParts), "send fewer parts")
		}
		content, headers, err := f.readHeaders(at + 2)
		if err != nil {
			return err
		}
		end, err := f.contentEnd(content)
		if err != nil {
			return err
		}
		next := end + len("\r\n")
		if err := f.readPart(headers, span{content, end}, span{at - len(f.delimiter), next}); err != nil {
			return err
		}
		at = next + len(f.delimiter)
	}
}

// readHeaders returns the header block of the part at from, and the start of its content.
func (f *form) readHeaders(from int) (content int, headers []byte, err error) {
	window := f.body[from:min(len(f.body), from+maxPartHeaders)]
	n := bytes.Index(window, []byte("\r\n\r\n"))
	if n < 0 {
		return 0, nil,
			badForm(fmt.Sprintf("the headers of the part at byte %d do not end within %d bytes", from, maxPartHeaders),
				"send an empty line after them")
	}
	if bytes.Contains(window[:n], f.delimiter) {
		return 0, nil, badForm(fmt.Sprintf("the headers of the part at byte %d contain the boundary", from),
			"choose another boundary")
	}
	return from + n + 4, window[:n], nil
}

// contentEnd returns the end of the content that begins at from: before the line break of the next
// delimiter. A delimiter after a lone CR or LF ends the part for some parsers only and is
// rejected.
func (f *form) contentEnd(from int) (int, error) {
	// For some parsers, the line break after the headers also begins a delimiter.
	for at := from; ; {
		n := bytes.Index(f.body[at:], f.delimiter)
		if n < 0 {
			return 0, badForm("its closing boundary is missing", "send the complete form")
		}
		hit := at + n
		switch {
		case hit >= from+2 && f.body[hit-2] == '\r' && f.body[hit-1] == '\n':
			return hit - 2, nil
		case f.body[hit-1] == '\n' || f.body[hit-1] == '\r':
			return 0, badForm(fmt.Sprintf("the boundary at byte %d does not follow a CRLF line break", hit),
				"choose a boundary that no part contains")
		}
		at = hit + 1
	}
}

// readPart reads one part; whole is its bytes including delimiters.
func (f *form) readPart(headers []byte, content, whole span) error {
	name, file, encoded, err := parsePartHeaders(headers)
	if err != nil {
		return err
	}
	if field := engineFormField(name); field != "" {
		f.req.place.engine = append(f.req.place.engine, engineMember{whole, field})
	}
	f.req.Media = f.req.Media || file
	if name != "model" && name != "stream" {
		return nil
	}
	seen := &f.hasModel
	if name == "stream" {
		seen = &f.hasStream
	}
	if *seen {
		return &RequestError{Reason: CodeAmbiguousJSON, Param: name,
			Message: fmt.Sprintf("duplicate form part %q: form parsers disagree about which value wins; send it once", name)}
	}
	*seen = true
	if file || encoded {
		return &RequestError{Reason: CodeInvalidValue, Param: name,
			Message: name + " must not have a filename or a transfer encoding: send it as a plain form field"}
	}
	if name == "stream" {
		return f.readStream(f.body[content.from:content.to])
	}
	return f.readModel(content)
}

func (f *form) readModel(at span) error {
	value := f.body[at.from:at.to]
	if !isModelName(value) {
		return badModelName(len(value))
	}
	f.req.Model, f.req.place.model = string(value), at
	return nil
}

// readStream reads the words that clients' form encoders write for a boolean.
func (f *form) readStream(value []byte) error {
	if len(value) <= maxFlagBytes {
		switch strings.ToLower(string(value)) {
		case "true", "1":
			f.req.Stream = true
			return nil
		case "false", "0", "":
			return nil
		}
	}
	return &RequestError{Reason: CodeInvalidValue, Param: "stream", Message: "stream must be true or false"}
}

// parsePartHeaders reads the headers of a part: its name, whether it is a file, and whether its
// content is encoded.
func parsePartHeaders(block []byte) (name string, file, encoded bool, err error) {
	described := false
	for line := range strings.SplitSeq(string(block), "\r\n") {
		key, value, ok := strings.Cut(line, ":")
		if !ok || strings.ContainsAny(line, "\r\n\x00") || strings.ContainsAny(key, " \t") || key == "" {
			return "", false, false, badForm("a part has a malformed header", "send one header per line, as name: value")
		}
		value = strings.Trim(value, " \t")
		switch strings.ToLower(key) {
		case "content-disposition":
			if described {
				return "", false, false, badForm("a part has two Content-Disposition headers", "send one per part")
			}
			described = true
			if name, file, err = parseDisposition(value); err != nil {
				return "", false, false, err
			}
		case "content-transfer-encoding":
			switch strings.ToLower(value) {
			case "7bit", "8bit", "binary":
			default:
				encoded = true
			}
		}
	}
	if !described {
		return "", false, false,
			badForm("a part has no Content-Disposition header", `send Content-Disposition: form-data; name="…"`)
	}
	return name, file, encoded, nil
}

// parseDisposition parses a Content-Disposition. A name that only some parsers take for model or
// stream is rejected.
func parseDisposition(value string) (name string, file bool, err error) {
	kind, rest, _ := strings.Cut(value, ";")
	if !strings.EqualFold(strings.TrimSpace(kind), "form-data") {
		return "", false,
			badForm("a part's Content-Disposition is not form-data", `send Content-Disposition: form-data; name="…"`)
	}
	named := false
	for rest != "" {
		var key, raw string
		var ok bool
		if key, raw, rest, ok = cutParameter(rest); !ok {
			return "", false, badForm("a part's Content-Disposition has a malformed parameter", `send name="…" and filename="…"`)
		}
		switch key {
		case "name":
			if named {
				return "", false, badForm("a part has two names", "send one per part")
			}
			named, name = true, raw
		case "name*":
			return "", false, badForm("a part has an extended name parameter", "send a plain name")
		case "filename", "filename*":
			file = true
		}
	}
	if !named {
		return "", false, badForm("a part has no name", `send name="…"`)
	}
	plainName := strings.ReplaceAll(name, `\`, "")
	for _, guarded := range [...]string{"model", "stream"} {
		if name != guarded && (strings.EqualFold(plainName, guarded) ||
			strings.EqualFold(strings.TrimSpace(plainName), guarded)) {
			return "", false, &RequestError{Reason: CodeAmbiguousJSON, Param: guarded,
				Message: fmt.Sprintf("a part's name differs from %q only in case, spaces or escapes: "+
					"form parsers disagree about whether it counts; write it exactly like this", guarded)}
		}
	}
	return name, file, nil
}

// cutParameter cuts one key=value off the front of a header's parameters. The value is raw,
// without its quotes.
func cutParameter(s string) (key, value, rest string, ok bool) {
	key, s, ok = strings.Cut(s, "=")
	key = strings.ToLower(strings.Trim(key, " \t"))
	if !ok || key == "" || strings.ContainsAny(key, " \t\";") {
		return "", "", "", false
	}
	if !strings.HasPrefix(s, `"`) {
		value, rest, _ = strings.Cut(s, ";")
		value = strings.TrimRight(value, " \t")
		return key, value, rest, value != "" && !strings.ContainsAny(value, " \t\"")
	}
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			rest = strings.TrimLeft(s[i+1:], " \t")
			if rest != "" && rest[0] != ';' {
				return "", "", "", false
			}
			return key, s[1:i], strings.TrimPrefix(rest, ";"), true
		}
	}
	return "", "", "", false
}
