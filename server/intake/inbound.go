package intake

import (
	"net/http"
	"strings"
	"time"

	"tierway/openai"
	"tierway/server/control"
	"tierway/store"
	"tierway/tenants"
)

// Inbound is a client's request with its route and its connection.
type Inbound struct {
	HTTP *http.Request
	Snap *control.Snapshot // the configuration that the request keeps to its end

	Pattern     string         // of the route; decisions.RouteOther without one
	Kind        Kind           // of the route
	counts      bool           // the route answers with the length of a prompt
	Dialect     openai.Dialect // of the route; Other for passed paths
	Shape       openai.Dialect // of the errors for the client
	WorkerPath  string
	PathID      string // the :id of the path
	Deployment  string // the model that the path names; "" if the body names it
	prefixed    bool
	prefixClass tenants.Class
	takesForms  bool // the route accepts multipart/form-data
	tierDropped bool // DropTierHeader has removed X-Model-Tier

	RequestID string
	Start     time.Time
	ReadAt    time.Time // when the body, or the head of an upload, was read; zero before
	TooSlow   bool      // the body's deadline has passed, which net/http reports as a client that left
	Memory    BodyMemory

	lookedUp  store.StoredResponse // the last result of lookUpResponse
	known     bool
	lookUpErr error

	header http.Header // header of the answer, for `Connection: close`
	conn   *http.ResponseController
	body   pacedReader // reads HTTP.Body; here because an Inbound is allocated anyway
}

// Begin starts the clock of a request under the configuration snap. header belongs to its answer, and
// conn controls its connection.
func (in *Inbound) Begin(snap *control.Snapshot, rand func() uint64, header http.Header,
	conn *http.ResponseController) {
	in.Snap, in.header, in.conn, in.Start = snap, header, conn, time.Now()
	in.RequestID = control.RequestID(in.HTTP.Header, rand)
}

// Method returns the method for logs and messages: OTHER if it is not a standard one.
func (in *Inbound) Method() string {
	switch m := in.HTTP.Method; m {
	case http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodHead,
		http.MethodOptions:
		return m
	}
	return "OTHER"
}

// closeConnection makes the answer announce that the connection closes after it.
func (in *Inbound) closeConnection() { in.header.Set("Connection", "close") }

// hasBody reports whether the request has a body.
func (in *Inbound) hasBody() bool { return in.HTTP.Body != nil && in.HTTP.Body != http.NoBody }

// class returns the class of a request: by header, path or the body's service_tier, in this order. If
// the caller may not use that class, class is the highest allowed one and asked is the requested one.
func (in *Inbound) class(c *tenants.Caller, serviceTier string) (class tenants.Class, asked string) {
	class = c.Usual
	if named, ok := tenants.ParseClass(strings.ToLower(in.HTTP.Header.Get("X-Request-Priority"))); ok {
		class = named
	} else if in.prefixed {
		class = in.prefixClass
	} else {
		switch serviceTier {
		case "priority":
			class = tenants.Interactive
		case "flex":
			class = tenants.Batch
		}
	}
	had := c.Clamp(class)
	if had != class {
		asked = class.String()
	}
	return had, asked
}

// DropTierHeader removes X-Model-Tier from the request. It is called after a hook has changed the model, so that the
// new model selects the tier.
func (in *Inbound) DropTierHeader() {
	if in.HTTP.Header.Get("X-Model-Tier") == "" {
		return
	}
	in.HTTP.Header = in.HTTP.Header.Clone()
	in.HTTP.Header.Del("X-Model-Tier")
	in.tierDropped = true
}

// singleHeaders are the headers that the gateway evaluates and that may occur only once. A proxy, the
// gateway and an engine could otherwise use different values.
var singleHeaders = []string{
	"Content-Type", "X-Model-Tier", "X-Request-Priority", "X-Session-Id", "Session-Id", "X-Stainless-Timeout",
}

// CheckHeaders returns an error if a header of singleHeaders is repeated.
func (in *Inbound) CheckHeaders() error {
	for _, name := range singleHeaders {
		if len(in.HTTP.Header[name]) > 1 {
			return &openai.Error{Code: openai.CodeInvalidValue, Param: name,
				Message: "The header " + name + " is repeated; send it once."}
		}
	}
	return nil
}
