package store

import "context"

// SetOverride puts an override in the place of the one that its worker has,
// whatever that is.
func (s *SQL) SetOverride(ctx context.Context, a Actor, o Override) error {
	_, err := s.EditOverride(ctx, a, o.Worker, func(Override) (Override, error) { return o, nil })
	return err
}

// ClearOverride ends a worker's override; ErrNotFound: it has none.
func (s *SQL) ClearOverride(ctx context.Context, a Actor, worker string) error {
	_, err := s.EditOverride(ctx, a, worker, func(was Override) (Override, error) {
		if !was.Says() {
			return was, ErrNotFound
		}
		return Override{}, nil
	})
	return err
}
