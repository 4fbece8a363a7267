package store

import "context"

// SetOverride replaces the override of a worker.
func (s *SQL) SetOverride(ctx context.Context, a Actor, o Override) error {
	_, err := s.EditOverride(ctx, a, o.Worker, func(Override) (Override, error) { return o, nil })
	return err
}

// ClearOverride removes a worker's override. It returns ErrNotFound if there is none.
func (s *SQL) ClearOverride(ctx context.Context, a Actor, worker string) error {
	_, err := s.EditOverride(ctx, a, worker, func(was Override) (Override, error) {
		if !was.Says() {
			return was, ErrNotFound
		}
		return Override{}, nil
	})
	return err
}
