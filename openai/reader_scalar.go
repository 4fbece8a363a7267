package openai

import "bytes"

// Scalar reads a number, true, false or null and returns it.
func (r *Reader) Scalar() []byte {
	c := r.Next()
	from := r.i
	switch {
	case c == 't':
		r.readLiteral("true")
	case c == 'f':
		r.readLiteral("false")
	case c == 'n':
		r.readLiteral("null")
	case c == 'N' && !r.strict:
		r.readLiteral("NaN")
	case c == 'I' && !r.strict:
		r.readLiteral("Infinity")
	default:
		r.readNumber()
	}
	if r.bad {
		return nil
	}
	return r.b[from:r.i]
}

func (r *Reader) readLiteral(w string) {
	if len(r.b)-r.i < len(w) || string(r.b[r.i:r.i+len(w)]) != w {
		r.unexpected("a value")
		return
	}
	r.i += len(w)
}

func (r *Reader) readNumber() {
	b, i := r.b, r.i
	digits := func(i int) int {
		for i < len(b) && '0' <= b[i] && b[i] <= '9' {
			i++
		}
		return i
	}
	if i < len(b) && b[i] == '-' {
		i++
	}
	whole := i
	if i = digits(i); i == whole {
		if !r.strict && i < len(b) && b[i] == 'I' {
			r.i = i
			r.readLiteral("Infinity")
			return
		}
		r.unexpected("a value")
		return
	}
	if b[whole] == '0' && i > whole+1 {
		r.rejectSyntax(whole, "a number with a leading zero")
		return
	}
	if i < len(b) && b[i] == '.' {
		i++
		fraction := i
		if i = digits(i); i == fraction {
			r.rejectSyntax(i, "a number without digits after its point")
			return
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		exponent := i
		if i = digits(i); i == exponent {
			r.rejectSyntax(i, "a number without digits in its exponent")
			return
		}
	}
	r.i = i
}

// readInteger skips a value and returns it if it is a non-negative integer.
func (r *Reader) readInteger() (n int64, ok bool) {
	v := r.Skip()
	// Eighteen digits always fit into 63 bits.
	if len(v) == 0 || len(v) > 18 {
		return 0, false
	}
	for i, b := range v {
		switch {
		case b >= '0' && b <= '9':
			n = 10*n + int64(b-'0')
		case b == '.' && i > 0:
			return n, len(bytes.Trim(v[i+1:], "0")) == 0
		default:
			return 0, false
		}
	}
	return n, true
}
