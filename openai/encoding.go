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
	// maxMembers limits the gzip members of one body. A compressor with blocks of 64 KiB writes 512
	// members for a body of 32 MiB. Without a limit, a body of empty members takes seconds.
	maxMembers = 1024

	// maxRatio limits the decompressed bytes per compressed byte, beyond the first ratioFree
	// bytes. Chats compress by 3 to 10, repeated text by about 30; gzip reaches 1,030.
	maxRatio  = 100
	ratioFree = 1 << 20

	firstRead = 64 << 10 // fits most chats, including long ones of agents

	// unzipBytes is the memory of the gzip reader: its window, tables and read-ahead buffer.
	unzipBytes = 48 << 10
)

// Memory accounts for the memory of bodies.
type Memory interface {
	// Reserve reserves n bytes. Decode stops at its error and returns it.
	Reserve(n int64) error
	// Return releases n reserved bytes.
	Return(n int64)
}

// Decode reads a request body and decodes its Content-Encoding: none, identity or gzip. hint is
// the Content-Length, or negative if unknown. Neither the encoded nor the decoded body may
// exceed limit bytes. gzip may decompress to 100 times its size, or to 1 MiB.
//
// Decode reserves memory before it allocates, so the buffer grows as the body arrives: its
// capacity is at most four times the received bytes. A buffer and its replacement are reserved
// together while both exist. The capacity of the result stays reserved, and after an error that
// of the last buffer: the caller returns it.
//
// An error that the client can correct is a *RequestError. Every other error comes from memory, or
// wraps the error of body.
func Decode(encoding string, body io.Reader, hint, limit int64, memory Memory) ([]byte, error) {
	zipped := false
	switch e := strings.ToLower(strings.Trim(encoding, " \t")); e {
	case "", "identity":
	case "gzip", "x-gzip":
		zipped = true
	default:
		return nil, &RequestError{Reason: CodeUnsupportedEncoding, Param: "Content-Encoding",
			Message: "Content-Encoding " + Quoted(encoding) + " is not supported: send the body uncompressed, or with gzip once"}
	}
	if hint > limit {
		return nil, tooLarge(limit)
	}
	source := &source{from: body, limit: limit}
	into := buffer{hint: hint, limit: limit, memory: memory}
	var err error
	if zipped {
		into.hint, into.compressed = -1, source
		err = unzip(&into, source)
	} else {
		err = into.ReadAll(source)
	}
	if err != nil {
		return nil, source.convertError(err)
	}
	return into.b, nil
}

func tooLarge(limit int64) error {
	return &RequestError{Reason: CodeRequestTooLarge,
		Message: fmt.Sprintf("the request body exceeds %d bytes: send a smaller body, or raise max_body_bytes", limit)}
}

func badGzip(format string, args ...any) error {
	return &RequestError{Reason: CodeInvalidValue, Param: "Content-Encoding",
		Message: "the request body " + fmt.Sprintf(format, args...)}
}

// finalError is an error that Decode returns unchanged.
type finalError struct{ error }

// source reads at most a number of bytes and stores the reader's error, which separates broken
// connections from broken bodies.
type source struct {
	from        io.Reader
	read, limit int64
	err         error
}

func (s *source) Read(p []byte) (int, error) {
	// One byte over the limit shows that the body is too long.
	p = p[:min(int64(len(p)), s.limit-s.read+1)]
	n, err := s.from.Read(p)
	if s.read += int64(n); s.read > s.limit {
		err = finalError{tooLarge(s.limit)}
	}
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

// convertError converts an error of reading through s into the caller's error.
func (s *source) convertError(err error) error {
	if final, ok := errors.AsType[finalError](err); ok {
		return final.error
	}
	if s.err != nil {
		return fmt.Errorf("reading the request body: %w", s.err)
	}
	return badGzip("is not a complete and valid gzip stream, or has bytes after its end: compress it again, or send it " +
		"uncompressed")
}

// unzip decodes all members of a gzip body.
func unzip(into *buffer, from io.Reader) error {
	if err := into.memory.Reserve(unzipBytes); err != nil {
		return finalError{err}
	}
	defer into.memory.Return(unzipBytes)
	buffered := bufio.NewReader(from)
	z, err := gzip.NewReader(buffered)
	if err != nil {
		return err
	}
	for range maxMembers {
		// Read one member at a time to count them.
		z.Multistream(false)
		if err := into.ReadAll(z); err != nil {
			return err
		}
		if err := z.Reset(buffered); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
	return finalError{badGzip("has more than %d gzip members: compress it into one member", maxMembers)}
}

// buffer is a byte slice that grows to at most limit+1 bytes.
type buffer struct {
	b           []byte
	hint, limit int64
	memory      Memory
	compressed  *source // source of the compressed bytes; nil for a plain body
}

// ReadAll appends everything that from returns.
func (f *buffer) ReadAll(from io.Reader) error {
	for {
		if len(f.b) == cap(f.b) {
			if err := f.grow(); err != nil {
				return err
			}
		}
		room := f.b[len(f.b):cap(f.b)]
		n, err := from.Read(room)
		f.b = f.b[:len(f.b)+n]
		switch have := int64(len(f.b)); {
		case have > f.limit:
			return finalError{tooLarge(f.limit)}
		case f.compressed != nil && have > ratioFree && have > maxRatio*f.compressed.read:
			return finalError{badGzip("decompresses to more than %d times its size: send it uncompressed", maxRatio)}
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}

// grow enlarges the buffer. A Content-Length costs a client nothing, so the buffer grows
// fourfold up to the announced length plus one byte, in which its end is detected; the copies
// add up to a third of the body. Without a length, it doubles.
func (f *buffer) grow() error {
	have := int64(cap(f.b))
	want := 2 * have
	switch {
	case have == 0 && f.hint >= 0:
		want = min(f.hint+1, firstRead)
	case have == 0:
		want = firstRead
	case have <= f.hint && 4*have < f.hint:
		want = 4 * have
	case have <= f.hint:
		want = f.hint + 1
	}
	if want >= f.limit {
		want = f.limit + 1 // avoid another copy for one more byte
	}
	if err := f.memory.Reserve(want); err != nil {
		return finalError{err}
	}
	b := make([]byte, len(f.b), want)
	copy(b, f.b)
	f.b = b
	if have > 0 {
		f.memory.Return(have)
	}
	return nil
}
