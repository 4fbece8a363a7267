package engines

import (
	"context"
	"fmt"
	"net/http"
	"sync"
)

// maxStored bounds how many responses are kept; the oldest goes first.
const maxStored = 1024

// stored is one kept response. Its object is never changed, only replaced.
type stored struct {
	resp   map[string]any
	turns  []turn // the conversation up to and with the answer
	cancel context.CancelFunc
	log    *eventLog // of one that can be streamed again; else nil
}

func (s *stored) id() string {
	id, _ := s.resp["id"].(string)
	return id
}

// history leaves the instructions out: OpenAI does not carry them over.
func (s *stored) history() []turn {
	if len(s.turns) > 0 && s.turns[0].role == "system" {
		return s.turns[1:]
	}
	return s.turns
}

// responseStore keeps responses by id.
type responseStore struct {
	mu    sync.Mutex
	byID  map[string]*stored
	order []string
}

func newResponseStore() *responseStore {
	return &responseStore{byID: make(map[string]*stored)}
}

func (rs *responseStore) put(s *stored) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if len(rs.order) == maxStored {
		rs.dropLocked(rs.order[0])
		rs.order = rs.order[1:]
	}
	rs.byID[s.id()] = s
	rs.order = append(rs.order, s.id())
}

func (rs *responseStore) dropLocked(id string) bool {
	s, ok := rs.byID[id]
	if ok && s.cancel != nil {
		s.cancel()
	}
	delete(rs.byID, id)
	return ok
}

// get returns a copy whose object is shared and never changed.
func (rs *responseStore) get(id string) (stored, bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	s, ok := rs.byID[id]
	if !ok {
		return stored{}, false
	}
	return *s, true
}

func (rs *responseStore) remove(id string) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.dropLocked(id)
}

// update replaces the object of a response that is still kept and not cancelled. It
// returns the object that counts.
func (rs *responseStore) update(resp map[string]any) map[string]any {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	id, _ := resp["id"].(string)
	s, ok := rs.byID[id]
	switch {
	case !ok:
		return resp
	case s.resp["status"] != "cancelled":
		s.resp = resp
	}
	return s.resp
}

// cancelled ends a background response and returns its object. Cancelling it again
// changes nothing.
func (rs *responseStore) cancelled(id string) (map[string]any, error) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	s, ok := rs.byID[id]
	switch {
	case !ok:
		return nil, unknownResponse(id)
	case s.cancel == nil:
		return nil, badRequest("response_id", "only background responses can be cancelled")
	}
	switch s.resp["status"] {
	case "cancelled":
	case "queued", "in_progress":
		s.cancel()
		s.resp = withStatus(s.resp, "cancelled")
	default:
		return nil, badRequest("response_id", "a completed response cannot be cancelled")
	}
	return s.resp, nil
}

func (rs *responseStore) cancelAll() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, s := range rs.byID {
		if s.cancel != nil {
			s.cancel()
		}
	}
}

// storedResponse serves GET and DELETE /v1/responses/{id}.
func (e *Engine) storedResponse(w http.ResponseWriter, r *request) error {
	id := r.URL.Path[len("/v1/responses/"):]
	switch r.Method {
	case http.MethodGet:
		s, ok := e.stored.get(id)
		if !ok {
			return unknownResponse(id)
		}
		if r.URL.Query().Get("stream") == "true" {
			return e.resume(w, r, s)
		}
		return writeJSON(w, http.StatusOK, s.resp)
	case http.MethodDelete:
		if !e.stored.remove(id) {
			return unknownResponse(id)
		}
		return writeJSON(w, http.StatusOK, map[string]any{"id": id, "object": "response", "deleted": true})
	}
	w.Header().Set("Allow", "GET, DELETE")
	return &apiError{status: http.StatusMethodNotAllowed, message: fmt.Sprintf("%s takes GET and DELETE, not %s", r.URL.Path, r.Method)}
}

// cancelResponse serves POST /v1/responses/{id}/cancel.
func (e *Engine) cancelResponse(w http.ResponseWriter, r *request) error {
	path := r.URL.Path
	resp, err := e.stored.cancelled(path[len("/v1/responses/") : len(path)-len("/cancel")])
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, resp)
}
