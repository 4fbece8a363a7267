package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/trace"

	"tierway/openai"
	"tierway/responsecache"
	"tierway/server/intake"
	"tierway/telemetry"
	"tierway/tenants"
)

// embeddingMax is the largest number of dimensions of a vector, twice that of the largest models.
const embeddingMax = 8192

var errNoEmbedding = errors.New("the answer has no embedding")

// embedded is a text as a vector of length 1.
type embedded struct {
	vector []float32
	model  string // as the engine names it
}

// embed embeds a text with a model of this gateway, within a time. It is a request of the gateway itself: it waits in
// the queue of its pool as an interactive one, is sent once, and is recorded and charged as one of tenants.Gateway. It
// belongs to the trace of parent.
func (px *Proxy) embed(ctx context.Context, model, text string, within time.Duration, parent trace.Span,
) (e embedded, err error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	b := openai.AppendText([]byte(`{"encoding_format":"float","model":`), model)
	body := append(openai.AppendText(append(b, `,"input":`...), text), '}')
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "/v1/embeddings", bytes.NewReader(body))
	if err != nil {
		return e, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Content-Length", strconv.Itoa(len(body)))
	telemetry.Inject(req.Header, parent)
	in, _ := intake.FindRoute(req)
	w := &kept{discarded: discarded{http.Header{}}}
	x := px.begin(w, in)
	x.own, x.caller = true, intake.Caller{Caller: tenants.Gateway()}
	x.run(x.complete)
	if w.status != http.StatusOK {
		return e, errNoEmbedding
	}
	var answer struct {
		Model string
		Data  []struct{ Embedding []float32 }
	}
	if err := json.Unmarshal(w.body.Bytes(), &answer); err != nil {
		return e, err
	}
	if len(answer.Data) != 1 || len(answer.Data[0].Embedding) > embeddingMax ||
		!responsecache.Normalize(answer.Data[0].Embedding) {
		return e, errNoEmbedding
	}
	return embedded{answer.Data[0].Embedding, answer.Model}, nil
}

// kept is the writer of an answer that the gateway reads itself.
type kept struct {
	discarded
	status int
	body   bytes.Buffer
}

func (w *kept) WriteHeader(status int) { w.status = status }

func (w *kept) Write(p []byte) (int, error) { return w.body.Write(p) }

// FlushError does nothing: the whole answer is kept.
func (*kept) FlushError() error { return nil }

// SetWriteDeadline does nothing: no client reads the answer.
func (*kept) SetWriteDeadline(time.Time) error { return nil }
