package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	"tierway/tenants"
	"tierway/tiers"
)

// reference returns docs/config.md: every key with its type, default and
// meaning.
func reference() []byte {
	var b strings.Builder
	b.WriteString(`# config.yaml

Reference of the configuration file for operators: every key with its type, default and meaning. Unknown keys, invalid values and rules that can never match are errors. ` + "`tierway check`" + ` reports all problems at once, each with its line and column. This page is generated from the code.

- **duration**: ` + "`250ms`, `5s`, `2m`, `1h30m`" + `. **size**: bytes, or a number with a unit: ` + "`64KB`, `32MiB`" + `. **money**: a decimal number in the unit of the prices, such as ` + "`12.50`" + `, with at most nine decimals.
- ` + "`${NAME}`" + ` in a value is replaced by the environment variable NAME, ` + "`${NAME:-default}`" + ` adds a default, and ` + "`$${`" + ` is a literal ` + "`${`" + `. An unset variable without a default is an error.
- The file contains no secrets. ` + "`api_key_env`" + ` names the variable of a worker's key, tenants' keys are stored as SHA-256, and the URLs of stores take passwords from ` + "`${NAME}`" + `.
- A reload (SIGHUP, the admin plane or ` + "`watch`" + `) applies the whole file, or nothing if the file has an error. Changes of ` + restartText() + ` take effect after a restart. A worker that is removed or gets another URL finishes its in-flight requests.
- Names of tiers, pools and workers match ` + "`" + forms["name"].pattern.String() + "`" + ` and are unique.

| key | type | default | meaning |
|---|---|---|---|
`)
	walk("", reflect.ValueOf(Default()), func(path string, k key, v reflect.Value) {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", path, typeName(v.Type(), k), defaultText(v, k),
			strings.ReplaceAll(k.doc, "|", `\|`))
	})
	return []byte(b.String())
}

// walk calls f for every key below section, parents first. It includes the keys of list items.
func walk(path string, section reflect.Value, f func(path string, k key, v reflect.Value)) {
	for k, v := range members(section) {
		at := join(path, k.name)
		f(at, *k, v)
		if v.Kind() == reflect.Slice {
			at += "[]"
		}
		if v.Kind() != reflect.Struct {
			v = reflect.New(itemOf(v.Type())).Elem()
		}
		if v.Kind() == reflect.Struct {
			walk(at, v, f)
		}
	}
}

// typeName returns the type of a key for the reference.
func typeName(t reflect.Type, k key) string {
	switch {
	case t.Kind() == reflect.Pointer:
		return typeName(t.Elem(), k)
	case t.Kind() == reflect.Struct:
		return "section"
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
		return "list of sections"
	case t == reflect.TypeFor[tiers.Targets]():
		return "string or list of strings"
	case t.Kind() == reflect.Slice && k.words != nil:
		return "list of `" + strings.Join(k.words, "`, `") + "`"
	case t.Kind() == reflect.Slice:
		return "list of strings"
	case t.Kind() == reflect.Map:
		return "map of string to " + typeName(t.Elem(), k)
	case k.words != nil:
		return "`" + strings.Join(k.words, "`, `") + "`"
	case t == reflect.TypeFor[time.Duration]():
		return "duration"
	case t == reflect.TypeFor[Size]():
		return "size"
	case t == reflect.TypeFor[tenants.Money]():
		return "money"
	case t.Kind() == reflect.Bool:
		return "boolean"
	case isNumber(t):
		return strings.TrimPrefix(strings.TrimPrefix(wanted(t, k), "an "), "a ")
	}
	return "string"
}

// defaultText shows a key's default.
func defaultText(v reflect.Value, k key) string {
	switch {
	case k.required:
		return "required"
	case k.absent != "":
		return k.absent
	case v.Kind() == reflect.Pointer && !v.IsNil():
		return defaultText(v.Elem(), k)
	case v.Kind() == reflect.Struct || v.Kind() == reflect.Pointer:
		return ""
	case v.Type() == reflect.TypeFor[[]string]() && v.Len() > 0:
		return "`" + strings.Join(v.Interface().([]string), "`, `") + "`"
	case v.Kind() == reflect.Slice || v.Kind() == reflect.Map:
		return "none"
	case isNumber(v.Type()) && v.IsZero() && k.min > 0: // 0 is invalid: the key inherits
		return ""
	case isNumber(v.Type()) || v.Type() == reflect.TypeFor[tenants.Money]() || v.Kind() == reflect.Bool || k.zero ||
		!v.IsZero():
		return fmt.Sprintf("`%v`", v.Interface())
	}
	return ""
}

// schema returns docs/config.schema.json, a JSON schema for editors. It checks keys, types, enum values
// and ranges. Only Parse checks combinations of keys.
func schema() ([]byte, error) {
	root := schemaOf(reflect.TypeFor[File](), key{})
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "Tierway configuration"
	out, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("writing the schema: %w", err)
	}
	return append(out, '\n'), nil
}

// variable is the schema of a value with ${…}, which is valid for any type.
const variable = `\$\{`

// schemaOf describes one type.
func schemaOf(t reflect.Type, k key) map[string]any {
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem(), k)
	case reflect.Struct:
		return sectionSchema(t)
	case reflect.Slice:
		if t == reflect.TypeFor[tiers.Targets]() {
			return map[string]any{"anyOf": []any{textSchema(k),
				map[string]any{"type": "array", "items": textSchema(k), "minItems": 1}}}
		}
		list := map[string]any{"type": "array", "items": schemaOf(t.Elem(), key{words: k.words})}
		if k.required {
			list["minItems"] = 1
		}
		return list
	case reflect.Map:
		return map[string]any{"type": []string{"object", "null"}, "additionalProperties": schemaOf(t.Elem(), k)}
	case reflect.String:
		return textSchema(k)
	}
	s := map[string]any{}
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return map[string]any{"type": []string{"string", "integer"}, "pattern": `^([0-9.]+(ns|us|µs|ms|s|m|h))+$|^0$|` +
			variable, "maximum": 0}
	case t == reflect.TypeFor[Size]():
		least := 1
		if k.zero {
			least = 0
		}
		return map[string]any{"type": []string{"string", "integer"}, "pattern": `^[0-9]+ *(B|KB|MB|GB|KiB|MiB|GiB)?$|` +
			variable, "minimum": least}
	case t.Kind() == reflect.Bool:
		s["type"] = "boolean"
	case t.Kind() == reflect.Float64 || t == reflect.TypeFor[tenants.Money]():
		s["type"] = "number"
	default:
		s["type"] = "integer"
	}
	if t.Kind() != reflect.Bool {
		bound := "minimum"
		if k.above {
			bound = "exclusiveMinimum"
		}
		s[bound] = k.min
		switch {
		case k.below:
			s["exclusiveMaximum"] = k.max
		case k.max != noBound:
			s["maximum"] = k.max
		}
	}
	return map[string]any{"anyOf": []any{s, map[string]any{"type": "string", "pattern": variable}}}
}

// textSchema describes a text.
func textSchema(k key) map[string]any {
	switch {
	case k.words != nil:
		return map[string]any{"anyOf": []any{map[string]any{"enum": k.words},
			map[string]any{"type": "string", "pattern": variable}}}
	case forms[k.form].pattern != nil && k.required:
		return map[string]any{"type": "string", "pattern": forms[k.form].pattern.String() + "|" + variable}
	case forms[k.form].pattern != nil:
		return map[string]any{"type": "string", "pattern": "^$|" + forms[k.form].pattern.String() + "|" + variable}
	case k.required:
		return map[string]any{"type": "string", "minLength": 1}
	}
	return map[string]any{"type": "string"}
}

// sectionSchema describes a struct. A section is null if its content is commented out.
func sectionSchema(t reflect.Type) map[string]any {
	properties, required := map[string]any{}, []string{}
	for k, v := range members(reflect.Zero(t)) {
		s := schemaOf(v.Type(), *k)
		s["description"] = k.doc
		properties[k.name] = s
		if k.required {
			required = append(required, k.name)
		}
	}
	s := map[string]any{"type": []string{"object", "null"}, "additionalProperties": false, "properties": properties}
	if len(required) > 0 {
		s["type"], s["required"] = "object", required
	}
	return s
}

// restartText lists the keys that need a restart, for readers of the reference.
func restartText() string {
	var list []string
	walk("", reflect.ValueOf(File{}), func(path string, k key, _ reflect.Value) {
		if k.reload == EffectRestart {
			list = append(list, "`"+path+"`")
		}
	})
	last := len(list) - 1
	return strings.Join(list[:last], ", ") + " and " + list[last]
}
