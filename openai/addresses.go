package openai

import (
	"bytes"
	"net/netip"
	"strings"
)

// hiddenAddress replaces an internal address in an engine's error. It needs no escapes in JSON.
const hiddenAddress = "(internal address)"

// addressMost is the longest IPv6 address of a URL in bytes, with its zone and its brackets.
const addressMost = 64

// HideAddresses returns an engine's error without addresses of the operator's network: URLs whose host
// is an IP address, has no dot or belongs to a private domain, and private IP addresses with their
// port. The text may be JSON; it is returned unchanged if there is nothing to hide.
func HideAddresses(text []byte) []byte {
	text = hideURLs(text)
	var out []byte
	done := 0
	for i := 0; i < len(text); {
		from := i
		for i < len(text) && (isDigit(text[i]) || text[i] == '.') {
			i++
		}
		if i == from {
			i++
			continue
		}
		word := bytes.TrimRight(text[from:i], ".")
		if from > 0 && isWordByte(text[from-1]) || !isPrivateIP(string(word)) {
			continue
		}
		end := from + len(word)
		if end < len(text) && text[end] == ':' {
			for end++; end < len(text) && isDigit(text[end]); end++ {
			}
		}
		out = append(append(out, text[done:from]...), hiddenAddress...)
		done, i = end, max(i, end)
	}
	if done == 0 {
		return text
	}
	return append(out, text[done:]...)
}

// hideURLs replaces URLs with an internal host.
func hideURLs(text []byte) []byte {
	var out []byte
	done := 0
	for from := 0; ; {
		n := bytes.Index(text[from:], []byte("://"))
		if n < 0 {
			break
		}
		begin := from + n
		for begin > done && isWordByte(text[begin-1]) {
			begin--
		}
		from += n + len("://")
		end := from
		if bytes.HasPrefix(text[from:], []byte("[")) { // an IPv6 address
			end += bytes.IndexByte(text[from:min(from+addressMost, len(text))], ']') + 1
		}
		for end < len(text) && text[end] > ' ' && !strings.ContainsRune("\"'`<>\\)]},", rune(text[end])) {
			end++
		}
		if isInternalHost(string(text[from:end])) {
			out = append(append(out, text[done:begin]...), hiddenAddress...)
			done = end
		}
		from = end
	}
	if done == 0 {
		return text
	}
	return append(out, text[done:]...)
}

// isInternalHost reports whether a URL without its scheme leads into the operator's network.
func isInternalHost(rest string) bool {
	rest, _, _ = strings.Cut(rest, "/")
	host, _, _ := strings.Cut(rest, "?")
	if at := strings.LastIndexByte(host, '@'); at >= 0 {
		host = host[at+1:]
	}
	if strings.HasPrefix(host, "[") {
		return true
	}
	host, _, _ = strings.Cut(host, ":")
	host = strings.ToLower(strings.TrimRight(host, "."))
	if _, err := netip.ParseAddr(host); err == nil || !strings.Contains(host, ".") {
		return true
	}
	for _, domain := range [...]string{".local", ".internal", ".svc", ".lan", ".localdomain", ".home.arpa", ".intranet",
		".corp"} {
		if strings.HasSuffix(host, domain) {
			return true
		}
	}
	return false
}

// isPrivateIP reports whether a text is an IPv4 address that is not public.
func isPrivateIP(text string) bool {
	a, err := netip.ParseAddr(text)
	return err == nil && (a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsUnspecified())
}

func isDigit(b byte) bool { return '0' <= b && b <= '9' }

func isWordByte(b byte) bool {
	return isDigit(b) || 'a' <= b|0x20 && b|0x20 <= 'z' || b == '+' || b == '-'
}
