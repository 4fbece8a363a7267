package intake

import (
	"io"
	"math"
	"net/http"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"tierway/config"
	"tierway/server/control"
)

// TestLongBodiesHaveTheirTime: the time in which a body must have arrived grows with its length, however long it is.
func TestLongBodiesHaveTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		last := time.Duration(0)
		for _, n := range []int64{0, 1, bodyRate, 1 << 20, 8 << 30, 9 << 30, 16 << 30, 1 << 40, 1 << 43, 1 << 50,
			math.MaxInt64} {
			if got := bodyTime(n); got < last || n <= 1<<40 && got < time.Duration(n/bodyRate)*time.Second {
				t.Errorf("%d bytes have %v, and fewer bytes %v", n, got, last)
			} else {
				last = got
			}
			body := &silentBody{}
			stall := 30 * time.Second
			file := &config.File{Timeouts: config.Timeouts{ClientStall: stall}}
			in := &Inbound{conn: http.NewResponseController(body),
				Snap: &control.Snapshot{Configuration: control.Configuration{File: file}}}
			body.send = 1 << 10
			for name, r := range map[string]io.Reader{
				"upload":   &Upload{in: in, Length: -1, maxLength: math.MaxInt64, source: timely{body}, n: n},
				"buffered": &pacedReader{r: timely{body}, control: in.conn, start: time.Now(), stall: stall, n: n},
			} {
				if _, err := r.Read(make([]byte, 1)); err != nil && n < math.MaxInt64 {
					t.Errorf("%s: after %d bytes the next one is not read: %v", name, n, err)
				}
			}
		}
	})
}

// timely is a body that has bytes, unless the deadline has passed.
type timely struct{ *silentBody }

func (s timely) Read(p []byte) (int, error) {
	if !s.until.After(time.Now()) {
		return 0, os.ErrDeadlineExceeded
	}
	return s.silentBody.Read(p)
}
