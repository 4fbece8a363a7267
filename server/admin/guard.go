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
	actor     store.Actor
	session   *session // nil: the request was sent with a key
	sessionID string
}

type operatorKey struct{}

func actorOf(ctx context.Context) store.Actor {
	o, _ := ctx.Value(operatorKey{}).(operator)
	return o.actor
}

// guard checks whether a request may use an operation, and logs rejected requests.
type guard struct {
	control *control.Control
	log     *slog.Logger
	counts  *telemetry.Metrics
	rand    func() uint64
	// flushRecords is Options.FlushRecords.
	flushRecords func()
	origin       http.CrossOriginProtection // rejects requests that a page of another site sent
	sessions     *sessions
	routes       map[string]*operation // by method and gin's path; read-only while serving

	mu        sync.Mutex          // guards the rest
	refused   map[string]refusals // by client address
	elsewhere int                 // omitted rejections of addresses that are not in refused
}

// adminPatience is the time limit of one request of the admin API. Its database queries take
// milliseconds, and an operator waits for the answer.
const adminPatience = 10 * time.Second

// check is the middleware of every route of the admin plane. It passes requests if their key may use
// the operation, and logs all others.
func (g *guard) check(c *gin.Context) {
	if !strings.HasPrefix(c.FullPath(), "/admin/") { // metrics, probes and unknown paths
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
	if op.endless && c.Request.Method == http.MethodHead {
		c.Header("Content-Type", "text/event-stream")
		c.AbortWithStatus(http.StatusOK)
		return
	}
	if len(op.roles) > 0 && g.flushRecords != nil { // the answer may be about requests
		g.flushRecords()
	}
	ctx := context.WithValue(c.Request.Context(), operatorKey{}, o)
	if op.endless {
		removeDeadlines(c)
	} else {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, adminPatience)
		defer cancel()
	}
	c.Request = c.Request.WithContext(ctx)
	c.Next()
	g.logRejectedChange(c, op, o.actor)
}

// admitted sets the operator of a request and reports whether the operator may use op. If not, it
// has written the answer.
func (g *guard) admitted(c *gin.Context, op *operation, o *operator) bool {
	if err := g.origin.Check(c.Request); err != nil {
		g.logRejection(c.Request, o.actor, "a page of another site")
		Problem(c.Writer, http.StatusForbidden,
			"A page of another site sent this request. Send admin requests from a tool, or from this gateway's own pages.")
		return false
	}
	if len(op.roles) == 0 {
		o.actor.Via = "ui" // a login
		o.sessionID = sessionID(c.Request, g.control.Snapshot().File)
		if op.id == "bootstrap" {
			o.actor.Via, o.actor.Name = "bootstrap", "bootstrap"
		}
		return true
	}
	if !g.identify(c, op, o) {
		return false
	}
	admin := o.Admin
	if slices.Contains(op.roles, admin.Role) || op.preview && slices.Contains(allRoles, admin.Role) && dryRun(c) {
		return true
	}
	g.logRejection(c.Request, o.actor, "the role is "+admin.Role)
	detail := fmt.Sprintf("Your key has the role %s; this operation needs the role %s.", admin.Role,
		strings.Join(op.roles, " or "))
	if op.preview {
		detail += " Send ?dry_run=true to preview the result."
	}
	Problem(c.Writer, http.StatusForbidden, detail)
	return false
}

// identify sets the admin of a request, by its key or else by its session. If there is none, it has written the
// answer.
func (g *guard) identify(c *gin.Context, op *operation, o *operator) bool {
	now, identity := time.Now(), g.control.Snapshot().Identity
	key, admin, known := adminOf(identity, c.Request.Header, now)
	// A proxy in front may ask for a password, which browsers send as Basic.
	auth := c.GetHeader("Authorization")
	sent := key != "" || auth != "" && !strings.EqualFold(auth, "Bearer") && !strings.HasPrefix(auth, "Basic ")
	if id := sessionID(c.Request, g.control.Snapshot().File); !sent && id != "" {
		active := c.GetHeader(backgroundHeader) == "" && !op.endless // a browser reconnects a stream by itself
		found, open := g.sessions.findSession(id, active, now)
		if admin, known = identity.AdminWith(found.admin, now); open && known {
			o.session, o.sessionID, o.actor.Via = &found, id, "ui"
		}
		known = known && open
	}
	if !known && sent {
		g.control.Database.RequestRefresh() // the key may be new
	}
	if !known {
		g.rejectKey(c, o.actor, key)
		return false
	}
	o.Admin, o.actor.Name, o.actor.Role = admin, admin.Name, admin.Role
	return true
}

// adminOf returns the admin of the first key of the headers that is an admin's, else the first key.
func adminOf(identity *control.Identity, h http.Header, now time.Time) (key string, admin store.Admin, known bool) {
	for _, sent := range control.Credentials(h) {
		if sent == "" {
			continue
		}
		key = cmp.Or(key, sent)
		if admin, known = identity.AdminOf(sent, now); known {
			return sent, admin, true
		}
	}
	return key, admin, false
}

// mayContinue reports whether an endless answer may continue: the operator's key, and its session if it has one, are
// still valid.
func (g *guard) mayContinue(o operator, now time.Time) bool {
	if o.sessionID != "" {
		if _, open := g.sessions.findSession(o.sessionID, false, now); !open {
			return false
		}
	}
	admin, good := g.control.Snapshot().Identity.AdminWith(o.Digest, now)
	return good && slices.Contains(allRoles, admin.Role)
}

// audit writes a login or logout to the log and the audit log.
func (g *guard) audit(ctx context.Context, actor store.Actor, action string) {
	g.log.Info("a session of the admin UI changed", "action", action, "actor", actor.Name, "ip", actor.IP,
		"request_id", actor.RequestID)
	g.appendAudit(ctx, actor, action, actor.Name, "ok")
}

// dryRun reports whether a request asks for a preview. It parses the parameter as its handler does.
func dryRun(c *gin.Context) bool {
	on, err := strconv.ParseBool(c.Query("dry_run"))
	return on && err == nil
}

// rejectKey answers a request without a valid admin key, and logs an invalid key. The answer to a
// tenant's key names the difference: the key is valid but not for the admin API.
func (g *guard) rejectKey(c *gin.Context, actor store.Actor, key string) {
	now, detail := time.Now(), "Send an admin key as `Authorization: Bearer <key>`. If no admin key exists yet: with a "+
		"database, the gateway logs at its start how to create the first one; without a database, add `admin.keys` to "+
		"config.yaml."
	caller, _ := g.control.Snapshot().Identity.Directory.Authenticate(key, now)
	switch {
	case key == "":
	case caller != nil:
		actor.Name = "tenant:" + caller.Tenant
		g.logRejection(c.Request, actor, "a tenant's key")
		detail = "This is a tenant's key. The admin API accepts admin keys only."
	default:
		g.counts.AuthFailures.Inc()
		g.logRejection(c.Request, actor, "an unknown key")
		detail = "The key is no admin key of this gateway. " + detail
		if tooMany, wait := g.control.AuthFailures.Add(actor.IP, now); tooMany {
			c.Writer.Header().Set("Retry-After", strconv.Itoa(int(wait/time.Second)+1))
			Problem(c.Writer, http.StatusTooManyRequests,
				"Too many invalid keys came from this address. Send a valid key, or try again after the time in Retry-After.")
			return
		}
	}
	c.Writer.Header().Set("WWW-Authenticate", "Bearer")
	Problem(c.Writer, http.StatusUnauthorized, detail)
}

// logRejection writes a rejected request to the log and the audit log.
func (g *guard) logRejection(r *http.Request, actor store.Actor, why string) {
	g.logOncePerSecond(r.Context(), actor, "admin.refused", r.Method+" "+r.URL.Path, why)
}

// logRejectedChange writes a change that its handler rejected to the log and the audit log. Invalid
// requests, unknown names and failures of the database leave no entry.
func (g *guard) logRejectedChange(c *gin.Context, op *operation, actor store.Actor) {
	switch c.Writer.Status() {
	case http.StatusPreconditionFailed:
		if op.id == "reload" { // Control.Reload has written it
			return
		}
	case http.StatusForbidden, http.StatusConflict:
	default:
		return
	}
	if !strings.HasPrefix(op.route, http.MethodGet+" ") && !dryRun(c) {
		g.logOncePerSecond(c.Request.Context(), actor, op.action(), c.Request.URL.Path,
			"refused: "+http.StatusText(c.Writer.Status()))
	}
}

// refusedMax is the largest number of addresses that are tracked within a second. More addresses are an
// attack, which these entries show well enough.
const refusedMax = 1000

// targetMax is the length in bytes of the longest target by which the audit log can be searched.
const targetMax = 300

type refusals struct {
	second int64 // Unix time of the last logged rejection
	more   int   // omitted rejections since then
}

// logOncePerSecond writes a rejected request to the log and the audit log, at most once per second and
// address. The entry has the number of rejections that were omitted before it.
func (g *guard) logOncePerSecond(ctx context.Context, actor store.Actor, action, target, outcome string) {
	more, elsewhere, first := g.firstOfSecond(actor.IP, time.Now().Unix())
	if !first {
		return
	}
	actor.Name = cmp.Or(actor.Name, "unknown")
	if len(target) > targetMax {
		target = strings.ToValidUTF8(target[:targetMax], "")
	}
	if more > 0 {
		outcome += fmt.Sprintf("; %d more from this address since its last line", more)
	}
	if elsewhere > 0 {
		outcome += fmt.Sprintf("; %d more from other addresses", elsewhere)
	}
	g.log.Warn("an admin request was refused", "actor", actor.Name, "ip", actor.IP, "request_id", actor.RequestID,
		"target", target, "why", outcome)
	g.appendAudit(ctx, actor, action, target, outcome)
}

// appendAudit writes an entry without a change to the audit log, if there is a database.
func (g *guard) appendAudit(ctx context.Context, actor store.Actor, action, target, outcome string) {
	if g.control.Stores.SQL == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditPatience)
	defer cancel()
	if err := g.control.Stores.SQL.AppendAudit(ctx, actor, action, target, "", "", outcome); err != nil {
		g.log.Warn("writing to the audit log failed", "action", action, "cause", err.Error())
	}
}

// firstOfSecond reports whether a rejection is the first of its address in this second. If so, it also
// returns the numbers of omitted rejections: more of this address, and elsewhere of addresses that are
// not tracked.
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

// auditPatience is the time limit for writing a rejection to the audit log.
const auditPatience = 2 * time.Second

// removeDeadlines removes the deadlines of a request with an endless answer. It first reads a body, which such
// a request should not have: while a body is unread, net/http does not notice that the client left.
func removeDeadlines(c *gin.Context) {
	control := controller(c.Writer)
	if _, err := io.CopyN(io.Discard, c.Request.Body, maxAdminBody); errors.Is(err, io.EOF) {
		control.SetReadDeadline(time.Time{}) // a dead connection shows at the first write
	} else {
		c.Writer.Header().Set("Connection", "close")
	}
	control.SetWriteDeadline(time.Time{}) // a dead connection shows at the first write
}

// controller returns the controller of an answer's connection. The controller of gin's writer hides errors.
func controller(w gin.ResponseWriter) *http.ResponseController {
	return http.NewResponseController(w.(interface{ Unwrap() http.ResponseWriter }).Unwrap())
}
