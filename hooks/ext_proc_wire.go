package hooks

import (
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// The messages of envoy.service.ext_proc.v3 that a hook sends and reads, by the numbers of their fields. The generated
// types would add 3.3 MiB to the program, because they include most of Envoy's API. The tests decode and encode these
// messages with them.
const (
	// ProcessingRequest
	fieldRequestHeaders, fieldRequestBody, fieldAttributes = 2, 4, 9
	// HttpHeaders, HttpBody
	fieldHeaders, fieldBody, fieldBodyEnd = 1, 1, 2
	// HeaderMap, HeaderValue
	fieldHeaderMapHeaders, fieldKey, fieldValue, fieldRawValue = 1, 1, 2, 3
	// ProcessingResponse
	fieldHeadersResponse, fieldBodyResponse, fieldImmediateResponse, fieldMoreTime = 1, 3, 7, 10
	// HeadersResponse, BodyResponse
	fieldCommonResponse = 1
	// CommonResponse
	fieldStatus, fieldHeaderMutation, fieldBodyMutation = 1, 2, 3
	// HeaderMutation
	fieldSetHeaders, fieldRemoveHeaders = 1, 2
	// HeaderValueOption
	fieldOptionHeader = 1
	// BodyMutation
	fieldMutationBody, fieldClearBody, fieldStreamedBody = 1, 2, 3
	// ImmediateResponse, HttpStatus
	fieldImmediateStatus, fieldImmediateHeaders, fieldImmediateBody, fieldStatusCode = 1, 2, 3, 1
	// google.protobuf.Struct and Value, and entries of maps
	fieldStructFields, fieldStringValue, fieldEntryKey, fieldEntryValue = 1, 3, 1, 2
)

// attributesName is the name under which Envoy sends the attributes of a request.
const attributesName = "envoy.filters.http.ext_proc"

type message [][]byte

func appendText(b []byte, field protowire.Number, text string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), text)
}

func appendMessage(b []byte, field protowire.Number, m []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), m)
}

// headersMessage returns the first message of a request: its headers and attributes. The values are raw_value, as
// Envoy sends them.
func headersMessage(r *Request) message {
	var list []byte
	add := func(name, value string) {
		if value != "" {
			h := appendText(appendText(nil, fieldKey, name), fieldRawValue, value)
			list = appendMessage(list, fieldHeaderMapHeaders, h)
		}
	}
	add(":method", "POST")
	add(":path", r.Path)
	add("content-type", "application/json")
	add("x-request-id", r.ID)
	add("x-tenant", r.Tenant)
	for _, name := range sentHeaders {
		add(lowerName(name), r.Header.Get(name))
	}
	for _, name := range [...]string{"Traceparent", "Tracestate"} {
		add(lowerName(name), r.Trace.Get(name))
	}
	var attributes []byte
	for _, a := range [...][2]string{{"tenant", r.Tenant}, {"path", r.Path}, {"model", r.Model}} {
		entry := appendText(nil, fieldEntryKey, a[0])
		text := strings.ToValidUTF8(a[1], "\ufffd") // no service reads an invalid string
		entry = appendMessage(entry, fieldEntryValue, appendText(nil, fieldStringValue, text))
		attributes = appendMessage(attributes, fieldStructFields, entry)
	}
	entry := appendMessage(appendText(nil, fieldEntryKey, attributesName), fieldEntryValue, attributes)
	b := appendMessage(nil, fieldRequestHeaders, appendMessage(nil, fieldHeaders, list))
	return message{appendMessage(b, fieldAttributes, entry)}
}

// bodyMessage returns the message with the whole body, which is not copied.
func bodyMessage(body []byte) message {
	end := protowire.AppendVarint(protowire.AppendTag(nil, fieldBodyEnd, protowire.VarintType), 1)
	length := protowire.SizeTag(fieldBody) + protowire.SizeBytes(len(body)) + len(end)
	head := protowire.AppendVarint(protowire.AppendTag(nil, fieldRequestBody, protowire.BytesType), uint64(length))
	head = protowire.AppendVarint(protowire.AppendTag(head, fieldBody, protowire.BytesType), uint64(len(body)))
	return message{head, body, end}
}

// lowerName returns the name of a header as HTTP/2 writes it.
func lowerName(name string) string {
	b := []byte(name)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// answerKind is the message of a request to which an answer belongs.
type answerKind uint8

const (
	noAnswer answerKind = iota
	headersAnswer
	bodyAnswer
	immediateAnswer
	otherAnswer // to a message that a hook never sends
)

type processingAnswer struct {
	kind     answerKind
	moreTime bool     // it asks for more time
	replace  bool     // CONTINUE_AND_REPLACE
	set      []Header // of the request, or of an immediate response
	removed  []string
	hasBody  bool   // it changes the body
	body     []byte // the new one, or that of an immediate response
	streamed bool
	status   uint64 // of an immediate response
}

// parseAnswer decodes a ProcessingResponse. As in protobuf, the last answer of a message counts.
func parseAnswer(raw []byte) (a processingAnswer, err error) {
	err = eachField(raw, func(f protowire.Number, v []byte, _ uint64) error {
		switch f {
		case fieldHeadersResponse, fieldBodyResponse:
			a = processingAnswer{kind: headersAnswer, moreTime: a.moreTime}
			if f == fieldBodyResponse {
				a.kind = bodyAnswer
			}
			return eachField(v, func(f protowire.Number, v []byte, _ uint64) error {
				if f != fieldCommonResponse {
					return nil
				}
				return a.readCommon(v)
			})
		case fieldImmediateResponse:
			a = processingAnswer{kind: immediateAnswer, moreTime: a.moreTime}
			return a.readImmediate(v)
		case fieldMoreTime:
			a.moreTime = true
		case 2, 4, 5, 6, 11: // answers to responses and trailers
			a = processingAnswer{kind: otherAnswer}
		}
		return nil
	})
	return a, err
}

func (a *processingAnswer) readCommon(raw []byte) error {
	return eachField(raw, func(f protowire.Number, v []byte, n uint64) error {
		switch f {
		case fieldStatus:
			a.replace = n == 1
		case fieldHeaderMutation:
			return a.readHeaders(v)
		case fieldBodyMutation:
			return eachField(v, func(f protowire.Number, v []byte, n uint64) error {
				switch f {
				case fieldMutationBody:
					a.hasBody, a.body, a.streamed = true, v, false
				case fieldClearBody:
					a.hasBody, a.body, a.streamed = n != 0, nil, false
				case fieldStreamedBody:
					a.hasBody, a.body, a.streamed = true, nil, true
				}
				return nil
			})
		}
		return nil
	})
}

// readHeaders reads a HeaderMutation. A changed header has one value, whatever its append action is.
func (a *processingAnswer) readHeaders(raw []byte) error {
	return eachField(raw, func(f protowire.Number, v []byte, _ uint64) error {
		switch f {
		case fieldRemoveHeaders:
			a.removed = append(a.removed, string(v))
		case fieldSetHeaders:
			return eachField(v, func(f protowire.Number, v []byte, _ uint64) error {
				if f != fieldOptionHeader {
					return nil
				}
				var h Header
				err := eachField(v, func(f protowire.Number, v []byte, _ uint64) error {
					switch f {
					case fieldKey:
						h.Name = string(v)
					case fieldValue, fieldRawValue: // a service sets one of them
						h.Value = string(v)
					}
					return nil
				})
				a.set = append(a.set, h)
				return err
			})
		}
		return nil
	})
}

func (a *processingAnswer) readImmediate(raw []byte) error {
	return eachField(raw, func(f protowire.Number, v []byte, _ uint64) error {
		switch f {
		case fieldImmediateStatus:
			return eachField(v, func(f protowire.Number, _ []byte, n uint64) error {
				if f == fieldStatusCode {
					a.status = n
				}
				return nil
			})
		case fieldImmediateHeaders:
			return a.readHeaders(v)
		case fieldImmediateBody:
			a.body = v
		}
		return nil
	})
}

// eachField calls visit for each field of a message: with its bytes, or with the number of a varint.
func eachField(raw []byte, visit func(field protowire.Number, value []byte, number uint64) error) error {
	for len(raw) > 0 {
		field, kind, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return protowire.ParseError(n)
		}
		raw = raw[n:]
		var value []byte
		var number uint64
		switch kind {
		case protowire.BytesType:
			value, n = protowire.ConsumeBytes(raw)
		case protowire.VarintType:
			number, n = protowire.ConsumeVarint(raw)
		default:
			n = protowire.ConsumeFieldValue(field, kind, raw)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		if kind == protowire.BytesType || kind == protowire.VarintType {
			if err := visit(field, value, number); err != nil {
				return err
			}
		}
		raw = raw[n:]
	}
	return nil
}
