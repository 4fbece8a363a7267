package openai

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// sdksRetry reports whether the official SDKs retry after the row's error.
func sdksRetry(r Row) bool {
	return r.Retry != RetryNever && (r.Status == 408 || r.Status == 409 || r.Status == 429 || r.Status >= 500)
}

// sortedTable returns the error table by status and code.
func sortedTable() []Row {
	return slices.SortedFunc(slices.Values(table), func(a, b Row) int {
		return cmp.Or(a.Status-b.Status, strings.Compare(string(a.Code), string(b.Code)))
	})
}

// errorDoc returns docs/errors.md, generated from the table.
func errorDoc() string {
	var b strings.Builder
	b.WriteString("# Errors\n\n" +
		"<!-- Generated from openai/error_table.go: `UPDATE_DOCS=1 go test ./openai -run TestErrorDoc` writes it. -->\n\n" +
		"Reference of all errors that the gateway itself returns, for developers of clients and for operators. " +
		"\"Operator:\" marks remedies that need access to the gateway. " +
		"If a worker rejects a request with 400, 404, 409, 413 or 422, or because of its content, the client receives the " +
		"worker's status, code and message instead.\n\n" +
		"Bodies have OpenAI's format. `param` names the invalid field, or is null:\n\n" +
		"```json\n" + string((&Error{Code: CodeModelNotFound, Param: "model"}).Body(Chat, "")) + "\n```\n\n" +
		"On `/v1/messages`, bodies have Anthropic's format, which has no code:\n\n" +
		"```json\n" + string((&Error{Code: CodeModelNotFound}).Body(Messages, "req_123")) + "\n```\n\n" +
		"A stream that fails after its first content ends with an error event instead of its usual terminator. " +
		"On `/v1/responses` the error has two events:\n\n```\n")
	for _, d := range []Dialect{Chat, Responses, Messages} {
		b.Write((&Error{Code: CodeWorkerError}).Frame(d))
	}
	b.WriteString("```\n\n" +
		"The official SDKs retry 408, 409, 429 and 5xx at most twice. The header `x-should-retry: false` stops them in these cases:\n\n" +
		"- the column \"SDKs retry\" has never;\n" +
		"- the gateway has retried the request, and the error has no `Retry-After`;\n" +
		"- the request alone exceeds its rate limit;\n" +
		"- Retry-After exceeds one minute, the longest wait that openai-node obeys.\n\n" +
		"| status | code | type | type on /v1/messages | SDKs retry | what it means | what to do " +
		"|\n|---|---|---|---|---|---|---|\n")
	for _, r := range sortedTable() {
		retry := "no"
		switch {
		case r.Retry == RetryNever:
			retry = "never (`x-should-retry: false`)"
		case r.Retry == RetryAfter:
			retry = "after `Retry-After`"
		case sdksRetry(r):
			retry = "yes"
		}
		fmt.Fprintf(&b, "| %d | `%s` | `%s` | `%s` | %s | %s | %s |\n", r.Status, r.Code, r.Type, r.Anthropic, retry,
			r.Meaning, r.Remedy)
	}
	return b.String()
}

func TestErrorDocIsGeneratedFromTheTable(t *testing.T) {
	const path = "../docs/errors.md"
	want := errorDoc()
	if os.Getenv("UPDATE_DOCS") == "1" {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s differs from the table: UPDATE_DOCS=1 go test ./openai -run TestErrorDoc writes it", path)
	}
}
