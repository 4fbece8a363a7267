package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// A splitter returns the end of the first piece of a text that is not empty: a match of its pattern, or
// the text before the first match.
type splitter func(text []byte) (end int)

// The patterns by which families of models split a text before merging. A tokenizer.json names its
// pattern; an unknown one is refused.
const (
	// gpt2Pattern is that of a ByteLevel pre-tokenizer with use_regex.
	gpt2Pattern = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	// llama3Pattern is also that of cl100k_base.
	llama3Pattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|` +
		`\s*[\r\n]+|\s+(?!\S)|\s+`
	// qwen2Pattern is that of Qwen 2, 2.5 and 3; qwen35Pattern that of Qwen 3.5.
	qwen2Pattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|` +
		`\s*[\r\n]+|\s+(?!\S)|\s+`
	qwen35Pattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|` +
		`\s*[\r\n]+|\s+(?!\S)|\s+`
	// The three patterns of DeepSeek V3 and R1, applied one after the other.
	deepseekDigits = `\p{N}{1,3}`
	deepseekHan    = `[一-龥぀-ゟ゠-ヿ]+`
	deepseekWords  = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|" +
		` ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// splitterOf returns the splitter of a pattern; nil if it is not known.
func splitterOf(pattern string) splitter {
	switch pattern {
	case gpt2Pattern:
		return splitGPT2
	case llama3Pattern:
		return func(text []byte) int { return splitLlama(text, 3, isLetter, isMarkup) }
	case qwen2Pattern:
		return func(text []byte) int { return splitLlama(text, 1, isLetter, isMarkup) }
	case qwen35Pattern:
		return func(text []byte) int { return splitLlama(text, 1, isWord, isUnmarked) }
	case deepseekDigits:
		return splitDigits
	case deepseekHan:
		return splitHan
	case deepseekWords:
		return splitWords
	}
	return nil
}

// class is a class of characters in the patterns.
type class uint8

const (
	letter class = iota // \p{L}
	number              // \p{N}
	space               // \s without line breaks
	line                // \r or \n
	mark                // \p{M}
	sign                // \p{P} or \p{S}
	other
)

// classOf returns the first character's class and size. A byte that is not UTF-8 is of class other.
func classOf(text []byte) (c class, size int) {
	if b := text[0]; b < utf8.RuneSelf {
		return asciiClass(b), 1
	}
	r, size := utf8.DecodeRune(text)
	switch {
	case r == utf8.RuneError && size == 1:
		return other, 1
	case unicode.IsLetter(r):
		return letter, size
	case unicode.IsNumber(r):
		return number, size
	case unicode.IsSpace(r):
		return space, size
	case unicode.IsMark(r):
		return mark, size
	case unicode.IsPunct(r), unicode.IsSymbol(r):
		return sign, size
	}
	return other, size
}

func asciiClass(b byte) class {
	switch {
	case 'a' <= b|0x20 && b|0x20 <= 'z':
		return letter
	case '0' <= b && b <= '9':
		return number
	case b == '\n', b == '\r':
		return line
	case b == ' ', '\t' <= b && b <= '\r':
		return space
	case b < ' ', b == 0x7f:
		return other
	}
	return sign
}

// while returns the end of the run of characters from i on for which accept returns true.
func while(text []byte, i int, accept func(class) bool) int {
	for i < len(text) {
		c, size := classOf(text[i:])
		if !accept(c) {
			break
		}
		i += size
	}
	return i
}

func isLetter(c class) bool { return c == letter }
func isNumber(c class) bool { return c == number }
func isLine(c class) bool   { return c == line }
func isSpace(c class) bool  { return c == space || c == line }

// isMarkup is [^\s\p{L}\p{N}].
func isMarkup(c class) bool { return c >= mark }

// isUnmarked is [^\s\p{L}\p{M}\p{N}].
func isUnmarked(c class) bool { return c > mark }

// isWord is [\p{L}\p{M}].
func isWord(c class) bool { return c == letter || c == mark }

func isSign(c class) bool { return c == sign }

// spaces returns the length of a match of \s+(?!\S)|\s+ at the start of a text: all white space, without its
// last character if another character follows.
func spaces(text []byte) int {
	end, last := 0, 0
	for end < len(text) {
		c, size := classOf(text[end:])
		if !isSpace(c) {
			break
		}
		last = end
		end += size
	}
	if end < len(text) && last > 0 {
		return last
	}
	return end
}

// lines returns the length of a match of \s*[\r\n]+ at the start of a text: white space up to its last line
// break; 0 if it has no line break.
func lines(text []byte) int {
	end := 0
	for i := 0; i < len(text); {
		c, size := classOf(text[i:])
		if !isSpace(c) {
			break
		}
		if i += size; c == line {
			end = i
		}
	}
	return end
}

// contraction returns the length of a match of 's|'t|'re|'ve|'m|'ll|'d at the start of a text; 0 if there is
// none. With fold, upper-case letters match too.
func contraction(text []byte, fold bool) int {
	if len(text) < 2 || text[0] != '\'' {
		return 0
	}
	lower := func(i int) byte {
		if i >= len(text) {
			return 0
		}
		if fold && 'A' <= text[i] && text[i] <= 'Z' {
			return text[i] | 0x20
		}
		return text[i]
	}
	switch lower(1) {
	case 's', 't', 'm', 'd':
		return 2
	case 'r', 'v':
		if lower(2) == 'e' {
			return 3
		}
	case 'l':
		if lower(2) == 'l' {
			return 3
		}
	}
	if fold && len(text) >= 3 && text[1] == 0xc5 && text[2] == 0xbf { // ſ folds to s
		return 3
	}
	return 0
}

// afterSpace returns the index behind a space that the text begins with, else 0, and the class of the
// character there.
func afterSpace(text []byte) (from int, c class) {
	c, _ = classOf(text)
	if text[0] == ' ' && len(text) > 1 {
		from = 1
		c, _ = classOf(text[1:])
	}
	return from, c
}

func splitGPT2(text []byte) int {
	if n := contraction(text, false); n > 0 {
		return n
	}
	from, c := afterSpace(text)
	switch {
	case c == letter:
		return while(text, from, isLetter)
	case c == number:
		return while(text, from, isNumber)
	case isMarkup(c):
		return while(text, from, isMarkup)
	}
	return spaces(text)
}

// splitLlama splits by llama3Pattern or a similar one: with numbers of at most so many digits, and with the
// given classes of words and of markup.
func splitLlama(text []byte, digits int, inWord, inMarkup func(class) bool) int {
	if n := contraction(text, true); n > 0 {
		return n
	}
	c, size := classOf(text)
	switch {
	case inWord(c):
		return while(text, size, inWord)
	case c == number:
		return numbers(text, digits)
	case c != line && size < len(text):
		if next, _ := classOf(text[size:]); inWord(next) {
			return while(text, size, inWord)
		}
	}
	if from, c := afterSpace(text); inMarkup(c) {
		return while(text, while(text, from, inMarkup), isLine)
	}
	if n := lines(text); n > 0 {
		return n
	}
	return spaces(text)
}

// numbers returns the end of at most so many numbers at the start of a text.
func numbers(text []byte, maxDigits int) (end int) {
	for range maxDigits {
		if end == len(text) {
			break
		}
		c, size := classOf(text[end:])
		if c != number {
			break
		}
		end += size
	}
	return end
}

func splitDigits(text []byte) int {
	if end := numbers(text, 3); end > 0 {
		return end
	}
	return while(text, 0, func(c class) bool { return c != number })
}

func isHan(r rune) bool { return '一' <= r && r <= '龥' || '぀' <= r && r <= 'ヿ' }

func splitHan(text []byte) (end int) {
	matched := false
	for end < len(text) {
		r, size := utf8.DecodeRune(text[end:])
		if end == 0 {
			matched = isHan(r)
		} else if isHan(r) != matched {
			break
		}
		end += size
	}
	return end
}

func splitWords(text []byte) int {
	if end := wordsMatch(text); end > 0 {
		return end
	}
	// Characters that match no alternative are one piece.
	_, end := classOf(text)
	for end < len(text) && wordsMatch(text[end:]) == 0 {
		_, size := classOf(text[end:])
		end += size
	}
	return end
}

// wordsMatch returns the length of the match of deepseekWords at the start of a text.
func wordsMatch(text []byte) int {
	c, size := classOf(text)
	if c == sign && text[0] < utf8.RuneSelf {
		end := 1
		for end < len(text) && 'a' <= text[end]|0x20 && text[end]|0x20 <= 'z' {
			end++
		}
		if end > 1 {
			return end
		}
	}
	if isWord(c) {
		return while(text, size, isWord)
	}
	if c != line && c != sign && size < len(text) {
		if next, _ := classOf(text[size:]); isWord(next) {
			return while(text, size, isWord)
		}
	}
	if from, c := afterSpace(text); c == sign {
		return while(text, while(text, from, isSign), isLine)
	}
	if n := lines(text); n > 0 {
		return n
	}
	return spaces(text)
}
