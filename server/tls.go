package server

import (
	"crypto/tls"
	"log/slog"
	"os"
	"sync"
	"time"
)

// certificates serves a key pair and reloads it when its files change. If the new pair does not load,
// the current one stays in use.
type certificates struct {
	cert, key string // paths
	log       *slog.Logger

	mu       sync.Mutex
	current  *tls.Certificate
	modified [2]time.Time // of the files at the last load
	checked  time.Time    // when modified was last compared
}

// certificateCheck is the minimum interval between two checks of the files. A renewal is picked up
// soon enough, and few handshakes pay for the check.
const certificateCheck = time.Second

func newCertificates(cert, key string, log *slog.Logger) (*certificates, error) {
	c := &certificates{cert: cert, key: key, log: log}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	c.current, c.modified, c.checked = &pair, c.modTimes(), time.Now()
	return c, nil
}

// modTimes returns the modification times of both files, zero for a missing file.
func (c *certificates) modTimes() (t [2]time.Time) {
	for i, name := range []string{c.cert, c.key} {
		if info, err := os.Stat(name); err == nil {
			t[i] = info.ModTime()
		}
	}
	return t
}

func (c *certificates) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.checked) >= certificateCheck {
		c.checked = now
		if modified := c.modTimes(); modified != c.modified {
			c.modified = modified
			if pair, err := tls.LoadX509KeyPair(c.cert, c.key); err == nil {
				c.current = &pair
			} else {
				c.log.Warn("loading a renewed certificate failed; the previous one stays in use", "cert", c.cert, "cause",
					err.Error())
			}
		}
	}
	return c.current, nil
}
