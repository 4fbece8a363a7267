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
	id     string
	resp   map[string]any
	turns  []turn             // the conversation up to and with the answer
	cancel context.CancelFunc // of a background response; else nil
	log    *eventLog          // of one that can be streamed again; else nil
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
		if oldest := rs.byID[rs.order[0]]; oldest != nil {
			rs.dropLocked(oldest)
		}
		rs.order = rs.order[1:]
	}
	rs.byID[s.id] = s
	rs.order = append(rs.order, s.id)
}

func (rs *responseStore) dropLocked(s *stored) {
	if s.cancel != nil {
		s.cancel()
	}
	delete(rs.byID, s.id)
}

// with calls do with a kept response, under the store's lock.
func (rs *responseStore) with(id string, do func(s *stored) error) error {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	s, ok := rs.byID[id]
	if !ok {
		return &apiError{status: http.StatusNotFound, param: "response_id", message: fmt.Sprintf("no response with the id %q is stored here", id)}
	}
	return do(s)
}

// get returns a copy whose object is shared and never changed.
func (rs *responseStore) get(id string) (s stored, err error) {
	err = rs.with(id, func(kept *stored) error { s = *kept; return nil })
	return s, err
}

// update replaces the object of a response that is still kept and not cancelled. It
// returns the object that counts.
func (rs *responseStore) update(resp map[string]any) map[string]any {
	id, _ := resp["id"].(string)
	_ = rs.with(id, func(s *stored) error { // one that is not kept any more goes on to its end
		if s.resp["status"] != "cancelled" {
			s.resp = resp
		}
		resp = s.resp
		return nil
	})
	return resp
}

// cancelled ends a background response and returns its object. Cancelling it again
// changes nothing.
func (rs *responseStore) cancelled(id string) (resp map[string]any, err error) {
	err = rs.with(id, func(s *stored) error {
		switch status := s.resp["status"]; {
		case s.cancel == nil:
			return badRequest("response_id", "only background responses can be cancelled")
		case status == "queued" || status == "in_progress":
			s.cancel()
			s.resp = withStatus(s.resp, "cancelled")
		case status != "cancelled":
			return badRequest("response_id", "a completed response cannot be cancelled")
		}
		resp = s.resp
		return nil
	})
	return resp, err
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
		s, err := e.stored.get(id)
		if err != nil {
			return err
		}
		if r.URL.Query().Get("stream") == "true" {
			return e.resume(w, r, s)
		}
		return writeJSON(w, http.StatusOK, s.resp)
	case http.MethodDelete:
		if err := e.stored.with(id, func(s *stored) error { e.stored.dropLocked(s); return nil }); err != nil {
			return err
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
