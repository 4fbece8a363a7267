package openai

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/zstd"
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

	// maxWindow is the largest window of a zstd body, which every decoder must support by RFC 8878. unpackBytes is the
	// memory of its decoder beside the window.
	maxWindow   = 8 << 20
	leastWindow = 128 << 10 // of the decoder
	unpackBytes = 512 << 10

	// framesFree limits the bytes of a zstd body that may contain no data, such as empty frames: 50,000 frames take
	// milliseconds. Beyond it, a body decompresses to at least half its size.
	framesFree = 512 << 10
)

// Memory accounts for the memory of bodies.
type Memory interface {
	// Reserve reserves n bytes. Decode stops at its error and returns it.
	Reserve(n int64) error
	// Return releases n reserved bytes.
	Return(n int64)
}

// Decode reads a request body and decodes its Content-Encoding: none, identity, gzip or zstd. hint is
// the Content-Length, or negative if unknown. Neither the encoded nor the decoded body may
// exceed limit bytes. A body may decompress to 100 times its size, or to 1 MiB.
//
// Decode reserves memory before it allocates, so the buffer grows as the body arrives: its
// capacity is at most four times the received bytes. A buffer and its replacement are reserved
// together while both exist. The capacity of the result stays reserved, and after an error that
// of the last buffer: the caller returns it.
//
// An error that the client can correct is a *RequestError. Every other error comes from memory, or
// wraps the error of body.
func Decode(encoding string, body io.Reader, hint, limit int64, memory Memory) ([]byte, error) {
	return DecodeInto(nil, encoding, body, hint, limit, memory)
}

// DecodeInto is Decode into first. The caller has reserved the capacity of first. A longer body gets another buffer.
func DecodeInto(first []byte, encoding string, body io.Reader, hint, limit int64, memory Memory) ([]byte, error) {
	source := &source{from: body, limit: limit}
	into := buffer{b: first[:0], hint: hint, limit: limit, memory: memory}
	read := func() error { return into.ReadAll(source) }
	switch e := strings.ToLower(strings.Trim(encoding, " \t")); e {
	case "", "identity":
	case "gzip", "x-gzip":
		source.encoding, into.compressed = "gzip", source
		read = func() error { return unzip(&into, source) }
	case "zstd":
		source.encoding, into.compressed, source.into = "zstd", source, &into
		read = func() error { return unpack(&into, source) }
	default:
		return nil, &RequestError{Reason: CodeUnsupportedEncoding, Param: "Content-Encoding",
			Message: "Content-Encoding " + Quoted(encoding) +
				" is not supported: send the body uncompressed, or with gzip or zstd once"}
	}
	if hint > limit {
		return nil, tooLarge(limit)
	}
	if into.compressed != nil {
		into.hint = -1
	}
	if err := read(); err != nil {
		return nil, source.convertError(err)
	}
	return into.b, nil
}

func tooLarge(limit int64) error {
	return &RequestError{Reason: CodeRequestTooLarge,
		Message: fmt.Sprintf("the request body exceeds %d bytes: send a smaller body, or raise max_body_bytes", limit)}
}

func badEncoding(format string, args ...any) error {
	return &RequestError{Reason: CodeInvalidValue, Param: "Content-Encoding",
		Message: "the request body " + fmt.Sprintf(format, args...)}
}

// finalError is an error that Decode returns unchanged.
type finalError struct{ error }

// source reads at most a number of bytes and stores the reader's error, which separates broken
// connections from broken bodies.
type source struct {
	from        io.Reader
	encoding    string // gzip or zstd; "" for a plain body
	read, limit int64
	into        *buffer // receives the data; nil if the bytes without data are limited elsewhere
	err         error
}

func (s *source) Read(p []byte) (int, error) {
	// One byte over the limit shows that the body is too long.
	p = p[:min(int64(len(p)), s.limit-s.read+1)]
	n, err := s.from.Read(p)
	s.read += int64(n)
	switch {
	case s.read > s.limit:
		err = finalError{tooLarge(s.limit)}
	case s.into != nil && s.read > framesFree+2*int64(len(s.into.b)):
		err = finalError{badEncoding("has too many %s frames without data: compress it into one frame", s.encoding)}
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
	return badEncoding("is not a complete and valid %s stream, or has bytes after its end: compress it again, or send it "+
		"uncompressed", s.encoding)
}

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
	return finalError{badEncoding("has more than %d gzip members: compress it into one member", maxMembers)}
}

// unpack decodes all frames of a zstd body. No frame may have a larger window than the first one, for which memory is
// reserved.
func unpack(into *buffer, from io.Reader) error {
	buffered := bufio.NewReader(from)
	window, err := firstWindow(buffered)
	if err != nil {
		return err
	}
	if err := into.memory.Reserve(window + unpackBytes); err != nil {
		return finalError{err}
	}
	defer into.memory.Return(window + unpackBytes)
	z, err := zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(uint64(window)))
	if err != nil {
		return err
	}
	defer z.Close()
	err = into.ReadAll(z)
	if errors.Is(err, zstd.ErrWindowSizeExceeded) {
		return finalError{badEncoding("has a zstd frame with a larger window than its first one: compress it into one frame")}
	}
	return err
}

// firstWindow returns the window of the first zstd frame in bytes. Skippable frames before it are read.
func firstWindow(buffered *bufio.Reader) (int64, error) {
	for range maxMembers {
		begin, err := buffered.Peek(zstd.HeaderMaxSize)
		if len(begin) == 0 {
			return 0, err
		}
		var h zstd.Header
		if err := h.Decode(begin); err != nil {
			return 0, err
		}
		if h.Skippable {
			if _, err := io.CopyN(io.Discard, buffered, int64(h.HeaderSize)+int64(h.SkippableSize)); err != nil {
				return 0, err
			}
			continue
		}
		window := h.WindowSize
		if h.SingleSegment {
			window = h.FrameContentSize
		}
		if window > maxWindow {
			return 0, finalError{badEncoding("needs a zstd window of more than %d bytes: compress it with a smaller window",
				maxWindow)}
		}
		return int64(max(window, leastWindow)), nil
	}
	return 0, finalError{badEncoding("has more than %d zstd frames before its data: compress it into one frame",
		maxMembers)}
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
		free := f.b[len(f.b):cap(f.b)]
		n, err := from.Read(free)
		f.b = f.b[:len(f.b)+n]
		switch have := int64(len(f.b)); {
		case have > f.limit:
			return finalError{tooLarge(f.limit)}
		case f.compressed != nil && have > ratioFree && have > maxRatio*f.compressed.read:
			return finalError{badEncoding("decompresses to more than %d times its size: send it uncompressed", maxRatio)}
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}

func (f *buffer) grow() error {
	have := int64(cap(f.b))
	want := NextSize(have, f.hint, f.limit)
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

// NextSize returns the size of the buffer that replaces a full one of have bytes, for a body of at most limit
// bytes. hint is the body's Content-Length, or negative if unknown. An announced length costs its sender
// nothing, so a buffer grows fourfold up to that length plus one byte, in which the end of the body is detected;
// the copies add up to a third of the body. Without a length, it doubles.
func NextSize(have, hint, limit int64) int64 {
	want := 2 * have
	switch {
	case have == 0 && hint >= 0:
		want = min(hint+1, firstRead)
	case have == 0:
		want = firstRead
	case have <= hint && 4*have < hint:
		want = 4 * have
	case have <= hint:
		want = hint + 1
	}
	if want >= limit {
		want = limit + 1 // avoid another copy for one more byte
	}
	return want
}
