package engines

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// apiError is an error that is returned to the client. Handlers return it only before their first
// byte.
type apiError struct {
	status  int
	message string
	param   string

	afterSchema bool // the request is well-formed: nixl frees the blocks of its object
}

func (e *apiError) Error() string { return e.message }

func badRequest(param, format string, args ...any) *apiError {
	return &apiError{status: http.StatusBadRequest, param: param, message: fmt.Sprintf(format, args...)}
}

// kinds names the statuses in each dialect; immutable.
var kinds = map[int]struct{ openai, anthropic string }{
	http.StatusBadRequest:            {"BadRequestError", "invalid_request_error"},
	http.StatusNotFound:              {"NotFoundError", "not_found_error"},
	http.StatusMethodNotAllowed:      {"MethodNotAllowedError", "invalid_request_error"},
	http.StatusRequestEntityTooLarge: {"BadRequestError", "request_too_large"},
	http.StatusInternalServerError:   {"InternalServerError", "api_error"},
}

// write writes vLLM's form, whose code is the status as a number, or Anthropic's for its paths.
func (e *apiError) write(w http.ResponseWriter, path string) {
	// The result of the write does not matter here.
	_ = writeJSON(w, e.status, e.body(path))
}

func (e *apiError) body(path string) map[string]any {
	kind := kinds[e.status]
	if strings.HasPrefix(path, "/v1/messages") {
		return map[string]any{"type": "error", "error": map[string]any{"type": kind.anthropic, "message": e.message}}
	}
	var param any
	if e.param != "" {
		param = e.param
	}
	return map[string]any{"error": map[string]any{"message": e.message, "type": kind.openai, "param": param,
		"code": e.status}}
}

func writeJSON(w http.ResponseWriter, status int, body any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encoding an answer: %w", err)
	}
	return writeBytes(w, status, "application/json", b)
}

func writeBytes(w http.ResponseWriter, status int, kind string, body []byte) error {
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	_, err := w.Write(body)
	return err
}

// decode parses a JSON body. Its error names a field of the wrong type.
func decode(body []byte, into any) error {
	err := json.Unmarshal(body, into)
	var wrong *json.UnmarshalTypeError
	var refused *apiError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		return refused
	case errors.As(err, &wrong) && wrong.Field != "":
		return badRequest(wrong.Field, "the field %s cannot be a JSON %s", wrong.Field, wrong.Value)
	}
	return badRequest("", "the body is not a valid JSON object: %v", err)
}
