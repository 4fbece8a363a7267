package admin

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/gin-gonic/gin"
)

// PagePaths returns the paths of the admin UI outside of /admin/. A path that ends in a slash stands for all
// paths below it.
func PagePaths() []string {
	return []string{"/", "/favicon.svg", "/theme.js", "/THIRD_PARTY_LICENSES.txt", "/assets/"}
}

// contentSecurityPolicy permits the page its own files only: neither inline scripts and styles nor other hosts.
const contentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " +
	"worker-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// contentType returns the type of a file. The types of the machine may differ.
func contentType(name string) string {
	switch path.Ext(name) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	case ".txt":
		return "text/plain; charset=utf-8"
	}
	return "application/octet-stream"
}

// asset is one file of the page. It is compressed at its first use.
type asset struct {
	name, etag string
	plain      []byte
	once       sync.Once
	packed     []byte
}

func (a *asset) compressed() []byte {
	a.once.Do(func() {
		var b bytes.Buffer
		w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // the level is valid
		w.Write(a.plain)                                      // a buffer takes everything
		w.Close()                                             // a buffer takes everything
		a.packed = b.Bytes()
	})
	return a.packed
}

// servePage serves the files of the built UI: index.html at / and the others at their paths. The page is public:
// it holds no data, and every request that it sends needs a session.
func servePage(e *gin.Engine, files fs.FS) {
	assets := readAssets(files)
	serve := func(c *gin.Context) {
		name := strings.TrimPrefix(c.Request.URL.Path, "/")
		if name == "" {
			name = "index.html"
		}
		a, known := assets[name]
		if !known {
			Problem(c.Writer, http.StatusNotFound,
				"The admin UI has no such file. Reload the page: it may be of an older version.")
			return
		}
		a.serve(c.Writer, c.Request)
	}
	for _, p := range PagePaths() {
		if p != "/" && strings.HasSuffix(p, "/") {
			p += "*file"
		}
		e.Match([]string{http.MethodGet, http.MethodHead}, p, serve)
	}
}

// readAssets reads all files of the page. Without a build, it returns a page with build instructions.
func readAssets(files fs.FS) map[string]*asset {
	assets := map[string]*asset{}
	add := func(name string, text []byte) {
		sum := sha256.Sum256(text)
		assets[name] = &asset{name: name, plain: text, etag: `"` + hex.EncodeToString(sum[:8]) + `"`}
	}
	// embedded files can be read
	fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return errors.Join(errors.New("reading the admin UI"), err)
		}
		add(name, text)
		return nil
	})
	if assets["index.html"] == nil {
		add("index.html", []byte("<!doctype html><title>Tierway</title><p>The admin UI was not built. Run "+
			"<code>make ui</code>, then build the gateway again. The admin API and the tierway command work without it.\n"))
	}
	return assets
}

// serve writes the file. Names of files below assets/ have a hash of their content, so they never change.
func (a *asset) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", contentType(a.name))
	h.Set("Content-Security-Policy", contentSecurityPolicy)
	h.Set("Vary", "Accept-Encoding")
	if strings.HasPrefix(a.name, "assets/") {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	} else {
		h.Set("Cache-Control", "no-cache")
	}
	body, etag := a.plain, a.etag
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		body, etag = a.compressed(), strings.TrimSuffix(etag, `"`)+`-gzip"`
	}
	h.Set("ETag", etag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
}
