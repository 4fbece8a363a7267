package openai

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"
)

const (
	// maxMembers bounds the gzip members of one body: those of a 32 MiB body
	// that a block compressor cut every 64 KiB, twice over. Without it a body
	// of empty members would cost seconds and yield nothing.
	maxMembers = 1024

	firstRead    = 64 << 10 // most chats fit, agents' long ones too
	doublesUntil = 1 << 20
)

// Decode reads a request's body and undoes its Content-Encoding: none, identity
// or gzip. hint is the body's Content-Length, or less than 0 when it is not
// known. Neither what is read nor what comes out of it is longer than most
// bytes, and no more than most and about 1 MiB is held at any time: a body of
// unknown length that outgrows 1 MiB therefore takes all of most at once.
//
// What the sender must change is a *RequestError; any other error is the
// reader's own, wrapped.
func Decode(encoding string, body io.Reader, hint, most int64) ([]byte, error) {
	zipped := false
	switch e := strings.ToLower(strings.Trim(encoding, " \t")); e {
	case "", "identity":
	case "gzip", "x-gzip":
		zipped = true
	default:
		return nil, &RequestError{Reason: CodeUnsupportedEncoding, Param: "Content-Encoding",
			Message: "this Content-Encoding is not supported: send the body plain or as gzip, once"}
	}
	if hint > most {
		return nil, tooLarge(most)
	}
	source := &source{from: body, left: most}
	if !zipped {
		into := buffer{hint: hint, most: most}
		if err := into.readAll(source); err != nil {
			return nil, source.blame(err, most)
		}
		return into.b, nil
	}
	into := buffer{hint: -1, most: most}
	if err := unzip(&into, source); err != nil {
		return nil, source.blame(err, most)
	}
	return into.b, nil
}

func tooLarge(most int64) error {
	return &RequestError{Reason: CodeRequestTooLarge,
		Message: fmt.Sprintf("the request body is larger than %d bytes: send less, or raise max_body_bytes", most)}
}

var (
	errTooLarge       = errors.New("body too large")
	errTooManyMembers = errors.New("too many gzip members")
)

// source reads at most left bytes and remembers what went wrong below it, so
// that a broken connection is told from a broken body.
type source struct {
	from io.Reader
	left int64
	err  error
}

func (s *source) Read(p []byte) (int, error) {
	// One byte more than allowed tells a body that fits from one that does not.
	if int64(len(p)) > s.left+1 {
		p = p[:s.left+1]
	}
	n, err := s.from.Read(p)
	if s.left -= int64(n); s.left < 0 {
		err = errTooLarge
	}
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

// blame turns an error of reading through s into the caller's.
func (s *source) blame(err error, most int64) error {
	switch {
	case errors.Is(err, errTooLarge):
		return tooLarge(most)
	case s.err != nil:
		return fmt.Errorf("reading the request body: %w", s.err)
	case errors.Is(err, errTooManyMembers):
		return &RequestError{Reason: CodeInvalidValue, Param: "Content-Encoding",
			Message: fmt.Sprintf("the request body has more than %d gzip members: compress it as one", maxMembers)}
	}
	return &RequestError{Reason: CodeInvalidValue, Param: "Content-Encoding",
		Message: "the request body is not whole and valid gzip, or has bytes after its end: compress it again, or send it plain"}
}

// unzip decodes all members of a gzip body.
func unzip(into *buffer, from io.Reader) error {
	buffered := bufio.NewReader(from)
	z, err := gzip.NewReader(buffered)
	if err != nil {
		return err
	}
	for range maxMembers {
		// One member at a time, so that they can be counted.
		z.Multistream(false)
		if err := into.readAll(z); err != nil {
			return err
		}
		if err := z.Reset(buffered); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
	return errTooManyMembers
}

// buffer is a byte slice that grows to at most one byte more than most.
type buffer struct {
	b          []byte
	hint, most int64
}

// readAll appends everything that from yields.
func (f *buffer) readAll(from io.Reader) error {
	for {
		if len(f.b) == cap(f.b) {
			f.grow()
		}
		room := f.b[len(f.b):cap(f.b)]
		n, err := from.Read(room)
		f.b = f.b[:len(f.b)+n]
		switch {
		case int64(len(f.b)) > f.most:
			return errTooLarge
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}

// grow makes room. The first buffer is small whatever the hint says, because a
// length costs nothing to claim; a body that has filled it gets its length, and
// one byte in which its end is seen.
func (f *buffer) grow() {
	have := int64(cap(f.b))
	want := f.most + 1
	switch {
	case have == 0 && f.hint >= 0:
		want = min(f.hint+1, firstRead)
	case have == 0:
		want = firstRead
	case have <= f.hint:
		want = f.hint + 1
	case 2*have <= doublesUntil:
		want = 2 * have
	}
	b := make([]byte, len(f.b), min(want, f.most+1))
	copy(b, f.b)
	f.b = b
}
