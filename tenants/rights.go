package tenants

import (
	"regexp"
	"slices"
	"strings"
)

// Rights is what a tenant or one of its keys may use. The rights of a key narrow those of its
// tenant and never widen them. The tags describe them for the admin API. A default class above
// priority is stored as set and applies once priority is raised.
type Rights struct {
	Tiers    []string `json:"tiers" required:"false" nullable:"true" maxItems:"500" maxLength:"100" doc:"Names of the tiers and pools that may be used; null or absent: all, []: none."`
	Models   []string `json:"models" required:"false" nullable:"true" maxItems:"500" maxLength:"200" doc:"Globs of the model names that may be requested; null or absent: all, []: none."`
	Priority Class    `json:"priority" required:"false" nullable:"true" enum:"interactive,background,batch" doc:"Highest priority class that may be requested; absent: interactive."`
	Default  Class    `json:"default_priority" required:"false" nullable:"true" enum:"interactive,background,batch" doc:"Class of a request that names none; at most priority."`
}

// permit is the compiled form of Rights. It is immutable.
type permit struct {
	tiers  []string       // nil: all
	models *regexp.Regexp // nil: all
}

func (r Rights) compile() permit {
	p := permit{tiers: slices.Clone(r.Tiers)}
	if r.Models != nil {
		p.models = compile(r.Models)
	}
	return p
}

func (p *permit) allowsTier(name string) bool {
	return p.tiers == nil || slices.Contains(p.tiers, name)
}

func (p *permit) allowsModel(name string) bool { return p.models == nil || p.models.MatchString(name) }

// allowsPassThrough reports whether pass-through requests may use the pool. A tenant that is
// restricted by model needs the pool in its tiers.
func (p *permit) allowsPassThrough(pool string) bool {
	return p.allowsTier(pool) && (p.models == nil || p.tiers != nil)
}

// compile returns one expression for all globs: `*` is any run of characters, `?` exactly one.
// Go matches it in time linear in the name.
func compile(globs []string) *regexp.Regexp {
	if len(globs) == 0 {
		return regexp.MustCompile(`[^\x{0}-\x{10FFFF}]`) // nothing
	}
	alternatives := make([]string, len(globs))
	for i, g := range globs {
		g = regexp.QuoteMeta(strings.ToValidUTF8(g, "\uFFFD"))
		alternatives[i] = strings.NewReplacer(`\*`, `.*`, `\?`, `.`).Replace(g)
	}
	return regexp.MustCompile(`(?s)\A(?:` + strings.Join(alternatives, "|") + `)\z`)
}

// maxPattern bounds a pattern in bytes. A request's model has at most 256.
const maxPattern = 1024

func isWildcard(c byte) bool { return c == '*' || c == '?' }

// Overlap reports whether some text matches both patterns, in which `*` is any run of
// characters and `?` is one. Aliases are patterns too: a right to gpt-4o is a right to a part
// of gpt-4*. Patterns of more than maxPattern bytes overlap with none.
func Overlap(a, b string) bool {
	if len(a) > maxPattern || len(b) > maxPattern {
		return false
	}
	same := 0 // bytes of the common start without wildcards
	for same < min(len(a), len(b)) && !isWildcard(a[same]) && !isWildcard(b[same]) {
		if a[same] != b[same] {
			return false
		}
		same++
	}
	a, b = a[same:], b[same:]
	y := []rune(b)
	// reach[j]: some text matches a up to here and y up to j.
	reach := make([]bool, len(y)+1)
	reach[0] = true
	skipStars(reach, y)
	for _, c := range a {
		next := make([]bool, len(y)+1)
		for j := range reach {
			switch {
			case c == '*':
				// The run may be empty, or take one more of y's characters.
				next[j] = next[j] || reach[j] || j > 0 && next[j-1]
			case j < len(y) && reach[j] && y[j] == '*':
				next[j] = true
			case j < len(y) && reach[j] && (y[j] == c || y[j] == '?' || c == '?'):
				next[j+1] = true
			}
		}
		skipStars(next, y)
		reach = next
	}
	return reach[len(y)]
}

// skipStars lets every `*` of y match the empty text.
func skipStars(reach []bool, y []rune) {
	for j, c := range y {
		if c == '*' && reach[j] {
			reach[j+1] = true
		}
	}
}
