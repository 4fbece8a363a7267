package proxy

import (
	"context"
	"errors"

	"tierway/http1"
	"tierway/server/intake"
)

// errClientBody is the fault of an attempt that ended because the client did not send the whole body.
var errClientBody = errors.New("the client's body failed")

// upload is a request body that streams to the worker of an attempt.
type upload struct {
	*intake.Upload
	a *attempt
}

// Read reads a piece for the worker. timeouts.idle runs between two reads, while the worker takes
// the piece.
func (u upload) Read(p []byte) (int, error) {
	u.a.watch.stopSilence()
	n, err := u.Upload.Read(p)
	within := u.a.x.in.Snap.File.Timeouts.Idle
	if u.IsWhole() {
		within = u.a.firstByte
	}
	u.a.watch.startSilence(within, errIdleTimeout)
	return n, err
}

// sendUpload sends a request with a streaming body. It ends the upload, unless no part of the body was
// read: then another worker may receive it.
func (a *attempt) sendUpload(ctx context.Context, req *http1.Request) (*http1.Response, error) {
	u := upload{a.x.parsed.Upload, a}
	req.Upload, req.UploadLength = u, u.Length
	release := context.AfterFunc(ctx, func() {
		if !errors.Is(context.Cause(ctx), context.Canceled) { // net/http cancels after the client's side failed
			u.Stop()
		}
	})
	resp, err := a.m.Worker.Send(ctx, req)
	release()
	if err == nil || !u.Untouched() {
		u.End()
	}
	return resp, err
}

// uploadFailure returns the failure of an attempt if the client's side of its upload failed, or nil.
func (a *attempt) uploadFailure() *failure {
	if a.x.parsed.Upload == nil {
		return nil
	}
	cause, answer := a.x.parsed.Upload.ClientFailure()
	if cause == nil {
		return nil
	}
	return &failure{sent: true, fault: excluded("%w: %w", errClientBody, cause), err: translate(answer)}
}
