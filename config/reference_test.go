package config

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"tierway/openai"
	"tierway/routing"
	"tierway/tenants"
)

func TestEveryTagIsUnderstood(t *testing.T) {
	names := []string{"yaml", "json", "doc", "absent", "required", "enum", "form", "min", "max", "above", "below", "zero",
		"secret",
		"reload", "ordered", "policy", "way"}
	for section, f := range sections {
		for _, name := range f.names {
			field, k, id := section.Field(f.keys[name].field), f.keys[name], section.String()+"."+name
			if !strings.HasSuffix(k.doc, ".") && !strings.HasSuffix(k.doc, "`") || strings.Count(k.doc, "`")%2 == 1 {
				t.Errorf("%s has no doc", id)
			}
			if _, known := forms[k.form]; k.form != "" && !known {
				t.Errorf("%s has the unknown form %q", id, k.form)
			}
			if !slices.Contains([]string{"", effectDrain, EffectRestart}, k.reload) {
				t.Errorf("%s has the unknown effect %q", id, k.reload)
			}
			for _, pair := range regexp.MustCompile(`([a-z_]+):("(?:[^"\\]|\\.)*")`).FindAllStringSubmatch(string(field.Tag),
				-1) {
				tag := strings.TrimPrefix(pair[1], "tier_")
				value, err := strconv.Unquote(pair[2])
				if err != nil || !slices.Contains(names, tag) {
					t.Errorf("%s: the tag %s is not understood: %v", id, pair[0], err)
				}
				_, err = strconv.ParseFloat(value, 64)
				if slices.Contains([]string{"min", "max", "above", "below"}, tag) && err != nil {
					t.Errorf("%s: %s is no bound", id, pair[0])
				}
			}
		}
	}
}

func TestEnumTagsAgreeWithTheirPackages(t *testing.T) {
	dialects := []string{}
	for d := openai.Chat; d.String() != openai.Other.String(); d++ {
		dialects = append(dialects, d.String())
	}
	engines := []string{}
	for _, e := range []openai.Engine{openai.EngineAuto, openai.EngineVLLM, openai.EngineSGLang, openai.EngineLlamaCpp,
		openai.EngineOllama, openai.EngineOpenAI, openai.EngineAnthropic} {
		engines = append(engines, string(e))
	}
	pool, held := reflect.TypeFor[PoolConfig](), reflect.TypeFor[tenants.KeyConfig]()
	for _, c := range []struct {
		key  key
		want []string
	}{
		{keyOf(pool, "serves"), dialects}, {keyOf(pool, "engine"), engines},
		{keyOf(pool, "allow_fields"), openai.EngineFields[:]},
		{keyOf(held, "priority"), tenants.Classes()}, {keyOf(held, "default_priority"), tenants.Classes()},
		{keyOf(reflect.TypeFor[routing.Config](), "name"), routing.Names()},
	} {
		if diff := cmp.Diff(c.want, c.key.words); diff != "" {
			t.Errorf("%s: -want +got:\n%s", c.key.name, diff)
		}
	}
	if got := keyOf(held, "weight").max; got != tenants.MaxWeight {
		t.Errorf("the weight is bounded by %v", got)
	}
	f := File{Tiers: []Tier{{}}}
	if got, want := strings.Join(f.resolveSection(f.sections()[0]).Serves, ", "),
		keyOf(reflect.TypeFor[Tier](), "serves").absent; got != want {
		t.Errorf("a tier serves %s, and the reference says %s", got, want)
	}
}

func TestConfigDocIsGenerated(t *testing.T) {
	text, err := schema()
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string][]byte{"../docs/config.md": reference(), "../docs/config.schema.json": text} {
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
			t.Errorf("%s is out of date: make docs writes it", path)
		}
	}
}

// conforms checks v against the part of JSON schema that schema uses. It returns the paths of the faults.
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
		if items, ok := schema["items"].(map[string]any); ok {
			for _, item := range v {
				faults = append(faults, conforms(items, item, path+"[]")...)
			}
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
	out, err := schema()
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

func TestSchemaAcceptsWhatTheDecoderAccepts(t *testing.T) {
	example, err := os.ReadFile("../config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defaults := Default()
	for _, src := range []string{string(example), inherited, string(printed(&defaults)), "retry: {attempts: '${N}'}",
		"log:\nadmin:\n", "drain: {accept_grace: 0}"} {
		if faults := schemaFaults(t, []byte(src)); len(faults) > 0 {
			t.Errorf("%v\n%s", faults, src)
		}
	}
}

func TestSchemaRejectsWhatTheDecoderRejects(t *testing.T) {
	for _, src := range []string{"lissten: x", "retry: {attempts: 6}", "log: {level: loud}", "drain: {timeout: 5}",
		"max_body_bytes: 3 apples",
		"tiers: [{name: a, model: m}]", "tiers: [{name: A, model: m, workers: [{name: w, url: x}]}]",
		"tiers: [{name: a, model: m, workers: []}]",
		"policy: {name: chwlb}", "insecure: 'yes'", "pools: x",
		"tiers: [{name: a, model: m, serves: [chta], workers: [{name: w, url: x}]}]"} {
		if len(schemaFaults(t, []byte(src))) == 0 {
			t.Errorf("the schema takes %s", src)
		}
		if _, d := decode("f", []byte(src), nil); len(d.problems) == 0 {
			t.Errorf("the decoder takes %s", src)
		}
	}
}

// keyOf returns a key of a section.
func keyOf(section reflect.Type, name string) key { return sections[section].keys[name] }
