package engines

import (
	"fmt"
	"net/http"
	"sync"
)

// maxStored bounds the number of stored responses; the oldest is removed first.
const maxStored = 1024

// responseStore stores responses by id. Its lock guards their objects.
type responseStore struct {
	mu    sync.Mutex
	byID  map[string]*response
	order []string
}

func newResponseStore() *responseStore {
	return &responseStore{byID: make(map[string]*response)}
}

func (rs *responseStore) put(resp *response) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if len(rs.order) == maxStored {
		rs.dropLocked(rs.order[0])
		rs.order = rs.order[1:]
	}
	rs.byID[resp.id] = resp
	rs.order = append(rs.order, resp.id)
}

func (rs *responseStore) dropLocked(id string) {
	if resp := rs.byID[id]; resp != nil && resp.cancel != nil {
		resp.cancel()
	}
	delete(rs.byID, id)
}

// with calls do with a stored response, under the store's lock.
func (rs *responseStore) with(id string, do func(resp *response) error) error {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if resp := rs.byID[id]; resp != nil {
		return do(resp)
	}
	return &apiError{status: http.StatusNotFound, param: "response_id",
		message: fmt.Sprintf("no response with the id %q is stored here", id)}
}

// get returns a response and its object.
func (rs *responseStore) get(id string) (found *response, object map[string]any, err error) {
	err = rs.with(id, func(resp *response) error { found, object = resp, resp.object; return nil })
	return found, object, err
}

// update replaces the object of a response that is not cancelled. It returns the current object.
func (rs *responseStore) update(resp *response, object map[string]any) map[string]any {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if resp.object["status"] != "cancelled" {
		resp.object = object
	}
	return resp.object
}

// cancelled ends a background response and returns its object. A second call changes nothing.
func (rs *responseStore) cancelled(id string) (object map[string]any, err error) {
	err = rs.with(id, func(resp *response) error {
		switch status := resp.object["status"]; {
		case resp.cancel == nil:
			return badRequest("response_id", "only background responses can be cancelled")
		case status == "queued" || status == "in_progress":
			resp.cancel()
			resp.object = resp.with("cancelled")
		case status != "cancelled":
			return badRequest("response_id", "a completed response cannot be cancelled")
		}
		object = resp.object
		return nil
	})
	return object, err
}

func (rs *responseStore) cancelAll() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for id := range rs.byID {
		rs.dropLocked(id)
	}
}

// storedResponse serves GET and DELETE /v1/responses/{id}.
func (e *Engine) storedResponse(w http.ResponseWriter, r *request) error {
	id := r.URL.Path[len("/v1/responses/"):]
	switch r.Method {
	case http.MethodGet:
		resp, object, err := e.stored.get(id)
		if err != nil {
			return err
		}
		if r.URL.Query().Get("stream") == "true" {
			return resp.resume(w, r)
		}
		return writeJSON(w, http.StatusOK, object)
	case http.MethodDelete:
		if err := e.stored.with(id, func(*response) error { e.stored.dropLocked(id); return nil }); err != nil {
			return err
		}
		return writeJSON(w, http.StatusOK, map[string]any{"id": id, "object": "response", "deleted": true})
	}
	w.Header().Set("Allow", "GET, DELETE")
	return &apiError{status: http.StatusMethodNotAllowed,
		message: fmt.Sprintf("%s takes GET and DELETE, not %s", r.URL.Path, r.Method)}
}

// cancelResponse serves POST /v1/responses/{id}/cancel.
func (e *Engine) cancelResponse(w http.ResponseWriter, r *request) error {
	path := r.URL.Path
	object, err := e.stored.cancelled(path[len("/v1/responses/") : len(path)-len("/cancel")])
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, object)
}
