package tiers

import (
	"regexp/syntax"
	"slices"
	"unicode"
	"unicode/utf8"
)

const (
	// fewSpellings is how many spellings a literal of any length may have: enough for one or
	// two optional endings, or for four letters of a script with capitals beyond ASCII.
	fewSpellings = 16
	// manySpellings is how many spellings short literals may have, so that `\d ?[+*/] ?\d` is
	// found by its first characters.
	manySpellings = 256
	// selective is the length in bytes from which a literal is rare enough.
	selective = 4
	// maxNeeds bounds the literals of one expression: a list of a thousand words.
	maxNeeds = 1024
)

// literals describes the texts that a part of an expression matches, in lower-case ASCII.
type literals struct {
	known bool     // exact has all texts that the part matches
	exact []string // without context: an assertion is the empty text
	need  []string // each match contains one of these; nil: unknown
}

// needs returns texts of which each match contains at least one, or nil.
func (l literals) needs() []string {
	if !l.known {
		return l.need
	}
	if slices.Contains(l.exact, "") {
		return nil
	}
	return l.exact
}

// required returns the literals of an expression.
func required(re *syntax.Regexp) literals {
	switch re.Op {
	case syntax.OpNoMatch:
		return literals{known: true}
	case syntax.OpEmptyMatch, syntax.OpBeginLine, syntax.OpEndLine, syntax.OpBeginText, syntax.OpEndText,
		syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return literals{known: true, exact: []string{""}}
	case syntax.OpLiteral:
		parts := make([]literals, len(re.Rune))
		for i, r := range re.Rune {
			parts[i] = spellings([]rune{r, r})
		}
		return concat(parts)
	case syntax.OpCharClass:
		return spellings(re.Rune)
	case syntax.OpCapture:
		return required(re.Sub[0])
	case syntax.OpQuest:
		return either([]literals{required(re.Sub[0]), {known: true, exact: []string{""}}})
	case syntax.OpPlus:
		return literals{need: required(re.Sub[0]).needs()}
	case syntax.OpRepeat:
		return repeat(re)
	case syntax.OpConcat:
		return concat(each(re.Sub))
	case syntax.OpAlternate:
		return either(each(re.Sub))
	}
	return literals{}
}

func each(subs []*syntax.Regexp) []literals {
	all := make([]literals, len(subs))
	for i, sub := range subs {
		all[i] = required(sub)
	}
	return all
}

// repeat returns the literals of x{n,m}.
func repeat(re *syntax.Regexp) literals {
	if re.Min == 0 {
		return literals{}
	}
	sub := required(re.Sub[0])
	// More copies than selective only make the literal longer.
	all := concat(slices.Repeat([]literals{sub}, min(re.Min, selective)))
	if re.Min == re.Max && re.Min <= selective {
		return all
	}
	return literals{need: all.needs()}
}

// concat returns the literals of consecutive parts.
func concat(parts []literals) literals {
	all, run, best := true, []string{""}, []string(nil)
	for _, part := range parts {
		if part.known && grows(run, part.exact) {
			run = cross(run, part.exact)
			continue
		}
		all, best = false, rarer(best, run)
		run = []string{""}
		if part.known {
			run = part.exact
		} else {
			best = rarer(best, part.need)
		}
	}
	if all {
		return literals{known: true, exact: run}
	}
	return literals{need: rarer(best, run)}
}

// grows reports whether each text of a run should be extended by each of more.
func grows(run, more []string) bool {
	n := len(run) * len(more)
	return len(more) <= 1 || n <= fewSpellings || n <= manySpellings && shortest(run) < selective
}

func cross(run, more []string) []string {
	all := make([]string, 0, len(run)*len(more))
	for _, a := range run {
		for _, b := range more {
			all = append(all, a+b)
		}
	}
	return unique(all)
}

// either returns the literals of alternatives.
func either(parts []literals) literals {
	all := literals{known: true}
	for _, part := range parts {
		all.known = all.known && part.known && len(all.exact)+len(part.exact) <= manySpellings
		all.exact = append(all.exact, part.exact...)
	}
	all.exact = unique(all.exact)
	if all.known {
		return all
	}
	var need []string
	for _, part := range parts {
		needs := part.needs()
		if len(needs) == 0 && !(part.known && len(part.exact) == 0) || len(need)+len(needs) > maxNeeds {
			return literals{}
		}
		need = append(need, needs...)
	}
	return literals{need: unique(need)}
}

// spellings returns the folded texts of one character of a class, given as pairs of bounds.
func spellings(class []rune) literals {
	var all []string
	for i := 0; i < len(class); i += 2 {
		// A larger class is hardly rarer than any character.
		if class[i+1]-class[i] >= 64 || len(all) >= 128 {
			return literals{}
		}
		for r := class[i]; r <= class[i+1]; r++ {
			for _, s := range orbit(r) {
				// Invalid UTF-8 bytes match as this one too.
				if s == utf8.RuneError || !utf8.ValidRune(s) {
					return literals{}
				}
				all = append(all, string(fold(s)))
			}
		}
	}
	return literals{known: true, exact: unique(all)}
}

// orbit returns all characters that equal r without regard to case.
func orbit(r rune) []rune {
	all := []rune{r}
	for s := unicode.SimpleFold(r); s != r; s = unicode.SimpleFold(s) {
		all = append(all, s)
	}
	return all
}

// fold returns the lower-case form of ASCII letters, and of the Kelvin sign and the long s,
// which match k and s without regard to case: texts are not searched for these two. Other
// characters with several cases have one literal for each.
func fold(r rune) rune {
	switch {
	case 'A' <= r && r <= 'Z':
		return r + 'a' - 'A'
	case r == '\u212a':
		return 'k'
	case r == '\u017f':
		return 's'
	}
	return r
}

func shortest(texts []string) int {
	if len(texts) == 0 {
		return 0
	}
	return len(slices.MinFunc(texts, func(a, b string) int { return len(a) - len(b) }))
}

// rarer returns the literals that are expected to be rarer in a text.
func rarer(a, b []string) []string {
	if frequency(b) < frequency(a) {
		return b
	}
	return a
}

// frequency estimates how often a character of a text ends one of the literals. The shares of
// letters, digits and signs in prose suffice to prefer a sign to a digit and a word to both.
func frequency(texts []string) float64 {
	if len(texts) == 0 || slices.Contains(texts, "") {
		return 1
	}
	sum := 0.0
	for _, text := range texts {
		share := 1.0
		for i := range len(text) {
			switch c := text[i]; {
			case c == ' ':
				share /= 6
			case 'a' <= c && c <= 'z' || c >= utf8.RuneSelf:
				share /= 16
			case '0' <= c && c <= '9':
				share /= 64
			default:
				share /= 128
			}
		}
		sum += share
	}
	return min(sum, 1)
}

func unique(texts []string) []string {
	slices.Sort(texts)
	return slices.Compact(texts)
}
