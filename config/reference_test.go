package config

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"
)

// sectionTypes returns every struct that the file is made of.
func sectionTypes(t reflect.Type, seen map[reflect.Type]bool) map[reflect.Type]bool {
	for t.Kind() == reflect.Slice || t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() == reflect.Struct && !seen[t] {
		seen[t] = true
		fields := fieldsOf(t)
		for _, name := range fields.names {
			sectionTypes(t.Field(fields.index[name]).Type, seen)
		}
	}
	return seen
}

func TestEveryKeyIsDocumentedAndEveryDocumentedKeyIsRead(t *testing.T) {
	read := map[string]bool{}
	for section := range sectionTypes(reflect.TypeFor[File](), map[reflect.Type]bool{}) {
		for _, name := range fieldsOf(section).names {
			id := section.String() + "." + name
			read[id] = true
			k, ok := known[id]
			if !ok || !strings.HasSuffix(k.doc, ".") && !strings.HasSuffix(k.doc, "`") {
				t.Errorf("%s has no doc in the table", id)
			}
			if (k.fits == nil) != (k.pattern == "") || k.fits != nil && k.want == "" {
				t.Errorf("%s: fits, pattern and want go together", id)
			}
			number := section.Field(fieldsOf(section).index[name]).Type
			if number.Kind() == reflect.Pointer || number.Kind() == reflect.Map {
				number = number.Elem()
			}
			if isNumber(number) && k.max == 0 {
				t.Errorf("%s has no upper bound", id)
			}
		}
	}
	for id := range known {
		if !read[id] {
			t.Errorf("%s is in the table and nothing reads it", id)
		}
	}
	for id, feature := range unbuilt {
		section := id[:strings.LastIndex(id, ".")]
		if read[id] {
			t.Errorf("%s is read and refused for want of %s", id, feature)
		}
		if !slices.ContainsFunc(slices.Collect(maps.Keys(read)), func(r string) bool { return strings.HasPrefix(r, section+".") }) {
			t.Errorf("%s is refused in a section that does not exist", id)
		}
	}
}

func TestPatternsSayWhatTheDecoderChecks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.StringMatching(`[a-zA-Z0-9._/ -]{0,66}`), rapid.StringMatching(`[0-9a-f]{63,65}`), rapid.SampledFrom([]string{"auto", "off", "/x", "K_1"})).Draw(t, "text")
		for id, k := range known {
			if k.fits == nil || id == "workers.Health.path" && strings.Contains(text, " ") {
				continue
			}
			if got, want := regexp.MustCompile(k.pattern).MatchString(text), k.fits(text); got != want {
				t.Fatalf("%s: the pattern says %t of %q, the decoder %t", id, got, text, want)
			}
		}
	})
}

func TestTheReferencesAreUpToDate(t *testing.T) {
	schema, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string][]byte{"../docs/config.md": Reference(), "../docs/config.schema.json": schema} {
		if os.Getenv("UPDATE_DOCS") == "1" {
			if err := os.WriteFile(path, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what the code says: UPDATE_DOCS=1 go test ./config -run References writes it", path)
		}
	}
}

// conforms checks v against the part of JSON schema that Schema uses and
// returns where it does not.
func conforms(schema map[string]any, v any, path string) (faults []string) {
	fault := func(why string) { faults = append(faults, path+": "+why) }
	if choices, ok := schema["anyOf"].([]any); ok {
		for _, s := range choices {
			if len(conforms(s.(map[string]any), v, path)) == 0 {
				return nil
			}
		}
		fault("none of anyOf")
	}
	if words, ok := schema["enum"].([]any); ok && !slices.Contains(words, v) {
		fault("not in enum")
	}
	if !hasType(schema["type"], v) {
		fault("type")
	}
	switch v := v.(type) {
	case string:
		if p, ok := schema["pattern"].(string); ok && !regexp.MustCompile(p).MatchString(v) {
			fault("pattern")
		}
	case float64:
		if low, ok := schema["minimum"].(float64); ok && v < low {
			fault("minimum")
		}
		if low, ok := schema["exclusiveMinimum"].(float64); ok && v <= low {
			fault("exclusiveMinimum")
		}
		if high, ok := schema["maximum"].(float64); ok && v > high {
			fault("maximum")
		}
		if high, ok := schema["exclusiveMaximum"].(float64); ok && v >= high {
			fault("exclusiveMaximum")
		}
	case []any:
		if least, ok := schema["minItems"].(float64); ok && len(v) < int(least) {
			fault("minItems")
		}
		for _, item := range v {
			faults = append(faults, conforms(schema["items"].(map[string]any), item, path+"[]")...)
		}
	case map[string]any:
		properties, _ := schema["properties"].(map[string]any)
		for name, value := range v {
			if s, ok := properties[name].(map[string]any); ok {
				faults = append(faults, conforms(s, value, path+"."+name)...)
			} else if other, ok := schema["additionalProperties"].(map[string]any); ok {
				faults = append(faults, conforms(other, value, path+"."+name)...)
			} else if schema["additionalProperties"] == false {
				fault("additional " + name)
			}
		}
		required, _ := schema["required"].([]any)
		for _, name := range required {
			if _, ok := v[name.(string)]; !ok {
				fault("required " + name.(string))
			}
		}
	}
	return faults
}

func hasType(want any, v any) bool {
	is := func(name any) bool {
		switch v := v.(type) {
		case nil:
			return name == "null"
		case string:
			return name == "string"
		case bool:
			return name == "boolean"
		case float64:
			return name == "number" || name == "integer" && v == float64(int64(v))
		case []any:
			return name == "array"
		}
		return name == "object"
	}
	if list, ok := want.([]any); ok {
		return slices.ContainsFunc(list, is)
	}
	return want == nil || is(want)
}

// schemaFaults checks a file against the schema.
func schemaFaults(t *testing.T, src []byte) []string {
	t.Helper()
	out, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(out, &schema); err != nil {
		t.Fatal(err)
	}
	var v any
	if err := yaml.Unmarshal(src, &v); err != nil {
		t.Fatal(err)
	}
	asJSON, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(asJSON, &v); err != nil {
		t.Fatal(err)
	}
	return conforms(schema, v, "")
}

func TestTheSchemaTakesWhatTheDecoderTakes(t *testing.T) {
	example, err := os.ReadFile("../config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defaults := Default()
	for _, src := range []string{string(example), inherited, string(printed(&defaults)), "retry: {attempts: '${N}'}", "log:\nadmin:\n", "drain: {accept_grace: 0}"} {
		if faults := schemaFaults(t, []byte(src)); len(faults) > 0 {
			t.Errorf("%v\n%s", faults, src)
		}
	}
}

func TestTheSchemaRefusesWhatTheDecoderRefuses(t *testing.T) {
	for _, src := range []string{"lissten: x", "retry: {attempts: 6}", "log: {level: loud}", "drain: {timeout: 5}", "max_body_bytes: 3 apples",
		"tiers: [{name: a, model: m}]", "tiers: [{name: A, model: m, workers: [{name: w, url: x}]}]", "tiers: [{name: a, model: m, workers: []}]",
		"policy: {name: chwlb}", "insecure: 'yes'", "pools: x", "tiers: [{name: a, model: m, serves: [chta], workers: [{name: w, url: x}]}]"} {
		if len(schemaFaults(t, []byte(src))) == 0 {
			t.Errorf("the schema takes %s", src)
		}
		if _, d := decode("f", []byte(src), nil); len(d.problems) == 0 {
			t.Errorf("the decoder takes %s", src)
		}
	}
}
