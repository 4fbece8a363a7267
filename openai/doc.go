// Package openai reads and writes the HTTP bodies of inference APIs: requests of all dialects, streams,
// usage and errors. It works on bytes and has no connections, workers or tenants.
//
// # Requests
//
// A [Dialect] is a family of endpoints with one format, such as [Chat], [Responses] or [Messages].
// [Decode] reads a body and its Content-Encoding within limits. [Parse] reads a JSON body in one pass,
// without copying it, and returns a [Request]: the model, the stream flag, limits, sizes and the
// positions of fields. [ParseMultipart] does the same for forms. Bodies that parsers could read in
// different ways are rejected, so no worker can see another request than the gateway.
//
// [Request.Splice] applies an [Edit] for one worker: another model name, a cache salt, a priority. It
// returns the body in pieces that share the unchanged bytes.
//
// # Responses
//
// [EventReader] splits a stream into events. A [Tracker] observes them and knows whether the response is
// complete, what it cost, and whether the client has received content, after which no other worker can
// take over. [ReadAnswer] reads a response that is not a stream.
//
// # Errors
//
// [ErrorOf] reads an error in any form that engines use. [Error] is an error for a client: its code
// selects a row of the error table, which docs/errors.md lists, and [Error.Body] and [Error.Frame] write
// it in the format of the dialect. A [RequestError] names the field that the client must correct.
//
// # Other packages
//
// Package prompt reads prompts for prefix caches and the classifier, package tokens counts tokens.
package openai
