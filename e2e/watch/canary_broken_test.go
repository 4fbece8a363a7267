package watch

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
	"unicode"

	"tierway/e2e/rig"
)

// sendBroken sends malformed and incomplete HTTP requests, and requests with names that could forge
// log lines.
func (c *canary) sendBroken() {
	c.T.Helper()
	word := func() string { return c.text("word of a broken request") }
	head := "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + c.key +
		"\r\nContent-Type: application/json\r\n"
	for _, address := range []string{strings.TrimPrefix(c.URL+"", "http://"), strings.TrimPrefix(c.AdminURL, "http://")} {
		for _, raw := range []string{
			"GET /" + word() + " HTTP/1.1\r\nHost: x\r\nA header " + word() + "\r\n\r\n",
			word() + " " + c.bad + "\r\n\r\n",
			"GET /v1/" + word() + " HTTP/9.9\r\nHost: x\r\nAuthorization: Bearer " + c.bad + "\r\n\r\n",
			"GET /%" + word() + " HTTP/1.1\r\nHost: x\r\nCookie: " + c.cookie + "\r\n\r\n",
			head + "Content-Length: 100000\r\n\r\n" + `{"model":"sim","messages":[{"role":"user","content":"` + word(),
			head + "Transfer-Encoding: chunked\r\n\r\n" + word() + "\r\n" + word() + "\r\n",
			head + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n" + word(),
			head + "X-Long: " + strings.Repeat(word(), 100_000) + "\r\n\r\n",
		} {
			c.search(c.T, "the answer to a broken request", c.sendRaw(address, raw), false)
		}
	}
	forged := "\n{\"level\":\"ERROR\",\"msg\":\"request\"}\r\n\x1b[31m\u0085\u2028level=error"
	for _, body := range []string{rig.Chat("any-"+forged, "x"), rig.Chat(forged, "x"),
		rig.Chat("auto", forged, `"user":`+rig.Quoted(forged))} {
		c.Post("/v1/chat/completions", body, "Authorization", "Bearer "+c.key)
	}
	c.Send(c.Request(c.T.Context(), http.MethodGet, "/v1/models/%0Alevel=error%1B%5B31m", "", c.credentials()...))
}

// sendRaw writes raw bytes to an address and returns the response.
func (c *canary) sendRaw(address, raw string) string {
	c.T.Helper()
	conn, err := net.DialTimeout("tcp", address, rig.Patience)
	if err != nil {
		c.T.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(rig.Patience)); err != nil {
		c.T.Fatal(err)
	}
	_, _ = io.WriteString(conn, raw) // the gateway may reject the request before its end
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.CloseWrite() // the gateway may have closed the connection first
	}
	response, _ := io.ReadAll(conn) // the gateway may reset the connection
	return string(response)
}

// checkLogsUnforged checks that each log line is one JSON object without control characters: OB-04.
func (c *canary) checkLogsUnforged() {
	c.T.Helper()
	for line := range strings.Lines(c.Stdout() + c.Log()) {
		if !strings.HasPrefix(line, "{") {
			continue // messages about the configuration before the log starts
		}
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil || fields["time"] == nil {
			c.T.Errorf("a line of the log is no object: %v: %s", err, line)
		}
		for _, sign := range strings.TrimSuffix(line, "\n") {
			if unicode.IsControl(sign) || sign == '\u2028' || sign == '\u2029' {
				c.T.Errorf("a line of the log has the sign %U: %s", sign, line)
			}
		}
	}
	for _, line := range c.AccessLines() {
		if model := fmt.Sprint(line["requested_model"]); line["level"] == "ERROR" || strings.Contains(model, "level") &&
			!strings.HasPrefix(model, "any-") {
			c.T.Errorf("a client has written a line of the access log: %v", line)
		}
	}
}
