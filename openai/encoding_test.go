package openai

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/klauspost/compress/zstd"
)

func gzipped(t testing.TB, plain []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zstandard(t testing.TB, plain []byte, options ...zstd.EOption) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b, append(options, zstd.WithEncoderConcurrency(1))...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// noise returns n bytes that do not compress.
func noise(n int) []byte {
	b := make([]byte, n)
	source := rand.NewChaCha8([32]byte{1})
	source.Read(b)
	return b
}

// limitedMemory is a Memory of limit bytes; limit 0 means no limit.
type limitedMemory struct{ reserved, peak, limit int64 }

var errNoMemory = errors.New("no memory")

func (a *limitedMemory) Reserve(n int64) error {
	if a.limit > 0 && a.reserved+n > a.limit {
		return errNoMemory
	}
	a.reserved += n
	a.peak = max(a.peak, a.reserved)
	return nil
}

func (a *limitedMemory) Return(n int64) { a.reserved -= n }

func TestDecodeReturnsTheBody(t *testing.T) {
	for _, size := range []int{0, 1, firstRead - 1, firstRead, firstRead + 1, 100_000, 1 << 20, 1<<20 + 1, 3 << 20} {
		plain := noise(size)
		zipped, packed := gzipped(t, plain), zstandard(t, plain)
		for _, hint := range []int64{-1, 0, 1, int64(size), int64(size) * 2} {
			const most = 8 << 20
			for _, encoding := range []string{"", "identity", " Identity "} {
				if got, err := Decode(encoding, bytes.NewReader(plain), hint, most, new(limitedMemory)); err != nil ||
					!bytes.Equal(got, plain) {
					t.Errorf("%d bytes as %q, hint %d: %d bytes, %v", size, encoding, hint, len(got), err)
				}
			}
			for _, encoding := range []string{"gzip", "GZIP", "x-gzip"} {
				if got, err := Decode(encoding, bytes.NewReader(zipped), hint, most, new(limitedMemory)); err != nil ||
					!bytes.Equal(got, plain) {
					t.Errorf("%d bytes as %q, hint %d: %d bytes, %v", size, encoding, hint, len(got), err)
				}
			}
			if got, err := Decode("zstd", bytes.NewReader(packed), hint, most, new(limitedMemory)); err != nil ||
				!bytes.Equal(got, plain) {
				t.Errorf("%d bytes of zstd, hint %d: %d bytes, %v", size, hint, len(got), err)
			}
		}
		if got, err := Decode("", iotest.DataErrReader(iotest.HalfReader(bytes.NewReader(plain))), int64(size), 8<<20,
			new(limitedMemory)); err != nil || !bytes.Equal(got, plain) {
			t.Errorf("%d bytes from a slow reader: %d bytes, %v", size, len(got), err)
		}
	}
}

func TestSmallBodyWithContentLengthIsNotCopied(t *testing.T) {
	got, err := Decode("", strings.NewReader(strings.Repeat("x", 5000)), 5000, 1<<20, new(limitedMemory))
	if err != nil || cap(got) > 6<<10 {
		t.Errorf("capacity %d, %v", cap(got), err)
	}
}

func TestOtherEncodingsAreRejected(t *testing.T) {
	for _, encoding := range []string{"br", "zstd, gzip", "deflate", "gzip, gzip", "gzip,gzip", "identity, gzip",
		"gzip;q=1", "gz", ","} {
		_, err := Decode(encoding, strings.NewReader("{}"), 2, 100, new(limitedMemory))
		var rejected *RequestError
		if !errors.As(err, &rejected) || rejected.Reason != CodeUnsupportedEncoding {
			t.Errorf("%q: %v", encoding, err)
		}
	}
}

func TestBodiesOverTheLimitAreRejected(t *testing.T) {
	const most = 200_000
	fits, over := bytes.Repeat([]byte("x"), most), bytes.Repeat([]byte("x"), most+1)
	for _, hint := range []int64{-1, 0, most} {
		for encoding, wrap := range map[string]func([]byte) []byte{"": func(b []byte) []byte { return b },
			"gzip": func(b []byte) []byte { return gzipped(t, b) },
			"zstd": func(b []byte) []byte { return zstandard(t, b) }} {
			if got, err := Decode(encoding, bytes.NewReader(wrap(fits)), hint, most, new(limitedMemory)); err != nil ||
				len(got) != most {
				t.Errorf("%q of %d bytes, hint %d: %d, %v", encoding, most, hint, len(got), err)
			}
			_, err := Decode(encoding, bytes.NewReader(wrap(over)), hint, most, new(limitedMemory))
			var rejected *RequestError
			if !errors.As(err, &rejected) || rejected.Reason != CodeRequestTooLarge ||
				!strings.Contains(rejected.Message, "200000") {
				t.Errorf("%q of %d bytes, hint %d: %v", encoding, most+1, hint, err)
			}
		}
	}
	// The limit also applies to the encoded body, even if the decoded body is smaller.
	incompressible := &countingReader{Reader: bytes.NewReader(gzipped(t, noise(most)))}
	_, err := Decode("gzip", incompressible, -1, most, new(limitedMemory))
	var tooBig *RequestError
	if !errors.As(err, &tooBig) || tooBig.Reason != CodeRequestTooLarge || incompressible.n > most+1 {
		t.Errorf("%d bytes of gzip read: %v", incompressible.n, err)
	}
	for _, encoding := range []string{"", "gzip"} {
		_, err := Decode(encoding, iotest.ErrReader(errors.New("read")), most+1, most, new(limitedMemory))
		var rejected *RequestError
		if !errors.As(err, &rejected) || rejected.Reason != CodeRequestTooLarge {
			t.Errorf("%q with a Content-Length over the limit: %v", encoding, err)
		}
	}
}

// countingReader counts the bytes that are read through it.
type countingReader struct {
	io.Reader
	n int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}

// zeros is an endless body of zeros.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestReadingStopsAtTheLimit(t *testing.T) {
	const most = 4 << 20
	bomb := gzipped(t, make([]byte, 64<<20))
	for name, tt := range map[string]struct {
		encoding string
		body     io.Reader
		hint     int64
		want     Code
		peak     int64
	}{
		"endless":      {"", zeros{}, -1, CodeRequestTooLarge, 3*most/2 + 1},
		"short length": {"", zeros{}, 10, CodeRequestTooLarge, 2 * most},
		// the first megabyte and the buffer of twice that size
		"bomb": {"gzip", bytes.NewReader(bomb), -1, CodeInvalidValue, 3<<20 + unzipBytes},
		"zstd bomb": {"zstd", bytes.NewReader(zstandard(t, make([]byte, 64<<20), zstd.WithWindowSize(1<<20))), -1,
			CodeInvalidValue, 3<<20 + 1<<20 + unpackBytes},
	} {
		c, memory := &countingReader{Reader: tt.body}, new(limitedMemory)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		_, err := Decode(tt.encoding, c, tt.hint, most, memory)
		runtime.ReadMemStats(&after)
		var rejected *RequestError
		if !errors.As(err, &rejected) || rejected.Reason != tt.want {
			t.Errorf("%s: %v", name, err)
		}
		if c.n > most+1 {
			t.Errorf("%s: %d bytes read", name, c.n)
		}
		if memory.peak > tt.peak || memory.reserved > most+1 {
			t.Errorf("%s: %d bytes reserved at the peak, %d at the end", name, memory.peak, memory.reserved)
		}
		// All allocations count: buffers that double add up to twice the last one, and gzip has its
		// window.
		if used := after.TotalAlloc - before.TotalAlloc; used > 5*most/2 {
			t.Errorf("%s: %d bytes allocated", name, used)
		}
	}
}

// A client can send any Content-Length without sending a body.
func TestContentLengthAloneReservesLittle(t *testing.T) {
	const sent = 300_000
	memory := new(limitedMemory)
	cut := io.MultiReader(bytes.NewReader(noise(sent)), iotest.ErrReader(io.ErrUnexpectedEOF))
	if _, err := Decode("", cut, 32<<20, 32<<20, memory); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	if memory.reserved > 4*sent {
		t.Errorf("%d bytes are reserved for %d received ones", memory.reserved, sent)
	}
}

func TestReservationEqualsTheBuffersCapacity(t *testing.T) {
	for _, size := range []int{0, 1, firstRead, 100_000, 3 << 20} {
		plain := noise(size)
		for encoding, body := range map[string][]byte{"": plain, "gzip": gzipped(t, plain), "zstd": zstandard(t, plain)} {
			memory := new(limitedMemory)
			got, err := Decode(encoding, bytes.NewReader(body), int64(len(body)), 4<<20, memory)
			if err != nil || memory.reserved != int64(cap(got)) {
				t.Errorf("%d bytes as %q: %d reserved, capacity %d, %v", size, encoding, memory.reserved, cap(got), err)
			}
		}
	}
}

func TestDecodeFailsWithoutMemory(t *testing.T) {
	plain := noise(1 << 20)
	for encoding, body := range map[string][]byte{"": plain, "gzip": gzipped(t, plain), "zstd": zstandard(t, plain)} {
		for _, limit := range []int64{1, 100_000, 1 << 20} {
			memory := &limitedMemory{limit: limit}
			if _, err := Decode(encoding, bytes.NewReader(body), int64(len(body)), 4<<20, memory); !errors.Is(err, errNoMemory) {
				t.Errorf("%q with %d bytes of memory: %v", encoding, limit, err)
			}
		}
	}
}

// The limit is a hundred times the encoded size, or 1 MiB. The error names the way out.
func TestGzipBombIsRejected(t *testing.T) {
	small, large := make([]byte, ratioFree), make([]byte, 2*ratioFree)
	if _, err := Decode("gzip", bytes.NewReader(gzipped(t, small)), -1, 32<<20, new(limitedMemory)); err != nil {
		t.Errorf("1 MiB of zeros: %v", err)
	}
	_, err := Decode("gzip", bytes.NewReader(gzipped(t, large)), -1, 32<<20, new(limitedMemory))
	var rejected *RequestError
	if !errors.As(err, &rejected) || rejected.Reason != CodeInvalidValue || rejected.Param != "Content-Encoding" ||
		!strings.Contains(rejected.Message, "uncompressed") {
		t.Errorf("2 MiB of zeros: %v", err)
	}
}

func TestGzipMembersAreConcatenated(t *testing.T) {
	one := gzipped(t, []byte("one"))
	two := append(bytes.Clone(one), gzipped(t, []byte("two"))...)
	if got, err := Decode("gzip", bytes.NewReader(two), int64(len(two)), 100, new(limitedMemory)); err != nil ||
		string(got) != "onetwo" {
		t.Errorf("%q, %v", got, err)
	}
	empty := bytes.Repeat(gzipped(t, nil), maxMembers)
	if got, err := Decode("gzip", bytes.NewReader(empty), -1, 1<<20, new(limitedMemory)); err != nil || len(got) != 0 {
		t.Errorf("%q, %v", got, err)
	}
	empty = bytes.Repeat(gzipped(t, nil), maxMembers+1)
	if _, err := Decode("gzip", bytes.NewReader(empty), -1, 1<<20, new(limitedMemory)); err == nil {
		t.Error("a body of more than maxMembers empty members is accepted")
	}
}

func TestBrokenGzipIsRejected(t *testing.T) {
	whole := gzipped(t, []byte(strings.Repeat(`{"model":"m"}`, 10)))
	bad := map[string][]byte{
		"empty": {}, "plain": []byte(`{"model":"m"}`), "zero after it": append(bytes.Clone(whole), 0),
		"text after it":      append(bytes.Clone(whole), "{}"...),
		"long text after it": append(bytes.Clone(whole), strings.Repeat("{}", 20)...),
		"half a member":      append(bytes.Clone(whole), whole[:15]...),
	}
	for n := 1; n < len(whole); n++ {
		bad["cut to "+string(rune('0'+n%10))+strings.Repeat("+", n/10)] = whole[:n]
	}
	sum := bytes.Clone(whole)
	sum[len(sum)-6] ^= 1
	bad["wrong sum"] = sum
	for name, body := range bad {
		got, err := Decode("gzip", bytes.NewReader(body), int64(len(body)), 1<<20, new(limitedMemory))
		var rejected *RequestError
		if !errors.As(err, &rejected) || rejected.Reason != CodeInvalidValue || rejected.Param != "Content-Encoding" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestBrokenConnectionIsNotARequestError(t *testing.T) {
	broken := errors.New("connection reset")
	zipped := gzipped(t, noise(5000))
	for encoding, body := range map[string][]byte{"": []byte("half"), "gzip": zipped[:2000],
		"zstd": zstandard(t, noise(5000))[:2000]} {
		for _, cause := range []error{broken, io.ErrUnexpectedEOF} {
			_, err := Decode(encoding, io.MultiReader(bytes.NewReader(body), iotest.ErrReader(cause)), int64(len(zipped)), 1<<20,
				new(limitedMemory))
			var rejected *RequestError
			if !errors.Is(err, cause) || errors.As(err, &rejected) {
				t.Errorf("%q: %v", encoding, err)
			}
		}
	}
}

// TestZstandardStaysWithinItsBounds: a window, empty frames, and text after the end cost a client nothing.
func TestZstandardStaysWithinItsBounds(t *testing.T) {
	text := []byte(strings.Repeat(`{"model":"m"}`, 100))
	whole := zstandard(t, text)
	frame := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x20, 0, 1, 0, 0} // empty
	skipped := []byte{0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0}
	for name, tt := range map[string]struct {
		body []byte
		want Code // "": accepted
	}{
		"two frames":            {append(bytes.Clone(whole), whole...), ""},
		"an empty frame":        {append(bytes.Clone(frame), whole...), ""},
		"a skippable frame":     {append(bytes.Clone(skipped), whole...), ""},
		"the largest window":    {zstandard(t, noise(9<<20), zstd.WithWindowSize(8<<20)), ""},
		"too large a window":    {zstandard(t, noise(17<<20), zstd.WithWindowSize(16<<20)), CodeInvalidValue},
		"a window of 1 GB":      {[]byte{0x28, 0xb5, 0x2f, 0xfd, 0, 0xa0, 1, 0, 0}, CodeInvalidValue},
		"many empty frames":     {bytes.Repeat(frame, 1<<20), CodeInvalidValue},
		"many skippable frames": {bytes.Repeat(skipped, 1<<20), CodeInvalidValue},
		"a bomb":                {zstandard(t, make([]byte, 2*ratioFree)), CodeInvalidValue},
		"1 MiB of zeros":        {zstandard(t, make([]byte, ratioFree)), ""},
		"empty":                 {nil, CodeInvalidValue},
		"plain text":            {text, CodeInvalidValue},
		"gzip":                  {gzipped(t, text), CodeInvalidValue},
		"cut off":               {whole[:len(whole)-3], CodeInvalidValue},
		"text after it":         {append(bytes.Clone(whole), "{}"...), CodeInvalidValue},
		"a wrong sum":           {append(bytes.Clone(whole[:len(whole)-1]), whole[len(whole)-1]^1), CodeInvalidValue},
		"a foreign dictionary":  {[]byte{0x28, 0xb5, 0x2f, 0xfd, 0x21, 7, 0, 1, 0, 0}, CodeInvalidValue},
	} {
		memory := new(limitedMemory)
		got, err := Decode("zstd", bytes.NewReader(tt.body), int64(len(tt.body)), 32<<20, memory)
		var rejected *RequestError
		if tt.want == "" && err != nil || tt.want != "" && (!errors.As(err, &rejected) || rejected.Reason != tt.want ||
			rejected.Param != "Content-Encoding" || strings.Contains(rejected.Message, "gzip")) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		if err == nil && memory.reserved != int64(cap(got)) {
			t.Errorf("%s: %d bytes stay reserved, of %d", name, memory.reserved, cap(got))
		}
	}
}

// FuzzDecodeGzip compares with the standard library.
func FuzzDecodeGzip(f *testing.F) {
	f.Add(gzipped(f, []byte(`{"model":"m"}`)))
	f.Add(append(gzipped(f, nil), gzipped(f, []byte("x"))...))
	f.Add([]byte{0x1f, 0x8b})
	f.Fuzz(func(t *testing.T, body []byte) {
		const most = 1 << 20
		got, err := Decode("gzip", bytes.NewReader(body), int64(len(body)), most, new(limitedMemory))
		var want []byte
		z, wantErr := gzip.NewReader(bytes.NewReader(body))
		if wantErr == nil {
			want, wantErr = io.ReadAll(io.LimitReader(z, most+1))
		}
		if len(want) > most ||
			err != nil && (strings.Contains(err.Error(), "members") || strings.Contains(err.Error(), "unpacks")) {
			return
		}
		if (err == nil) != (wantErr == nil) || err == nil && !bytes.Equal(got, want) {
			t.Fatalf("%d bytes, %v; the standard library: %d bytes, %v", len(got), err, len(want), wantErr)
		}
	})
}
