package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"tierway/server/control"
	"tierway/store"
	"tierway/telemetry"
)

type operator struct {
	store.Admin
	actor store.Actor
}

type operatorKey struct{}

func actorOf(ctx context.Context) store.Actor {
	o, _ := ctx.Value(operatorKey{}).(operator)
	return o.actor
}

// guard decides who may use an operation, and writes refusals down.
type guard struct {
	control *control.Control
	log     *slog.Logger
	counts  *telemetry.Metrics
	rand    func() uint64
	cross   http.CrossOriginProtection // refuses what a page of another site makes a browser send
	routes  map[string]*operation      // by method and gin's path; written before serving

	mu        sync.Mutex          // guards the rest
	refused   map[string]refusals // by client address
	elsewhere int                 // refusals that were not written down, of addresses that are not in refused
}

// adminPatience bounds one request of the admin API: what it asks the database
// takes milliseconds, and an operator is waiting.
const adminPatience = 10 * time.Second

// check stands before every route of the admin plane: it lets through whose key
// may, and writes refusals down.
func (g *guard) check(c *gin.Context) {
	if !strings.HasPrefix(c.FullPath(), "/admin/") { // metrics, probes, and what is nowhere
		return
	}
	id := control.RequestID(c.Request.Header, g.rand)
	c.Header("X-Request-Id", id)
	o := operator{actor: store.Actor{Via: "api", IP: g.control.Snapshot().ClientIP(c.Request), RequestID: id}}
	op := g.routes[c.Request.Method+" "+c.FullPath()]
	if !g.admitted(c, op, &o) {
		c.Abort()
		return
	}
	ctx := context.WithValue(c.Request.Context(), operatorKey{}, o)
	if op.endless {
		unbound(c)
	} else {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, adminPatience)
		defer cancel()
	}
	c.Request = c.Request.WithContext(ctx)
	c.Next()
	g.noteFailure(c, op, o.actor)
}

// admitted fills in who asks and reports whether they may; if not, it has
// answered.
func (g *guard) admitted(c *gin.Context, op *operation, o *operator) bool {
	if err := g.cross.Check(c.Request); err != nil {
		g.noteRefusal(c.Request, o.actor, "a page of another site")
		Problem(c.Writer, http.StatusForbidden, "A page of another site sent this request. Admin requests come from tools, or from this gateway's own pages.")
		return false
	}
	if len(op.roles) == 0 {
		o.actor.Via, o.actor.Name = "bootstrap", "bootstrap"
		return true
	}
	key, sent := control.Credential(c.Request.Header)
	admin, known := g.control.Snapshot().Identity.AdminOf(key, time.Now())
	if !sent || !known {
		g.refuse(c, o.actor, key)
		return false
	}
	o.Admin, o.actor.Name, o.actor.Role = admin, admin.Name, admin.Role
	if slices.Contains(op.roles, admin.Role) || op.preview && slices.Contains(anybody, admin.Role) && dryRun(c) {
		return true
	}
	g.noteRefusal(c.Request, o.actor, "the role is "+admin.Role)
	detail := fmt.Sprintf("Your key has the role %s; this needs %s.", admin.Role, strings.Join(op.roles, " or "))
	if op.preview {
		detail += " With ?dry_run=true you may see what would happen."
	}
	Problem(c.Writer, http.StatusForbidden, detail)
	return false
}

// dryRun tells whether a request asks for a preview, as its handler reads it.
func dryRun(c *gin.Context) bool {
	on, err := strconv.ParseBool(c.Query("dry_run"))
	return on && err == nil
}

// refuse answers a request without an admin key, and writes down a key that is none.
// A tenant's key is told apart: it is known, and somebody uses it for what it is not.
func (g *guard) refuse(c *gin.Context, actor store.Actor, key string) {
	now, detail := time.Now(), "Send an admin key as `Authorization: Bearer <key>`. If there is none yet: with a database, the gateway logs how to create the first one; without, add `admin.keys` to config.yaml."
	caller, _ := g.control.Snapshot().Identity.Directory.Authenticate(key, now)
	switch {
	case key == "":
	case caller != nil:
		actor.Name = "tenant:" + caller.Tenant
		g.noteRefusal(c.Request, actor, "a tenant's key")
		detail = "This is a tenant's key. The admin plane takes admin keys only."
	default:
		g.counts.AuthFailures.Inc()
		g.noteRefusal(c.Request, actor, "a wrong key")
		if tooMany, wait := g.control.AuthFailures.Add(actor.IP, now); tooMany {
			c.Writer.Header().Set("Retry-After", strconv.Itoa(int(wait/time.Second)+1))
			Problem(c.Writer, http.StatusTooManyRequests, "Too many wrong keys from this address. Try again later; good keys still work.")
			return
		}
	}
	c.Writer.Header().Set("WWW-Authenticate", "Bearer")
	Problem(c.Writer, http.StatusUnauthorized, detail)
}

// noteRefusal writes a refused request to log and audit log.
func (g *guard) noteRefusal(r *http.Request, actor store.Actor, why string) {
	g.noteOnce(r.Context(), actor, "admin.refused", r.Method+" "+r.URL.Path, why)
}

// noteFailure writes down what an operator was refused to change. Reloads write
// their own.
func (g *guard) noteFailure(c *gin.Context, op *operation, actor store.Actor) {
	switch c.Writer.Status() {
	case http.StatusForbidden, http.StatusConflict, http.StatusPreconditionFailed:
	default:
		return
	}
	if c.Request.Method != http.MethodGet && op.id != "reload" && !dryRun(c) {
		g.noteOnce(c.Request.Context(), actor, op.action(), c.Request.URL.Path, "refused: "+http.StatusText(c.Writer.Status()))
	}
}

// refusedMax bounds how many addresses are remembered within a second: more than
// that at once is an attack, and the log has enough of it.
const refusedMax = 1000

// targetMax is the longest target that the audit log can be searched for.
const targetMax = 300

// refusals are those of one address.
type refusals struct {
	second int64 // of the last that was written down
	more   int   // that were not, since then
}

// noteOnce appends to the log and the audit log what changes nothing, at most once a second
// for each address. What was left out before is told by its number.
func (g *guard) noteOnce(ctx context.Context, actor store.Actor, action, target, outcome string) {
	more, elsewhere, first := g.firstOfSecond(actor.IP, time.Now().Unix())
	if !first {
		return
	}
	actor.Name = cmp.Or(actor.Name, "unknown")
	if len(target) > targetMax {
		target = strings.ToValidUTF8(target[:targetMax], "")
	}
	if more > 0 {
		outcome += fmt.Sprintf("; %d more of this address since its last line", more)
	}
	if elsewhere > 0 {
		outcome += fmt.Sprintf("; %d more of other addresses", elsewhere)
	}
	g.log.Warn("an admin request was refused", "actor", actor.Name, "ip", actor.IP, "request_id", actor.RequestID, "target", target, "why", outcome)
	if g.control.Stores.SQL == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditPatience)
	defer cancel()
	if err := g.control.Stores.SQL.AppendAudit(ctx, actor, action, target, "", "", outcome); err != nil {
		g.log.Warn("a refusal could not be written to the audit log", "cause", err.Error())
	}
}

// firstOfSecond reports whether the address has not been written down in this
// second. If so, it returns how many of its refusals were left out since its last,
// and how many of addresses that are forgotten or were never remembered.
func (g *guard) firstOfSecond(ip string, second int64) (more, elsewhere int, first bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	was, known := g.refused[ip]
	if known && was.second == second {
		g.refused[ip] = refusals{second, was.more + 1}
		return 0, 0, false
	}
	if !known && len(g.refused) >= refusedMax {
		for other, at := range g.refused {
			if at.second != second {
				g.elsewhere += at.more
				delete(g.refused, other)
			}
		}
		if len(g.refused) >= refusedMax {
			g.elsewhere++
			return 0, 0, false
		}
	}
	elsewhere, g.elsewhere = g.elsewhere, 0
	g.refused[ip] = refusals{second: second}
	return was.more, elsewhere, true
}

// auditPatience bounds how long a refusal waits to be written down.
const auditPatience = 2 * time.Second

// unbound removes the deadlines of a request whose answer goes on for as long as its
// client reads it. A body, which it should not have, is read first: behind an unread one
// net/http does not see the client leave.
func unbound(c *gin.Context) {
	control := controller(c.Writer)
	if _, err := io.CopyN(io.Discard, c.Request.Body, maxAdminBody); errors.Is(err, io.EOF) {
		control.SetReadDeadline(time.Time{}) //nolint:errcheck // a dead connection shows at the first write
	} else {
		c.Writer.Header().Set("Connection", "close")
	}
	control.SetWriteDeadline(time.Time{}) //nolint:errcheck // a dead connection shows at the first write
}

// controller controls the connection of an answer. gin's own writer has no errors.
func controller(w gin.ResponseWriter) *http.ResponseController {
	return http.NewResponseController(w.(interface{ Unwrap() http.ResponseWriter }).Unwrap())
}
