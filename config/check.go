package config

import (
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"tierway/store"
	"tierway/workers"
)

// check reports every problem of the decoded values, of each value and of their combination.
func (d *decoder) check(f *File) {
	d.checkTexts("", reflect.ValueOf(f).Elem())
	d.checkAddresses(f)
	d.checkTLS("tls", f.TLS)
	d.checkTLS("admin.tls", f.Admin.TLS)
	d.checkAuth(f)
	d.checkOrigins(f)
	d.checkHealth("health", f.Health)
	d.checkPolicy("policy", f.Policy)
	d.checkRules("policy_rules", f.PolicyRules)
	d.checkKeyHeaders(f)
	d.checkBreaker(f)
	d.checkPools(f)
	d.checkWorkers(f)
	d.checkWorkerMaps(f)
	d.checkControllers(f)
	d.checkOwnAddress(f)
	d.readModel(f)
	d.checkCatalog(f)
	d.checkLearning(f)
	d.checkRights(f)
	d.checkContexts(f.Tiers)
	d.checkStore(f)
	d.checkPasswordFiles(f)
	d.checkProxies(f.Proxies)
	d.checkEvents(f)
	d.checkBuffered(f)
	d.checkLimits(f)
	d.checkQueues(f)
	d.checkHealthWeights(f)
	d.checkHandovers(f)
	d.checkHooks(f)
	d.checkCaches(f)
	d.checkRegions(f)
	d.checkDecisions(f)
}

// report adds an error of the value at path, or of its section if the value is missing. Only the first error of a path
// is kept. It returns the problem, so that the caller can set more fields.
func (d *decoder) report(path, message, hint string) *Problem {
	return d.reportAt(path, d.position(path), message, hint)
}

// reportAt is report for a problem at another position.
func (d *decoder) reportAt(path string, at position, message, hint string) *Problem {
	if d.reported[path] && !d.warned[path] {
		return new(Problem)
	}
	d.reported[path] = true
	delete(d.warned, path)
	d.problems = append(d.problems, Problem{File: d.file, Line: at.line, Column: at.column,
		Path: path, Message: d.scrub(message), Hint: d.scrub(hint)})
	return &d.problems[len(d.problems)-1]
}

// warn adds a warning about the value at path, unless the path has an error.
func (d *decoder) warn(path, message, hint string) {
	d.warnAt(path, d.position(path), message, hint)
}

// warnAt is warn for a problem at another position.
func (d *decoder) warnAt(path string, at position, message, hint string) {
	warning := path + ": " + message
	if d.reported[path] && !d.warned[path] || d.reported[warning] {
		return
	}
	d.reportAt(path, at, message, hint).Warning = true
	d.reported[warning], d.warned[path] = true, true
}

// position returns the position of the value at path, or of the section that lacks it.
func (d *decoder) position(path string) position {
	if d.written(path) {
		return d.places[path].value()
	}
	for i := len(path) - 1; i > 0; i-- {
		if p, ok := d.places[path[:i]]; ok && (path[i] == '.' || path[i] == '[') {
			return p.key()
		}
	}
	if len(d.places) > 0 {
		return position{1, 1}
	}
	return position{}
}

// shown returns a value for a message. A value from the environment is shown as the file writes
// it.
func (d *decoder) shown(path, value string) string {
	if raw, expanded := d.raw[path]; expanded {
		return quote(raw)
	}
	return quote(value)
}

// scrub replaces values of environment variables in another package's message.
func (d *decoder) scrub(message string) string {
	for _, name := range slices.Sorted(maps.Keys(d.variables)) {
		quoted := strconv.Quote(d.variables[name])
		message = strings.ReplaceAll(message, quoted[1:len(quoted)-1], "${"+name+"}")
		message = strings.ReplaceAll(message, d.variables[name], "${"+name+"}")
	}
	return message
}

func (d *decoder) written(path string) bool {
	_, ok := d.places[path]
	return ok
}

// checkUnique reports a name that the file already uses.
func (d *decoder) checkUnique(seen map[string]string, path, name string) {
	if name == "" {
		return
	}
	if first, twice := seen[name]; twice {
		d.report(path, d.shown(path, name)+" is already the name at "+first, "choose a unique name")
		return
	}
	seen[name] = path
}

// reportErrors reports the errors of another package. Each joined error begins with a path, a
// colon and a space. rename converts that package's spelling of a path into the file's.
func (d *decoder) reportErrors(err error, rename func(path string) string) {
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	for _, err := range all {
		if err != nil {
			path, message := cutPath(err.Error())
			message, hint := cutHint(message)
			d.report(rename(path), message, hint).hide = strings.HasSuffix(path, ".sha256")
		}
	}
}

// cutPath splits a message after its leading path. A path may contain quoted names with colons.
func cutPath(text string) (path, message string) {
	quoted := false
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '"':
			quoted = !quoted
		case quoted && text[i] == '\\':
			i++
		case !quoted && strings.HasPrefix(text[i:], ": "):
			return text[:i], text[i+2:]
		}
	}
	return "", text
}

// cutHint splits the hint off a message: the text after its last colon.
func cutHint(message string) (text, hint string) {
	at := strings.LastIndex(message, ": ")
	if at < 0 || strings.Count(message[at:], `"`)%2 == 1 {
		return message, ""
	}
	return message[:at], message[at+2:]
}

func (d *decoder) checkOrigins(f *File) {
	at := slices.Index(f.CORS.Origins, "*")
	path := fmt.Sprintf("cors.origins[%d]", at)
	switch {
	case at < 0:
	case len(f.CORS.Origins) > 1:
		d.report(path, `"*" already includes the other origins`, `keep only "*", or remove it`)
	case !f.Auth.Required:
		d.report(path, `"*" lets every web page use the workers, because auth.required is false`,
			"list the origins, or set auth.required: true")
	}
}

func (d *decoder) checkProxies(proxies []string) {
	seen := map[string]bool{}
	for i, text := range proxies {
		path := fmt.Sprintf("trusted_proxies[%d]", i)
		prefix, err := parseProxy(text)
		switch {
		case err != nil: // reported before
		case seen[prefix.String()]:
			d.report(path, d.shown(path, text)+" is listed twice", "remove one of them")
		case prefix.Bits() == 0:
			d.warn(path, d.shown(path, text)+" covers every address: any client could forge its address with X-Forwarded-For",
				"list the proxies' own addresses")
		}
		seen[prefix.String()] = true
	}
}

// checkHealth checks that a health check ends before the next one.
func (d *decoder) checkHealth(path string, h workers.Health) {
	if h.Timeout > h.Interval && h.Path != "off" {
		d.report(path+".timeout", fmt.Sprintf("the timeout %v is longer than the interval %v: checks would overlap",
			h.Timeout, h.Interval), fmt.Sprintf("set timeout to at most %v, or raise interval", h.Interval))
	}
}

// checkBreaker checks what the tags of the breaker section cannot express.
func (d *decoder) checkBreaker(f *File) {
	if factor := f.Breaker.Slow.Factor; factor > 0 && factor <= 1 {
		d.report("breaker.slow.factor", fmt.Sprintf("%v would eject workers that are as fast as their peers", factor),
			"set 0 to turn the check off, or a factor above 1, such as 3")
	}
}

// checkBuffered checks that the memory for bodies can hold the longest one. A growing buffer
// and its replacement exist together, and a tenant may use half of the memory, hence the factor
// of four.
func (d *decoder) checkBuffered(f *File) {
	if least := 4 * f.MaxBodyBytes; f.MaxBufferedBytes != 0 && f.MaxBufferedBytes < least {
		d.report("max_buffered_bytes",
			fmt.Sprintf("%v is less than four times max_body_bytes (%v), so the longest body could not be read",
				f.MaxBufferedBytes, f.MaxBodyBytes), fmt.Sprintf("set at least %v, or lower max_body_bytes", least))
	}
}

const roleAdmin = "admin"

// checkPasswordFiles reports password files that cannot be read, and warns of those without an effect and of those that
// every user can read.
func (d *decoder) checkPasswordFiles(f *File) {
	for _, c := range []struct{ key, file, of, url, scheme string }{
		{"store.sql_password_file", f.Store.SQLPasswordFile, "store.sql", f.Store.SQL, "postgres"},
		{"store.redis_password_file", f.Store.RedisPasswordFile, "store.redis", f.Store.Redis, "redis"},
	} {
		switch {
		case c.file == "":
		case !strings.HasPrefix(c.url, c.scheme):
			d.warn(c.key, "has no effect: "+c.of+" names no server", "set "+c.of+" to a "+c.scheme+":// URL, or remove the key")
		case store.HasPassword(c.url):
			d.report(c.key, c.of+" has a password too", "remove the password from the URL, or remove the key")
		case !d.draft: // a draft must not learn about files
			if err := store.CheckPasswordFile(beside(d.file, c.file)); err != nil {
				d.report(c.key, err.Error(), "write the password into that file, readable by the gateway's user only")
			}
			d.checkSecrecy(c.key, beside(d.file, c.file))
		}
	}
}

// checkStore warns if several gateways would use separate SQLite databases.
func (d *decoder) checkStore(f *File) {
	at, why := "", ""
	switch {
	case !strings.HasPrefix(f.Store.SQL, "sqlite://"):
		return
	case f.Gateways > 1:
		at, why = "gateways", fmt.Sprintf("but gateways is %d", f.Gateways)
	case f.Store.Redis != "":
		at, why = "store.redis", "but store.redis is for several"
	default:
		return
	}
	where := d.places[at].key()
	if d.written("store.sql") {
		where = d.position("store.sql")
	}
	d.warnAt("store.sql", where, "a SQLite file serves one gateway, "+why+
		": each would have its own tenants, keys and ledger",
		"use postgres:// to share tenants, keys and the ledger")
}

// TrustedProxies returns the networks of trusted X-Forwarded-For headers. A single address
// is a network of one address. The caller owns the result.
func (f *File) TrustedProxies() []netip.Prefix {
	var all []netip.Prefix
	for _, text := range f.Proxies {
		if prefix, err := parseProxy(text); err == nil {
			all = append(all, prefix)
		}
	}
	return all
}

// checkFileSize checks the max_size of a rotated file. The least one holds a few hundred records.
func (d *decoder) checkFileSize(path string, size Size) {
	const least = Size(1 << 20)
	if size > 0 && size < least {
		d.report(path, fmt.Sprintf("%v is less than the minimum of %v", size, least), fmt.Sprintf("set at least %v", least))
	}
}

func (d *decoder) checkDecisions(f *File) {
	c := f.Decisions
	d.checkFileSize("decisions.max_size", c.MaxSize)
	if c.File != "" {
		if other := d.sameFile(f); other != "" {
			d.report("decisions.file", d.shown("decisions.file", c.File)+" is "+other,
				"use a separate file, such as decisions.jsonl")
		}
		return
	}
	for _, path := range [...]string{"decisions.max_size", "decisions.max_files"} {
		if d.written(path) {
			d.warn(path, "has no effect without decisions.file",
				"set decisions.file, or remove the key; decisions.keep limits the records in memory")
		}
	}
}

// sameFile returns which other configured file decisions.file names, "" if none. It compares
// paths only.
func (d *decoder) sameFile(f *File) string {
	decisions := d.absolute(f.Decisions.File)
	if decisions == d.absolute(filepath.Base(d.file)) {
		return "the configuration file"
	}
	if database, ok := strings.CutPrefix(f.Store.SQL, "sqlite://"); ok && database != "" {
		for _, suffix := range [...]string{"", "-wal", "-shm", "-journal"} { // files that SQLite creates
			if decisions == d.absolute(database)+suffix {
				return "the database file of store.sql"
			}
		}
	}
	return ""
}

// absolute returns the absolute path of a file that the configuration names.
func (d *decoder) absolute(file string) string {
	file = beside(d.file, file)
	if absolute, err := filepath.Abs(file); err == nil {
		return absolute
	}
	return file
}
