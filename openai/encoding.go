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

	// maxRatio bounds what gzip yields for each byte sent, beyond the first ratioFree.
	// Chats compress 3 to 10 times, repeated text about 30 times; gzip reaches 1,030.
	maxRatio  = 100
	ratioFree = 1 << 20

	firstRead = 64 << 10 // most chats fit, agents' long ones too

	// unzipBytes is what reading gzip takes beside the body: its window, its tables
	// and the bytes read ahead.
	unzipBytes = 48 << 10
)

// Memory accounts for the bytes that a body takes.
type Memory interface {
	// Reserve takes n bytes. Its error ends the reading of the body and is what Decode
	// returns.
	Reserve(n int64) error
	// Return gives back n bytes that Reserve took.
	Return(n int64)
}

// Decode reads a request's body and undoes its Content-Encoding: none, identity
// or gzip. hint is the body's Content-Length, or less than 0 when it is not
// known. Neither what is read nor what comes out of it is longer than most bytes.
// gzip may yield no more than 100 times its own length, or 1 MiB.
//
// Decode reserves bytes of memory before it allocates them, so the body's buffer
// grows as the body arrives: its capacity is at most four times what has arrived. A
// buffer and the one that replaces it are reserved together for as long as both
// exist. The bytes of the result's capacity stay reserved, and after an error those
// of the last buffer: the caller returns them.
//
// What the sender must change is a *RequestError; any other error is that of memory,
// or the reader's own, wrapped.
func Decode(encoding string, body io.Reader, hint, most int64, memory Memory) ([]byte, error) {
	zipped := false
	switch e := strings.ToLower(strings.Trim(encoding, " \t")); e {
	case "", "identity":
	case "gzip", "x-gzip":
		zipped = true
	default:
		return nil, &RequestError{Reason: CodeUnsupportedEncoding, Param: "Content-Encoding",
			Message: "Content-Encoding " + Quoted(encoding) + " is not supported: send the body uncompressed, or with gzip once"}
	}
	if hint > most {
		return nil, tooLarge(most)
	}
	source := &source{from: body, most: most}
	into := buffer{hint: hint, most: most, memory: memory}
	var err error
	if zipped {
		into.hint, into.packed = -1, source
		err = unzip(&into, source)
	} else {
		err = into.ReadAll(source)
	}
	if err != nil {
		return nil, source.blame(err)
	}
	return into.b, nil
}

func tooLarge(most int64) error {
	return &RequestError{Reason: CodeRequestTooLarge,
		Message: fmt.Sprintf("the request body exceeds %d bytes: send a smaller body, or raise max_body_bytes", most)}
}

func badGzip(format string, args ...any) error {
	return &RequestError{Reason: CodeInvalidValue, Param: "Content-Encoding",
		Message: "the request body " + fmt.Sprintf(format, args...)}
}

// finalError is an error that Decode returns as it is.
type finalError struct{ error }

// source reads at most so many bytes and remembers what went wrong below it, so
// that a broken connection is told from a broken body.
type source struct {
	from       io.Reader
	read, most int64
	err        error
}

func (s *source) Read(p []byte) (int, error) {
	// One byte more than allowed tells a body that fits from one that does not.
	p = p[:min(int64(len(p)), s.most-s.read+1)]
	n, err := s.from.Read(p)
	if s.read += int64(n); s.read > s.most {
		err = finalError{tooLarge(s.most)}
	}
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

// blame turns an error of reading through s into the caller's.
func (s *source) blame(err error) error {
	if final, ok := errors.AsType[finalError](err); ok {
		return final.error
	}
	if s.err != nil {
		return fmt.Errorf("reading the request body: %w", s.err)
	}
	return badGzip("is not a complete and valid gzip stream, or has bytes after its end: compress it again, or send it uncompressed")
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
		// One member at a time, so that they can be counted.
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

// buffer is a byte slice that grows to at most one byte more than most.
type buffer struct {
	b          []byte
	hint, most int64
	memory     Memory
	packed     *source // what the bytes are unpacked from; nil for a plain body
}

// ReadAll appends everything that from yields.
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
		case have > f.most:
			return finalError{tooLarge(f.most)}
		case f.packed != nil && have > ratioFree && have > maxRatio*f.packed.read:
			return finalError{badGzip("decompresses to more than %d times its size: send it uncompressed", maxRatio)}
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}

// grow makes room. A length costs nothing to claim, so a buffer grows fourfold up to
// the length that was announced and the byte in which its end is seen: the copies
// come to a third of the body. Without a length it doubles.
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
	if want >= f.most {
		want = f.most + 1 // a byte more must not cost a copy more
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
