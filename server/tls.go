package server

import (
	"crypto/tls"
	"log/slog"
	"os"
	"sync"
	"time"
)

// certificates serves a key pair and reads it again when its files change. A
// pair that does not load leaves the one in force.
type certificates struct {
	cert, key string
	log       *slog.Logger

	mu      sync.Mutex
	current *tls.Certificate
	stamp   [2]time.Time
	checked time.Time
}

// certificateCheck is how often the files are looked at, at most: renewals are
// days apart, handshakes microseconds.
const certificateCheck = time.Second

func newCertificates(cert, key string, log *slog.Logger) (*certificates, error) {
	c := &certificates{cert: cert, key: key, log: log}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	c.current, c.stamp, c.checked = &pair, c.stamps(), time.Now()
	return c, nil
}

// stamps returns the modification times of both files, zero for a missing one.
func (c *certificates) stamps() (t [2]time.Time) {
	for i, name := range []string{c.cert, c.key} {
		if info, err := os.Stat(name); err == nil {
			t[i] = info.ModTime()
		}
	}
	return t
}

// get is tls.Config.GetCertificate.
func (c *certificates) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.checked) >= certificateCheck {
		c.checked = now
		if stamp := c.stamps(); stamp != c.stamp {
			c.stamp = stamp
			if pair, err := tls.LoadX509KeyPair(c.cert, c.key); err == nil {
				c.current = &pair
			} else {
				c.log.Warn("loading a renewed certificate failed; the previous one stays in use", "cert", c.cert, "error",
					err.Error())
			}
		}
	}
	return c.current, nil
}
