package proxy

import "net/http"

// headerSet adds headers with one allocation for all of their values.
type headerSet struct {
	h      http.Header
	values []string
}

// maxHeaders is the largest number of headers that one headerSet adds.
const maxHeaders = 12

func setInto(h http.Header) headerSet {
	return headerSet{h: h, values: make([]string, 0, maxHeaders)}
}

// set sets a header; name must be in canonical form.
func (s *headerSet) set(name, value string) {
	s.values = append(s.values, value)
	n := len(s.values)
	s.h[name] = s.values[n-1 : n : n]
}
