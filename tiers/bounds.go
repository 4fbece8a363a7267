package tiers

import "regexp/syntax"

// Bounds of the expressions of a configuration. They hold memory, and a tenant can
// write a prompt that makes many of them run.
const (
	// maxExpressions bounds the expressions of all keywords: a prompt of 16 KB that
	// makes all of them run costs up to 35 µs for a short one.
	maxExpressions = 1000
	// manyExpressions is where a warning begins: up to 7 ms for such a prompt.
	manyExpressions = 200
	// maxSize bounds the instructions of all compiled expressions plus the bytes of
	// their literals, the preset's 23,000 included. Each takes 70 to 260 bytes, so the
	// expressions hold at most 20 to 80 MB.
	maxSize = 300_000
)

// bounded reports whether the keywords have few enough expressions to be compiled.
func (c *checker) checkExpressionCount(keywords []Keyword) bool {
	const key = "classifier.keywords"
	n := 0
	for _, k := range keywords {
		n += len(k.Match)
	}
	switch {
	case n > maxExpressions:
		c.addError(key, "%d expressions: use at most %d: remove rare ones", n, maxExpressions)
	case n > manyExpressions:
		c.addWarning(key, "%d expressions: a long prompt that is made for it can cost several milliseconds: use at most %d",
			n, manyExpressions)
	}
	return n <= maxExpressions
}

// fits reports whether there is room for an expression beside those before it. The
// first for which there is none is an error; it and all after it are not compiled.
func (c *checker) checkSize(key string, re *syntax.Regexp, needs []string) bool {
	before := c.size
	c.size += instructions(re)
	for _, text := range needs {
		c.size += min(len(text), literalBytes)
	}
	if before <= maxSize && c.size > maxSize {
		c.addError(key, "too large: all expressions together have a size of %d, of %d at most: "+
			"shorten repetitions such as {1,500}, or remove expressions", c.size, maxSize)
	}
	return c.size <= maxSize
}

// instructions returns about how many instructions an expression compiles to.
func instructions(re *syntax.Regexp) int {
	n := 1
	switch re.Op {
	case syntax.OpLiteral:
		return len(re.Rune)
	case syntax.OpRepeat:
		return max(re.Min, re.Max, 1) * (instructions(re.Sub[0]) + 1)
	}
	for _, sub := range re.Sub {
		n += instructions(sub)
	}
	return n
}
