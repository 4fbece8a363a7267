package imports

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"tierway/config"
)

// rule translates one setting.
type rule func(d *builder, s setting)

func keysOf(table map[string]rule) (keys []string) {
	for key := range table {
		keys = append(keys, key)
	}
	return keys
}

// to returns the rule that copies a single value. unit is appended to a number.
func to(path, unit, comment string) rule {
	return func(d *builder, s setting) {
		text, ok := s.text()
		switch {
		case !ok:
			d.leave(s, "it is a list or section; write "+d.base+path+" with one value")
		case unit != "":
			d.set(path, text+unit, s, comment)
		default:
			d.set(path, s.node, s, comment)
		}
	}
}

// toAll returns the rule that copies a single value to several keys.
func toAll(unit string, paths ...string) rule {
	return func(d *builder, s setting) {
		for _, path := range paths {
			to(path, unit, "")(d, s)
		}
	}
}

// toList returns the rule that copies a list.
func toList(path string) rule {
	return func(d *builder, s setting) { d.set(path, s.texts(), s, "") }
}

// keep returns the rule that keeps a setting for a later step.
func keep(name string) rule {
	return func(d *builder, s setting) { d.kept[name] = s }
}

// out returns the rule that leaves a setting out.
func out(reason string) rule {
	return func(d *builder, s setting) {
		if text, _ := s.text(); text != "false" {
			d.leave(s, reason)
		}
	}
}

// attempts returns the rule for retries; first is 1 if the number leaves the first attempt out.
func attempts(first int) rule {
	const most = 5 // retry.attempts
	return func(d *builder, s setting) {
		text, _ := s.text()
		n, err := strconv.Atoi(text)
		if err != nil {
			d.leave(s, "want a number; write retry.attempts")
			return
		}
		comment := "with the first attempt; a retry goes to another worker, and retry.budget limits all retries"
		if n+first > most {
			comment = fmt.Sprintf("at most %d; ", most) + comment
		}
		d.set("retry.attempts", min(max(n+first, 1), most), s, comment)
	}
}

// policyName returns the rule for the name of a policy or a fallback.
func policyName(path string) rule {
	return func(d *builder, s setting) {
		text, _ := s.text()
		name, options, instead := config.PolicyWord(text)
		if name == "" {
			d.leave(s, cmp.Or(instead, "there is no such policy; docs/policies.md lists the policies"))
			return
		}
		d.set(path, name, s, d.comment[name])
		section := path[:strings.LastIndex(path, ".")+1]
		for _, o := range options {
			if _, written := d.origin[d.base+section+o[0]]; !written {
				d.set(section+o[0], o[1], s, "")
			}
		}
	}
}
