package tiers

import "regexp/syntax"

// Bounds of the expressions of a configuration. Expressions hold memory, and a tenant can
// write a prompt for which many of them run.
const (
	// maxExpressions bounds the expressions of all keywords. For a prompt of 16 KB that makes
	// all of them run, each short one costs up to 35 µs.
	maxExpressions = 1000
	// manyExpressions is the number from which check warns: up to 7 ms for such a prompt.
	manyExpressions = 200
	// maxSize bounds the instructions of all compiled expressions plus the bytes of their
	// literals, including the preset's 23,000. Each takes 70 to 260 bytes, which bounds the
	// expressions to 20 to 80 MB.
	maxSize = 300_000
)

// checkExpressionCount reports whether the keywords have few enough expressions to be compiled.
func (c *checker) checkExpressionCount(keywords []Keyword) bool {
	const key = "classifier.keywords"
	n := 0
	for _, k := range keywords {
		n += len(k.Match)
	}
	switch {
	case n > maxExpressions:
		c.addError(key, "%d expressions are too many: use at most %d", n, maxExpressions)
	case n > manyExpressions:
		c.addWarning(key, "%d expressions: a crafted prompt can take several milliseconds to classify: use at most %d",
			n, manyExpressions)
	}
	return n <= maxExpressions
}

// checkSize reports whether an expression fits beside those before it. The first one that does
// not fit is an error; that one and all later ones are not compiled.
func (c *checker) checkSize(key string, size int) bool {
	before := c.size
	c.size += size
	if before <= maxSize && c.size > maxSize {
		c.addError(key, "too large: all expressions together have size %d, and the limit is %d: "+
			"shorten repetitions such as {1,500}, or remove expressions", c.size, maxSize)
	}
	return c.size <= maxSize
}

// sizeOf returns the size of an expression that needs one of these literals.
func sizeOf(re *syntax.Regexp, needs []string) int {
	size := instructions(re)
	for _, text := range needs {
		size += min(len(text), literalBytes)
	}
	return size
}

// instructions estimates the number of instructions of a compiled expression.
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
