package openai

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"strings"
	"testing"
)

const formType = "multipart/form-data; boundary=XX"

// lines joins the lines of a form with CRLF.
func lines(l ...string) string { return strings.Join(l, "\r\n") }

func formPart(name, value string) string {
	return lines("--XX", `Content-Disposition: form-data; name="`+name+`"`, "", value, "")
}

const formEnd = "--XX--\r\n"

func TestFormsOfRealClients(t *testing.T) {
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	file, err := w.CreateFormFile("file", "a.wav")
	if err != nil {
		t.Fatal(err)
	}
	audio := "RIFF\x00\xff\r\n\r\n--not the boundary\r\n"
	if _, err := io.WriteString(file, audio); err != nil {
		t.Fatal(err)
	}
	for _, field := range [][2]string{{"model", "whisper-1"}, {"language", "en"}, {"stream", "true"}} {
		if err := w.WriteField(field[0], field[1]); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	r, err := ParseMultipart(w.FormDataContentType(), body.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if r.Model != "whisper-1" || !r.Stream || !r.Media || r.N != 1 {
		t.Errorf("%+v", r)
	}
	after := bytes.Join(r.Splice(Edit{Model: "openai/whisper-large-v3", IncludeUsage: true}), nil)
	if want := strings.Replace(body.String(), "whisper-1", "openai/whisper-large-v3", 1); string(after) != want {
		t.Errorf("spliced:\n%s\nwant:\n%s", after, want)
	}
}

func TestFormsAreRead(t *testing.T) {
	for _, tt := range []struct {
		name, contentType, body string
		model                   string
		stream, media           bool
	}{
		{"model only", formType, formPart("model", "m") + formEnd, "m", false, false},
		{"no line break after the closing boundary", formType, formPart("model", "m") + "--XX--", "m", false, false},
		{"no model", formType, formPart("prompt", "x") + formEnd, "", false, false},
		{"quoted boundary", `multipart/form-data; boundary="X X"`,
			strings.ReplaceAll(formPart("model", "m")+formEnd, "--XX", "--X X"), "m", false, false},
		{"boundary in capitals and a charset", `Multipart/Form-Data; charset=utf-8; Boundary=XX`,
			formPart("model", "m") + formEnd, "m", false, false},
		{"unquoted name", formType, "--XX\r\nContent-Disposition: form-data; name=model\r\n\r\nm\r\n" + formEnd, "m", false,
			false},
		{"header names in other cases", formType, "--XX\r\ncontent-TYPE: " +
			"text/plain\r\nCONTENT-disposition:FORM-DATA;NAME=\"model\"\r\nContent-Transfer-Encoding: 8bit\r\n\r\nm\r\n" +
			formEnd, "m", false, false},
		{"stream False", formType, formPart("stream", "False") + formEnd, "", false, false},
		{"stream True", formType, formPart("stream", "True") + formEnd, "", true, false},
		{"file with an odd name", formType, "--XX\r\nContent-Disposition: form-data; filename*=UTF-8''a%20b; " +
			"name=\"file\"; filename=\"a;\\\" name=model.wav\"\r\n\r\n\r\n" + formEnd, "", false, true},
		{"boundary inside a line", formType, formPart("file", "a --XX b") + formPart("model", "m") + formEnd, "m",
			false, false},
		{"empty part", formType, formPart("prompt", "") + formEnd, "", false, false},
		{"two other parts with one name", formType, formPart("image[]", "1") + formPart("image[]", "2") + formEnd, "",
			false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := ParseMultipart(tt.contentType, []byte(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			if r.Model != tt.model || r.Stream != tt.stream || r.Media != tt.media {
				t.Errorf("%+v", r)
			}
		})
	}
}

func TestSpliceAddsAModelPartToAForm(t *testing.T) {
	body := formPart("prompt", "x") + formEnd
	r, err := ParseMultipart(formType, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	e := Edit{Model: "m"}
	after := bytes.Join(r.Splice(e), nil)
	if string(after) != formPart("model", "m")+body {
		t.Errorf("%s", after)
	}
	if added := r.AddedFields(e); len(added) != 1 || added[0] != "model" {
		t.Errorf("%q", added)
	}
	if again, err := ParseMultipart(formType, after); err != nil || again.Model != "m" {
		t.Errorf("%+v, %v", again, err)
	}
}

func TestAmbiguousFormsAreRejected(t *testing.T) {
	model := formPart("model", "m")
	header := func(h string) string { return "--XX\r\n" + h + "\r\n\r\nm\r\n" + formEnd }
	for _, tt := range []struct {
		name, contentType, body string
		want                    Code
	}{
		{"JSON", "application/json", model + formEnd, CodeInvalidValue},
		{"mixed", "multipart/mixed; boundary=XX", model + formEnd, CodeInvalidValue},
		{"no content type", "", model + formEnd, CodeInvalidValue},
		{"no boundary", "multipart/form-data", model + formEnd, CodeInvalidValue},
		{"empty boundary", `multipart/form-data; boundary=""`, model + formEnd, CodeInvalidValue},
		{"long boundary", "multipart/form-data; boundary=" + strings.Repeat("X", 71), model + formEnd, CodeInvalidValue},
		{"two boundaries", "multipart/form-data; boundary=XX; boundary=YY", model + formEnd, CodeInvalidValue},
		{"extended boundary", "multipart/form-data; boundary*=utf-8''XX", model + formEnd, CodeInvalidValue},
		{"escaped boundary", `multipart/form-data; boundary="X\X"`, model + formEnd, CodeInvalidValue},
		{"boundary ends with a space", `multipart/form-data; boundary="XX "`, model + formEnd, CodeInvalidValue},
		{"boundary with a bad character", `multipart/form-data; boundary="X@X"`, model + formEnd, CodeInvalidValue},
		{"boundary beyond ASCII", `multipart/form-data; boundary="Xé"`, model + formEnd, CodeInvalidValue},
		{"empty", formType, "", CodeInvalidValue},
		{"no parts", formType, formEnd, CodeInvalidValue},
		{"preamble", formType, "hello\r\n" + model + formEnd, CodeInvalidValue},
		{"line break before the form", formType, "\r\n" + model + formEnd, CodeInvalidValue},
		{"epilogue", formType, model + formEnd + "x", CodeInvalidValue},
		{"second form after the first", formType, model + formEnd + model + formEnd, CodeInvalidValue},
		{"not closed", formType, model, CodeInvalidValue},
		{"truncated content", formType, "--XX\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm", CodeInvalidValue},
		{"truncated headers", formType, "--XX\r\nContent-Disposition: form-data", CodeInvalidValue},
		{"endless headers", formType, header("X: " + strings.Repeat("x", 9<<10)), CodeInvalidValue},
		{"longer boundary", formType, "--XXY\r\n\r\nm\r\n" + formEnd, CodeInvalidValue},
		{"longer boundary in between", formType, formPart("file", "a\r\n--XXY\r\nb") + formEnd, CodeInvalidValue},
		{"padding after the boundary", formType, "--XX \r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n" +
			formEnd, CodeInvalidValue},
		{"boundary after a lone LF", formType, formPart("file", "a\n--XX\r\nb") + formEnd, CodeInvalidValue},
		{"boundary after a lone CR", formType, formPart("file", "a\r--XX\r\nb") + formEnd, CodeInvalidValue},
		{"lone LF in all lines", formType, strings.ReplaceAll(model+formEnd, "\r\n", "\n"), CodeInvalidValue},
		{"lone LF between headers", formType,
			header("Content-Disposition: form-data; name=\"file\"\nContent-Disposition: form-data; name=\"model\""),
			CodeInvalidValue},
		{"boundary within the headers", "multipart/form-data; boundary=\"X:X\"",
			"--X:X\r\nContent-Disposition: form-data; name=\"a\"\r\n--X:X\r\n\r\nm\r\n--X:X--\r\n", CodeInvalidValue},
		{"no line break after the content", formType, "--XX\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n" + formEnd,
			CodeInvalidValue},
		{"no headers", formType, "--XX\r\n\r\nm\r\n" + formEnd, CodeInvalidValue},
		{"folded header", formType, header("Content-Disposition: form-data;\r\n name=\"model\""), CodeInvalidValue},
		{"space before the colon", formType, header("Content-Disposition : form-data; name=\"model\""), CodeInvalidValue},
		{"zero byte in a header", formType, header("Content-Disposition: form-data; name=\"mod\x00el\""), CodeInvalidValue},
		{"two dispositions", formType,
			header("Content-Disposition: form-data; name=\"a\"\r\nContent-Disposition: form-data; name=\"model\""),
			CodeInvalidValue},
		{"no disposition", formType, header("Content-Type: text/plain"), CodeInvalidValue},
		{"attachment", formType, header("Content-Disposition: attachment; name=\"model\""), CodeInvalidValue},
		{"no name", formType, header("Content-Disposition: form-data"), CodeInvalidValue},
		{"two names", formType, header("Content-Disposition: form-data; name=\"a\"; name=\"model\""), CodeInvalidValue},
		{"extended name", formType, header("Content-Disposition: form-data; name*=utf-8''model"), CodeInvalidValue},
		{"unclosed name", formType, header("Content-Disposition: form-data; name=\"model"), CodeInvalidValue},
		{"text after a quoted name", formType, header("Content-Disposition: form-data; name=\"model\"x"), CodeInvalidValue},
		{"space in an unquoted name", formType, header("Content-Disposition: form-data; name=mo del"), CodeInvalidValue},
		{"parameter without a value", formType, header("Content-Disposition: form-data; name"), CodeInvalidValue},
		{"too many parts", formType, strings.Repeat(formPart("a", "b"), 1001) + formEnd, CodeInvalidValue},
		{"two models", formType, model + formPart("model", "n") + formEnd, CodeAmbiguousJSON},
		{"two streams", formType, formPart("stream", "true") + formPart("stream", "false") + formEnd, CodeAmbiguousJSON},
		{"Model", formType, formPart("Model", "m") + formEnd, CodeAmbiguousJSON},
		{"model with a space", formType, formPart(" model", "m") + formEnd, CodeAmbiguousJSON},
		{"escaped model", formType, formPart(`mod\el`, "m") + formEnd, CodeAmbiguousJSON},
		{"ſtream", formType, formPart("ſtream", "true") + formEnd, CodeAmbiguousJSON},
		{"model as a file", formType, header("Content-Disposition: form-data; name=\"model\"; filename=\"m\""),
			CodeInvalidValue},
		{"model in base64", formType,
			header("Content-Disposition: form-data; name=\"model\"\r\nContent-Transfer-Encoding: base64"), CodeInvalidValue},
		{"empty model", formType, formPart("model", "") + formEnd, CodeInvalidValue},
		{"long model", formType, formPart("model", strings.Repeat("m", 257)) + formEnd, CodeInvalidValue},
		{"model with a line break", formType, formPart("model", "a\r\nb") + formEnd, CodeInvalidValue},
		{"model that is not UTF-8", formType, formPart("model", "\xff") + formEnd, CodeInvalidValue},
		{"stream maybe", formType, formPart("stream", "maybe") + formEnd, CodeInvalidValue},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := ParseMultipart(tt.contentType, []byte(tt.body))
			var rejected *RequestError
			if !errors.As(err, &rejected) || rejected.Reason != tt.want {
				t.Errorf("%v (%+v), want %s", err, r, tt.want)
			}
		})
	}
}

// FuzzParseMultipart compares with the standard library's reader, which accepts more. It must read
// every accepted form to the end, with the same model.
func FuzzParseMultipart(f *testing.F) {
	f.Add(formType, []byte(formPart("model", "m")+formPart("stream", "true")+formEnd))
	f.Add(`multipart/form-data; boundary="X X"`,
		[]byte(strings.ReplaceAll(formPart("model", "m")+formEnd, "--XX", "--X X")))
	f.Add(formType, []byte("--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\nContent-Type: "+
		"audio/wav\r\n\r\n\x00\r\n--X\r\n"+formEnd))
	f.Fuzz(func(t *testing.T, contentType string, body []byte) {
		r, err := ParseMultipart(contentType, body)
		if err != nil {
			return
		}
		if got := formModel(t, contentType, body); got != r.Model {
			t.Fatalf("model %q, the standard library reads %q", r.Model, got)
		}
		after := bytes.Join(r.Splice(Edit{Model: "a/new-name"}), nil)
		again, err := ParseMultipart(contentType, after)
		if err != nil || again.Model != "a/new-name" || again.Stream != r.Stream {
			t.Fatalf("spliced to %q: %+v, %v", after, again, err)
		}
		if back := bytes.Join(again.Splice(Edit{Model: r.Model}), nil); r.Model != "" && !bytes.Equal(back, body) {
			t.Fatalf("%q became %q after two edits", body, back)
		}
	})
}

// formModel returns the model of a form as the standard library reads it.
func formModel(t *testing.T, contentType string, body []byte) (model string) {
	_, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		t.Fatal(err)
	}
	reader := multipart.NewReader(bytes.NewReader(body), params["boundary"])
	for {
		p, err := reader.NextRawPart()
		if errors.Is(err, io.EOF) {
			return model
		}
		if err != nil {
			t.Skip("the standard library rejects the headers")
		}
		value, err := io.ReadAll(p)
		if err != nil {
			t.Fatal(err)
		}
		if p.FormName() == "model" {
			model = string(value)
		}
	}
}
